//! `ringfence events`: a sandbox's audit trail, oldest first. Looking boots nothing.

use crate::connect::Connect;
use crate::exit::Exit;
use crate::print;
use ringfence_wire::contract::{EventsDone, EventsQuery, SandboxEvent, Swept};

#[derive(clap::Args)]
#[command(after_help = "\
One line for each operation that changed something, or was refused to: which, about what, how it went, how long it took.
No command text and no secret is in it. Look-ups are not recorded. The newest 1,000 are kept, also after an abort.

Examples:
  ringfence events my-key
  ringfence events my-key --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: Connect,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The sandbox
    #[arg(value_name = "KEY", value_parser = super::key)]
    key: String,
}

pub(crate) async fn main(arguments: Arguments) -> anyhow::Result<Exit> {
    let sandbox = arguments.connect.client().await?.sandbox(arguments.key.as_str());
    let mut all = sandbox.events(EventsQuery::default()).await?;
    // Pages are counted by what they hold: a sandbox at work adds to the last one for ever.
    while let Some(more) = next_page(&all) {
        let page = sandbox.events(more).await?;
        if page.events.is_empty() {
            break;
        }
        (all.next, all.wakeups) = (page.next, page.wakeups);
        all.dropped += page.dropped;
        all.events.extend(page.events);
    }
    if arguments.json {
        print::json(&all)?;
        return Ok(Exit::Ok);
    }
    if super::is_blank(&all) {
        print::note(super::unknown(&arguments.key));
        return Ok(Exit::Ok);
    }
    if all.dropped > 0 {
        print::note(format_args!("{} older events were dropped", all.dropped));
    }
    let now = print::now_ms();
    let rows: Vec<_> = all.events.iter().map(|event| row(event, now)).collect();
    print::lines(&print::table(["AGE", "OPERATION", "TOOK", "OUTCOME", "ABOUT"], &rows))?;
    Ok(Exit::Ok)
}

/// As many as the object keeps, and no more.
const MOST: usize = 1_000;

fn next_page(so_far: &EventsDone) -> Option<EventsQuery> {
    let goes_on = !so_far.events.is_empty() && so_far.events.len() < MOST;
    goes_on.then_some(EventsQuery { cursor: Some(so_far.next), limit: None })
}

fn row(event: &SandboxEvent, now: u64) -> [String; 5] {
    let mut about: Vec<String> = event.id.iter().cloned().collect();
    about.extend(event.labels.iter().flatten().map(|(name, value)| format!("{name}={value}")));
    about.extend(event.swept.iter().map(swept));
    [
        print::duration(now.saturating_sub(event.at)),
        event.operation.clone(),
        print::duration(event.duration_ms),
        outcome(event),
        about.join(" "),
    ]
}

fn swept(swept: &Swept) -> String {
    let mut told = format!("killed {}: {}", swept.killed_count, swept.killed.join(" "));
    if !swept.survivors.is_empty() {
        told.push_str(&format!("; still alive: {}", swept.survivors.join(" ")));
    }
    told
}

/// `ok`, or the refusal's kind as it stands on the wire, with its reason.
fn outcome(event: &SandboxEvent) -> String {
    if event.ok {
        return "ok".to_owned();
    }
    let kind = event.kind.and_then(|kind| serde_json::to_value(kind).ok());
    let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or("failed").to_owned();
    event.reason.as_ref().map_or_else(|| kind.clone(), |reason| format!("{kind}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_wire::refusal::RefusalKind;
    use std::collections::BTreeMap;

    fn event() -> SandboxEvent {
        SandboxEvent {
            seq: 1,
            at: 1_000,
            consumer: "local".into(),
            key: "k".into(),
            operation: "execUnderGrant".to_owned(),
            id: Some("run-7".to_owned()),
            ok: true,
            kind: None,
            reason: None,
            duration_ms: 250,
            generation: 1,
            labels: None,
            swept: None,
        }
    }

    #[test]
    fn a_line_says_what_about_what_how_it_went_and_how_long_it_took() {
        assert_eq!(row(&event(), 61_000), ["1m00s", "execUnderGrant", "250ms", "ok", "run-7"]);
        let refused = SandboxEvent {
            ok: false,
            kind: Some(RefusalKind::SandboxUnavailable),
            reason: Some("container-not-gone".to_owned()),
            operation: "OrphanedSandbox".to_owned(),
            id: None,
            labels: Some(BTreeMap::from([("run".to_owned(), "7".to_owned())])),
            ..event()
        };
        let [.., outcome, about] = row(&refused, 1_000);
        assert_eq!((outcome.as_str(), about.as_str()), ("sandbox-unavailable: container-not-gone", "run=7"));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (killed, survivors) = (names(&["sleep (7)"]), names(&["stuck (8)"]));
        let swept = Some(Swept { complete: false, killed_count: 1, killed, survivors });
        let sweep = SandboxEvent { ok: false, operation: "sweep".to_owned(), id: None, swept, ..event() };
        let [.., outcome, about] = row(&sweep, 1_000);
        assert_eq!(
            (outcome.as_str(), about.as_str()),
            ("failed", "killed 1: sleep (7); still alive: stuck (8)")
        );
    }

    #[test]
    fn a_process_that_named_itself_after_an_escape_sequence_cannot_use_it() {
        let killed = vec!["\x1b]0;x\x07 (7)".to_owned(), "\u{9b}2J\n (8)".to_owned()];
        let swept = Some(Swept { complete: true, killed_count: 2, killed, survivors: Vec::new() });
        let sweep = SandboxEvent { operation: "sweep".to_owned(), id: None, swept, ..event() };
        let table = print::table(["", "", "", "", ""], &[row(&sweep, 1_000)]);
        assert!(table.ends_with("killed 2: \\x1b]0;x\\x07 (7) \\u{9b}2J\\n (8)\n"), "{table:?}");
    }

    #[test]
    fn it_asks_for_pages_until_one_is_empty_or_it_has_as_many_as_are_kept() {
        let page = |n: usize| EventsDone { events: vec![event(); n], next: 9, dropped: 0, wakeups: 0 };
        assert_eq!(next_page(&page(0)), None);
        assert_eq!(next_page(&page(1)), Some(EventsQuery { cursor: Some(9), limit: None }));
        assert_eq!(next_page(&page(MOST)), None);
    }
}
