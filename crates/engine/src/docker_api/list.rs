//! `GET /containers/json`: containers by label, name, state and image. Sidecars are not listed: they are the engine's.

use super::Call;
use super::answer::{self, Answer};
use crate::calls::millis;
use crate::container::{Container, Life};
use crate::engine::Engine;
use crate::names;
use hyper::StatusCode;
use serde_json::{Value, json};

pub fn list(engine: &Engine, call: &Call) -> Answer {
    let filters = match call.query("filters").map(parse_filters).transpose() {
        Ok(filters) => filters.unwrap_or_default(),
        Err(error) => return answer::error(StatusCode::BAD_REQUEST, &format!("filters: {error}")),
    };
    let all = call.flag("all");
    let mut listed = Vec::new();
    for container in engine.all_containers() {
        let life = container.life();
        let seen = all || matches!(life, Life::Running(_)) || !filters.status.is_empty();
        if seen && filters.admit(&container, &life) {
            listed.push(json!({
                "Id": container.id, "Names": [format!("/{}", container.name)], "Image": container.plan.image,
                "Created": millis(container.created_at) / 1000, "Labels": container.plan.labels,
                "State": life.status(), "Status": life.status(), "Ports": [],
            }));
        }
    }
    answer::json(StatusCode::OK, &listed)
}

#[derive(Default)]
struct Filters {
    label: Vec<String>,
    name: Vec<String>,
    status: Vec<String>,
    ancestor: Vec<String>,
}

/// Docker takes `{"label":["a=b"]}` and, from older clients, `{"label":{"a=b":true}}`.
fn parse_filters(text: &str) -> Result<Filters, String> {
    let all: serde_json::Map<String, Value> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut filters = Filters::default();
    for (key, value) in all {
        let values: Vec<String> = match value {
            Value::Array(list) => list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
            Value::Object(map) => map.keys().cloned().collect(),
            _ => return Err(format!("{key}: expected a list")),
        };
        match key.as_str() {
            "label" => filters.label = values,
            "name" => filters.name = values,
            "status" => filters.status = values,
            "ancestor" => filters.ancestor = values,
            other => return Err(format!("{other} is not served")),
        }
    }
    Ok(filters)
}

impl Filters {
    fn admit(&self, container: &Container, life: &Life) -> bool {
        let labels = &container.plan.labels;
        let labelled = self.label.iter().all(|wanted| match wanted.split_once('=') {
            Some((name, value)) => labels.get(name).is_some_and(|held| held == value),
            None => labels.contains_key(wanted),
        });
        let any = |list: &[String], matches: &dyn Fn(&str) -> bool| {
            list.is_empty() || list.iter().any(|w| matches(w))
        };
        labelled
            && any(&self.name, &|wanted| container.name.contains(&names::canonical(wanted)))
            && any(&self.status, &|wanted| wanted == life.status())
            && any(&self.ancestor, &|wanted| wanted == container.plan.image)
    }
}
