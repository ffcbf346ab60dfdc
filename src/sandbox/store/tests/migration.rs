//! Databases that earlier versions left are opened, read, and gone on with.
//!
//! `tests/fixtures/v1/sandbox.sql` is the dump of a Sandbox object's storage that the first version wrote
//! (`tests/fixtures/README.md` says how): receipts, an unknown effect, a spent approval, processes that ran, exited and
//! were stopped, events, and a slot in use.

use ringfence_core::status::Record;
use ringfence_wire::contract::{Approval, ApprovedAt, EventsQuery, ExecInput, GoneReason, OnUnknown};
use ringfence_wire::refusal::RefusalKind;
use ringfence_wire::supervisor::ExecutionIdentity;
use rusqlite::Connection;
use sha2::{Digest, Sha256};

use super::super::Store;
use super::super::exec::Found;
use super::super::head::Boot;
use super::super::ledger::LedgerState;
use super::super::processes::Process;
use super::super::tables::Task;
use super::{done, fresh, input};
use crate::sql::sqlite::Sql;

const V1: &str = include_str!("../../../../tests/fixtures/v1/sandbox.sql");

fn v1() -> Sql {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(V1).unwrap();
    Sql::over(connection)
}

fn version(sql: &Sql) -> u64 {
    #[derive(serde::Deserialize)]
    struct Row {
        version: u64,
    }
    sql.row::<Row>("SELECT version FROM schema", []).unwrap().unwrap().version
}

/// As the recording sent it.
fn recorded(key: &str, command: &str) -> ExecInput {
    let mut call = input(key, command);
    call.recipe.version = "recorded".to_owned();
    call
}

#[test]
fn a_database_of_the_first_version_is_brought_to_this_one_once() {
    let sql = v1();
    assert_eq!(version(&sql), 1);
    let store = Store::over(sql.clone()).unwrap();
    assert_eq!(version(&sql), 3);
    let before = store.processes().unwrap().len();
    // Opened again, as on every wake.
    assert_eq!(Store::over(sql.clone()).unwrap().processes().unwrap().len(), before);
    assert_eq!(version(&sql), 3);
}

#[test]
fn a_database_of_a_newer_version_is_refused_and_left_as_it_is() {
    let sql = v1();
    sql.run("UPDATE schema SET version = 4", []).unwrap();
    let error = Store::over(sql.clone()).unwrap_err().to_string();
    assert!(error.contains("version 4") && error.contains("newer"), "{error}");
    assert_eq!(version(&sql), 4);
}

#[test]
fn a_step_that_is_cut_short_leaves_the_old_version_and_is_taken_again() {
    for writes in 0..7 {
        let sql = v1();
        let cut = Some(crate::sql::sqlite::Cut::RolledBack { writes });
        assert!(sql.call(cut, || Store::over(sql.clone()).map(drop)).is_err(), "after {writes} writes");
        assert_eq!(version(&sql), 1);
        Store::over(sql.clone()).unwrap();
        assert_eq!(version(&sql), 3);
    }
}

#[test]
fn what_the_first_version_knew_is_known() {
    let store = Store::over(v1()).unwrap();
    let head = store.head().unwrap().unwrap();
    assert_eq!((head.consumer.as_str(), head.key.as_str()), ("local", "recorded"));
    assert_eq!(head.labels().get("run").map(String::as_str), Some("7"));
    assert!(head.slot.is_some() && head.boot == Boot::Up && head.expires_at > head.created_at);
    assert!(store.dues().unwrap().iter().any(|due| due.task == Task::Expire));

    // A receipt is replayed, and to another command its key is taken.
    let Ok(Found::Answer(answer)) = store.look_up(&recorded("exec-1", "echo one; exit 3")) else { panic!() };
    let receipt = answer.unwrap().receipt;
    assert_eq!((receipt.exit_code, receipt.tail.as_str(), receipt.deduped), (Some(3), "one\n", true));
    assert_eq!(receipt.identity, ExecutionIdentity::LegacyUnbound);
    let bound = |process: &Process| process.identity != ExecutionIdentity::LegacyUnbound;
    assert!(!store.processes().unwrap().iter().any(bound));
    let Ok(Found::Answer(answer)) = store.look_up(&recorded("exec-1", "echo two")) else { panic!() };
    assert_eq!(answer.unwrap_err().kind, RefusalKind::IdempotencyConflict);
    // What could not be known is not known now.
    let Ok(Found::Answer(answer)) = store.look_up(&recorded("exec-unknown", "sleep 3601")) else { panic!() };
    assert_eq!(answer.unwrap_err().kind, RefusalKind::EffectUnknown);

    let mut states: Vec<_> =
        store.processes().unwrap().into_iter().map(|p| (p.idempotency_key.0, p.record)).collect();
    states.sort_by(|a, b| a.0.cmp(&b.0));
    let stopped = |record: &Record| matches!(record, Record::Gone { reason: GoneReason::Stopped, .. });
    let gone = |record: &Record| matches!(record, Record::Gone { reason: GoneReason::ContainerStopped, .. });
    match &states[..] {
        [
            (exited, Record::Exited { exit_code: Some(5), .. }),
            (lost, was_lost),
            (running, Record::Running),
            (stop, was_stopped),
        ] if gone(was_lost) && stopped(was_stopped) => {
            let keys = [exited, lost, running, stop].map(String::as_str);
            assert_eq!(keys, ["start-exited", "start-lost", "start-running", "start-stopped"]);
        }
        other => panic!("{other:?}"),
    }
    let trail = store.events(EventsQuery::default()).unwrap();
    let operations: Vec<_> = trail.events.iter().map(|event| event.operation.as_str()).collect();
    assert_eq!(operations.first(), Some(&"ensureSandbox"));
    assert!(operations.contains(&"execUnderGrant") && operations.contains(&"stopDetached"), "{operations:?}");
    assert!(trail.events.iter().zip(1..).all(|(event, n)| event.seq == n && event.labels.is_none()));
}

#[test]
fn an_approval_spent_under_the_first_version_stays_spent() {
    let store = Store::over(v1()).unwrap();
    let command = "git push --dry-run";
    let mut call = recorded("exec-other", command);
    call.approval = Some(Approval {
        task_id: "task-7".to_owned(),
        ordinal: 0,
        command_sha256: hex::encode(Sha256::digest(command)),
        approved_by: "sam".to_owned(),
        approved_at: ApprovedAt::Millis(1_000),
    });
    let refusal = store.take_key(&call, Some("git-push"), None, fresh(1, 2_000)).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::AttestationRejected);
    call.idempotency_key = "exec-approved".into();
    assert!(matches!(store.look_up(&call), Ok(Found::Answer(_))), "its own key has its record");
}

#[test]
fn it_goes_on_where_the_first_version_left() {
    let store = Store::over(v1()).unwrap();
    let before = store.head().unwrap().unwrap();
    // A new exec, to its receipt.
    let call = recorded("exec-new", "true");
    assert!(matches!(store.look_up(&call), Ok(Found::Free { unknown: None })));
    let entry = store.take_key(&call, None, None, fresh(1, 1)).unwrap();
    let order = store.open_fence().unwrap();
    assert!(order.0 > 4, "orders go on where they were: {order:?}");
    store.mark_running(&entry.job, order, before.generation, &"boot".into()).unwrap();
    store.record_receipt(&entry.job, &done(entry.job.as_str()), 2).unwrap();
    assert!(matches!(store.look_up(&call), Ok(Found::Answer(answer)) if answer.is_ok()));
    // An old unknown is run again on its caller's word, and if it did not run it is as unknown as before.
    let mut again = recorded("exec-unknown", "sleep 3601");
    again.on_unknown = Some(OnUnknown::Rerun);
    let Ok(Found::Free { unknown: Some(unknown) }) = store.look_up(&again) else { panic!() };
    let entry = store.take_key(&again, None, Some(unknown), fresh(2, 3)).unwrap();
    store.release_entry(&entry.job).unwrap();
    assert_eq!(store.entry(&again.idempotency_key).unwrap().unwrap().state, LedgerState::Unknown);
    // Its epoch ends: what ran is buried, and its slot is to be given back.
    let epoch = store.bump_epoch(4).unwrap();
    assert_eq!(epoch, before.epoch + 1);
    store.bury_processes(GoneReason::Aborted, "the sandbox was aborted", 4).unwrap();
    assert!(store.open_processes().unwrap().is_empty());
    assert!(store.release_ending_slots().unwrap());
    assert_eq!(store.slots_to_release().unwrap(), [before.slot.unwrap()]);
}
