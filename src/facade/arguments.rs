//! A call's arguments by name, as JSON, and the way from there to typed input.
//!
//! Both faces end here, so a wrong type is the same refusal over each: `recipe-rejected`, with the dotted field as
//! the caller wrote it. A field nobody knows is ignored.

use ringfence_core::{key, recipe::FieldError};
use ringfence_wire::ids::{ProcessId, SandboxKey};
use ringfence_wire::refusal::{Refusal, RefusalKind};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The argument that is the call's whole input: its fields are named without a prefix.
const INPUT: &str = "input";

#[derive(Clone, Debug, Default)]
pub struct Arguments(Map<String, Value>);

impl Arguments {
    pub fn positional(names: &[&str], values: Vec<Value>) -> Self {
        Self(names.iter().map(|name| (*name).to_owned()).zip(values).collect())
    }

    pub fn set(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }

    /// One more of those under this name.
    pub fn push(&mut self, name: &str, value: Value) {
        match self.0.entry(name).or_insert_with(|| Value::Array(Vec::new())) {
            Value::Array(values) => values.push(value),
            other => *other = value,
        }
    }

    pub fn extend(&mut self, fields: Map<String, Value>) {
        self.0.extend(fields);
    }

    pub fn key(&mut self) -> Result<SandboxKey, Refusal> {
        let text: String = self.required("key")?;
        key::parse_key(&text).map_err(|fault| rejected("key", fault))
    }

    pub fn process_id(&mut self) -> Result<ProcessId, Refusal> {
        let text: String = self.required("processId")?;
        key::parse_process_id(&text).map_err(|fault| rejected("processId", fault))
    }

    pub fn optional_process_id(&mut self) -> Result<Option<ProcessId>, Refusal> {
        match self.optional::<String>("processId")? {
            None => Ok(None),
            Some(text) => {
                key::parse_process_id(&text).map(Some).map_err(|fault| rejected("processId", fault))
            }
        }
    }

    pub fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, Refusal> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Err(rejected(name, "is missing")),
            Some(value) => typed(name, value),
        }
    }

    /// Absent and null are the same.
    pub fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, Refusal> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => typed(name, value).map(Some),
        }
    }
}

/// `recipe-rejected` naming the field.
pub fn rejected(field: &str, message: impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::RecipeRejected, format!("{field}: {message}")).field(field)
}

pub fn field_error(error: FieldError) -> Refusal {
    rejected(&error.field, error.message)
}

fn typed<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, Refusal> {
    // serde takes an array for an object, its values in the order of the fields.
    if let Some(field) = array_for_object(name, &value) {
        return Err(rejected(&field, MUST_BE_OBJECT));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let message = error.inner().to_string();
        let mut parts: Vec<String> = Vec::new();
        if name != INPUT {
            parts.push(name.to_owned());
        }
        let path = error.path().to_string();
        if path != "." {
            parts.push(path);
        }
        // A missing field is reported at its parent, and its name is only in serde's message.
        if let Some(rest) = message.strip_prefix("missing field `")
            && let Some((field, _)) = rest.split_once('`')
        {
            parts.push(field.to_owned());
            return rejected(&parts.join("."), "is missing");
        }
        let field = if parts.is_empty() { INPUT.to_owned() } else { parts.join(".") };
        // serde would say what it is called in here.
        let message = if message.contains("expected struct ") { MUST_BE_OBJECT } else { &message };
        rejected(&field, message)
    })
}

const MUST_BE_OBJECT: &str = "must be an object";
/// Every name under which an input holds an object.
const OBJECTS: [&str; 6] = [INPUT, "recipe", "repo", "approval", "admission", "options"];

fn array_for_object(name: &str, value: &Value) -> Option<String> {
    match value {
        _ if !OBJECTS.contains(&name) => None,
        Value::Array(_) => Some(name.to_owned()),
        Value::Object(fields) => {
            let path = fields.iter().find_map(|(field, value)| array_for_object(field, value))?;
            Some(if name == INPUT { path } else { format!("{name}.{path}") })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_wire::contract::{AdmissionWish, EnsureOptions, ExecInput, Recipe};
    use serde_json::json;

    fn field_of<T: DeserializeOwned + std::fmt::Debug>(name: &str, value: Value) -> String {
        let mut arguments = Arguments::default();
        arguments.set(name, value);
        arguments.required::<T>(name).unwrap_err().field.unwrap()
    }

    #[test]
    fn a_wrong_type_names_its_dotted_field() {
        assert_eq!(field_of::<Recipe>("recipe", json!({"version": 5})), "recipe.version");
        assert_eq!(
            field_of::<Recipe>("recipe", json!({"version": "1", "repo": {"owner": "o", "name": []}})),
            "recipe.repo.name"
        );
        assert_eq!(
            field_of::<Recipe>("recipe", json!({"version": "1", "profiles": ["a", 2]})),
            "recipe.profiles[1]"
        );
        assert_eq!(field_of::<Recipe>("recipe", json!("text")), "recipe");
    }

    #[test]
    fn a_missing_field_is_named_itself_not_its_parent() {
        assert_eq!(field_of::<Recipe>("recipe", json!({})), "recipe.version");
        assert_eq!(field_of::<ExecInput>("input", json!({"recipe": {}})), "recipe.version");
        assert_eq!(field_of::<ExecInput>("input", json!({})), "recipe");
    }

    #[test]
    fn the_fields_of_an_input_have_no_prefix() {
        let input = json!({"recipe": {"version": "1"}, "command": 7, "idempotencyKey": "k", "logPath": "l"});
        assert_eq!(field_of::<ExecInput>("input", input), "command");
        assert_eq!(field_of::<ExecInput>("input", json!(3)), "input");
    }

    #[test]
    fn an_array_is_no_object_at_any_depth_and_no_name_from_in_here_is_told() {
        let refused = |value: Value| {
            let mut arguments = Arguments::default();
            arguments.set("input", value);
            arguments.required::<ExecInput>("input").unwrap_err()
        };
        let with = |field: &str, value: Value| {
            let mut input =
                json!({"recipe": {"version": "1"}, "command": "c", "idempotencyKey": "k", "logPath": "l"});
            input[field] = value;
            input
        };
        for (value, field) in [
            (json!([]), "input"),
            (json!("text"), "input"),
            (json!([{"version": "1"}, "c", "k", "l", null, null, null, null, null]), "input"),
            (with("recipe", json!([])), "recipe"),
            (with("recipe", json!(["1", null, null, null, null, null])), "recipe"),
            (with("recipe", json!({"version": "1", "repo": ["o", "n"]})), "recipe.repo"),
            (with("approval", json!(["t", 0, "00", "p", 0])), "approval"),
        ] {
            let refusal = refused(value.clone());
            assert_eq!(refusal.field.as_deref(), Some(field), "{value}");
            assert!(refusal.message.ends_with("must be an object"), "{value}: {}", refusal.message);
        }
        assert_eq!(field_of::<AdmissionWish>("admission", json!(["wait"])), "admission");
        assert_eq!(field_of::<EnsureOptions>("options", json!([60_000])), "options");
    }

    #[test]
    fn an_unknown_field_is_ignored() {
        let mut arguments = Arguments::default();
        arguments.set("recipe", json!({"version": "1", "colour": "red"}));
        assert_eq!(arguments.required::<Recipe>("recipe").unwrap().version, "1");
    }

    #[test]
    fn absent_and_null_are_the_same() {
        let mut arguments = Arguments::default();
        arguments.set("options", Value::Null);
        assert_eq!(arguments.optional::<Recipe>("options").unwrap(), None);
        assert!(arguments.required::<Recipe>("recipe").unwrap_err().message.contains("is missing"));
    }

    #[test]
    fn an_unknown_variant_says_which_there_are() {
        let mut arguments = Arguments::default();
        arguments.set("recipe", json!({"version": "1", "enforcement": "never"}));
        let refusal = arguments.required::<Recipe>("recipe").unwrap_err();
        assert_eq!(refusal.field.as_deref(), Some("recipe.enforcement"));
        assert!(refusal.message.contains("`report`"), "{}", refusal.message);
    }
}
