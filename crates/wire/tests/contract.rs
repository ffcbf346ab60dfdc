//! The contract in TypeScript, for consumers: one readable file, generated from the Rust types.
//!
//! Invariant: `contract/ringfence.d.ts` is what these types say, or this test fails. `RINGFENCE_BLESS=1` writes
//! it anew: `RINGFENCE_BLESS=1 cargo test -p ringfence-wire --features ts`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use ringfence_wire::contract::*;
use ringfence_wire::evidence::{Evidence, KillMethod, KillScope, SeenProcess};
use ringfence_wire::ids::*;
use ringfence_wire::refusal::{AdmissionFacts, FenceFacts, Refusal, RefusalKind};
use ringfence_wire::supervisor::{
    Artifact, ArtifactList, ArtifactPage, ArtifactSource, ExecutionIdentity, FrameEncoding, OutputFrame,
    OutputPage, OutputStream, StdinMode, StdinResult, TeardownMode,
};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use ts_rs::{Config, TS, TypeVisitor};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contract/ringfence.d.ts");

/// A union longer than this is written one variant to a line.
const LINE: usize = 100;

const HEAD: &str = "\
// The Ringfence facade, contract version 1.
//
// Generated from crates/wire; do not edit. To write it anew:
//   RINGFENCE_BLESS=1 cargo test -p ringfence-wire --features ts
//
// Times are milliseconds since the Unix epoch unless a name says otherwise. A field that this contract does not
// know is ignored; a known field whose value is not served is refused by its name.

/** What a call returns: what it did, or the one shape of \"no\". Nothing that a caller must act on is thrown. */
export type Outcome<T> = ({ ok: true } & T) | ({ ok: false } & Refusal);

";

/// Every method of the facade: its documentation, name, parameters and what it answers with.
const METHODS: &[(&str, &str, &str, &str)] = &[
    (
        "Makes sure the sandbox runs under this recipe; extends its lifetime, never past the maximum.",
        "ensureSandbox",
        "key: SandboxKey, recipe: Recipe, admission?: AdmissionWish, options?: EnsureOptions",
        "Outcome<Ensured>",
    ),
    (
        "Runs one command behind the fence: grant, run, kill what it left, revoke.",
        "execUnderGrant",
        "key: SandboxKey, input: ExecInput",
        "Outcome<ExecDone>",
    ),
    (
        "Starts a process that outlives the call. It holds no grant, ever.",
        "startDetached",
        "key: SandboxKey, input: StartDetachedInput",
        "Outcome<StartDetachedDone>",
    ),
    (
        "Never boots anything. Poll it from durable steps; there is no wait-for-exit.",
        "detachedStatus",
        "key: SandboxKey, processId: ProcessId",
        "Outcome<StatusDone>",
    ),
    ("Never refuses.", "stopDetached", "key: SandboxKey, processId: ProcessId", "{ ok: true } & StopDone"),
    ("", "detachedList", "key: SandboxKey", "Outcome<ListDone>"),
    (
        "One page of both streams. `limit` is 4 to 65,536 bytes; `waitMs`, at most 5,000, waits for news.",
        "detachedOutput",
        "key: SandboxKey, processId: ProcessId, cursor?: Cursor, limit?: number, waitMs?: number",
        "Outcome<OutputDone>",
    ),
    (
        "For a process started with `stdin: \"pipe\"`. Safe to repeat under the same operation key.",
        "detachedInput",
        "key: SandboxKey, processId: ProcessId, input: DetachedInput",
        "Outcome<InputDone>",
    ),
    ("", "readFile", "key: SandboxKey, path: string", "Outcome<FileDone>"),
    (
        "Ends the container and keeps the key; the next call builds it anew.",
        "checkpoint",
        "key: SandboxKey, reason: string",
        "Outcome<Done>",
    ),
    (
        "Ends everything under this key. Never refuses.",
        "abort",
        "key: SandboxKey",
        "{ ok: true } & AbortDone",
    ),
    (
        "The requests that were refused, most frequent first. For the owner of the key only.",
        "denials",
        "key: SandboxKey",
        "DenialEvent[] | ({ ok: false } & Refusal)",
    ),
    (
        "One page of the audit trail, oldest first. `limit` is 1 to 1,000. For the owner of the key only.",
        "events",
        "key: SandboxKey, cursor?: number, limit?: number",
        "Outcome<EventsDone>",
    ),
    (
        "What jobs left beneath the artifact path, and their whole logs.",
        "artifacts",
        "key: SandboxKey",
        "Outcome<ArtifactList>",
    ),
    (
        "A page of the newest log under that `logPath` or, where there is none, of the file beneath the artifact path. `limit` is 4 to 262,144 bytes; `processId` asks for that process's log and no other, `source` for a log or a file alone.",
        "artifact",
        "key: SandboxKey, path: string, cursor?: Cursor, limit?: number, processId?: ProcessId, source?: ArtifactSource",
        "Outcome<ArtifactPage>",
    ),
    (
        "Takes a place in the queue, or the slot if one is free and nobody waits.",
        "admissionEnqueue",
        "key: SandboxKey, recipe: Recipe",
        "Outcome<AdmissionDone>",
    ),
    (
        "Takes the slot if it is this waiter's turn; keeps its place if not. Poll it at least every 100 seconds.",
        "admissionAttempt",
        "key: SandboxKey, recipe: Recipe",
        "Outcome<AdmissionDone>",
    ),
    (
        "Gives up the place in the queue, or an unused slot.",
        "admissionRelease",
        "key: SandboxKey",
        "Outcome<Done>",
    ),
    ("", "poolStatus", "", "Outcome<PoolStatusDone>"),
];

/// Writes each type once, in the order of [`declarations`], and remembers what they lean on.
struct Declarations {
    config: Config,
    text: String,
    written: BTreeSet<String>,
    needed: BTreeSet<String>,
}

impl Declarations {
    fn add<T: TS + 'static>(&mut self) -> &mut Self {
        let name = T::ident(&self.config);
        assert!(self.written.insert(name), "declared twice");
        T::visit_dependencies(self);
        if let Some(docs) = T::docs() {
            writeln!(self.text, "{}", comment_at(0, docs.trim_end())).unwrap();
        }
        self.text.push_str("export ");
        pretty(&T::decl(&self.config), &mut self.text);
        self.text.push_str("\n\n");
        self
    }
}

impl TypeVisitor for Declarations {
    fn visit<T: TS + 'static + ?Sized>(&mut self) {
        // Only a type of ours has a file of its own.
        if T::output_path().is_some() {
            self.needed.insert(T::ident(&self.config));
        }
    }
}

fn declarations() -> Declarations {
    let config = Config::new().with_large_int("number");
    let mut all =
        Declarations { config, text: HEAD.to_owned(), written: BTreeSet::new(), needed: BTreeSet::new() };
    all.add::<ConsumerName>().add::<SandboxKey>().add::<ProcessId>().add::<IdempotencyKey>().add::<Cursor>();
    all.add::<RefusalKind>().add::<Refusal>().add::<AdmissionFacts>().add::<FenceFacts>();
    all.add::<Recipe>().add::<Repo>().add::<Enforcement>();
    all.add::<AdmissionWish>().add::<AdmissionMode>().add::<EnsureOptions>().add::<Ensured>();
    all.add::<ExecInput>().add::<OnUnknown>().add::<Approval>().add::<ApprovedAt>();
    all.add::<ExecDone>().add::<Receipt>().add::<ReceiptEnd>().add::<Granted>();
    all.add::<TeardownSummary>().add::<TeardownMode>();
    all.add::<Evidence>()
        .add::<KillScope>()
        .add::<KillMethod>()
        .add::<SeenProcess>()
        .add::<ProcessIdentity>();
    all.add::<StartDetachedInput>().add::<StdinMode>().add::<WorkspaceMode>();
    all.add::<StartDetachedDone>().add::<StartedProcess>();
    all.add::<StatusDone>().add::<DetachedStatus>().add::<GoneReason>();
    all.add::<StopDone>();
    all.add::<ListDone>().add::<ListedProcess>().add::<ExecutionIdentity>();
    all.add::<OutputDone>()
        .add::<OutputPage>()
        .add::<OutputFrame>()
        .add::<OutputStream>()
        .add::<FrameEncoding>();
    all.add::<DetachedInput>().add::<InputDone>().add::<StdinResult>();
    all.add::<ArtifactList>().add::<Artifact>().add::<ArtifactSource>().add::<ArtifactPage>();
    all.add::<FileDone>().add::<AbortDone>().add::<Done>().add::<DenialEvent>();
    all.add::<EventsDone>().add::<SandboxEvent>().add::<Swept>();
    all.add::<AdmissionDone>().add::<PoolStatusDone>().add::<PoolUse>();
    all.add::<SandboxesDone>().add::<ListedSandbox>();
    all.add::<CanaryDone>().add::<CanaryReport>().add::<CanaryCheck>().add::<CanaryVerdict>();
    all
}

/// One field or variant to a line. What `ts-rs` writes on one line is hard to read and to review.
fn pretty(declaration: &str, into: &mut String) {
    let declaration = declaration
        .replace("{ [key in string]: string }", "Record<string, string>")
        .replace("{ [key in string]: number }", "Record<string, number>")
        .replace("Record<symbol, never>", "{}")
        .replace("\"state\":", "state:");
    if declaration.len() > LINE && declaration.contains("\" | \"") {
        into.push_str(&declaration.replace(" = \"", " =\n  | \"").replace("\" | \"", "\"\n  | \""));
        return;
    }
    let mut depth = 0usize;
    let mut rest = declaration.trim();
    let indent = |depth: usize| format!("\n{}", "  ".repeat(depth));
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("/**") {
            let (comment, after) = rest.split_at(rest.find("*/").expect("an end of the comment") + 2);
            into.push_str(&comment_at(depth, comment));
            into.push_str(&indent(depth));
            rest = after.trim_start();
            continue;
        }
        rest = &rest[c.len_utf8()..];
        match c {
            '{' if rest.trim_start().starts_with('}') => {
                into.push_str("{}");
                rest = &rest.trim_start()[1..];
            }
            '{' => {
                depth += 1;
                into.push_str(&format!("{{{}", indent(depth)));
                rest = rest.trim_start();
            }
            '}' => {
                depth = depth.saturating_sub(1);
                into.push_str(&format!("{}}}", indent(depth)));
            }
            ',' if depth > 0 && !into.ends_with("Record<string") => {
                rest = rest.trim_start();
                into.push(';');
                if !rest.starts_with('}') {
                    into.push_str(&indent(depth));
                }
            }
            '\n' => {}
            ' ' if rest.trim_start().starts_with('}') => rest = rest.trim_start(),
            c => into.push(c),
        }
    }
}

/// A comment of one line on one line.
fn comment_at(depth: usize, comment: &str) -> String {
    let lines: Vec<&str> = comment.lines().map(str::trim).collect();
    match lines[..] {
        ["/**", only, "*/"] => format!("/** {} */", only.trim_start_matches("* ")),
        _ => lines.join(&format!("\n{} ", "  ".repeat(depth))),
    }
}

fn facade() -> String {
    let mut text = String::from(
        "/** The methods of the named entrypoint `Facade`, over a service binding whose `props.consumer` says who calls. */\n\
         export interface Facade {\n",
    );
    for (docs, name, parameters, answer) in METHODS {
        if !docs.is_empty() {
            writeln!(text, "  /** {docs} */").unwrap();
        }
        writeln!(text, "  {name}({parameters}): Promise<{answer}>;").unwrap();
    }
    text.push_str("}\n");
    text
}

#[test]
fn the_committed_contract_is_what_the_types_say() {
    let mut all = declarations();
    let missing: Vec<&String> = all.needed.difference(&all.written).collect();
    assert!(missing.is_empty(), "used and not declared: {missing:?}");
    all.text.push_str(&facade());
    if std::env::var_os("RINGFENCE_BLESS").is_some() {
        std::fs::create_dir_all(Path::new(FILE).parent().unwrap()).unwrap();
        std::fs::write(FILE, &all.text).unwrap();
    }
    let committed = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        committed == all.text,
        "contract/ringfence.d.ts is not what the types say; RINGFENCE_BLESS=1 writes it anew, then review the change"
    );
}

#[test]
fn every_type_a_method_names_is_declared() {
    let all = declarations();
    for (_, name, parameters, answer) in METHODS {
        let words = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_alphanumeric())
                .filter(|word| word.starts_with(char::is_uppercase))
                .map(str::to_owned)
                .collect()
        };
        for word in words(parameters).into_iter().chain(words(answer)) {
            assert!(word == "Outcome" || all.written.contains(&word), "{name} names {word}");
        }
    }
}
