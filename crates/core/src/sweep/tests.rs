use super::*;
use proptest::prelude::*;

fn seen(pid: i32, parent: i32, start_time: u64) -> Seen {
    Seen { identity: ProcessIdentity { pid, start_time }, parent, alive: true, stopped: false }
}

fn roots(leaders: &[(i32, char)]) -> HashMap<i32, Root<char>> {
    let mut roots: HashMap<i32, Root<char>> =
        leaders.iter().map(|(pid, job)| (*pid, Root::Leader(*job))).collect();
    roots.insert(1, Root::Own);
    roots
}

#[test]
fn ancestry_decides_and_whoever_is_below_no_leader_is_a_stray() {
    let look = [
        seen(1, 0, 0),
        seen(10, 1, 5),
        seen(11, 10, 6),
        seen(12, 11, 7),
        seen(20, 1, 5),
        seen(21, 20, 6),
        seen(30, 1, 9),
        seen(31, 30, 9),
        seen(40, 0, 9),
    ];
    let places = place(&look, 1, &roots(&[(10, 'a'), (20, 'b')]));
    assert_eq!(
        places,
        [
            Place::Own,
            Place::Leader('a'),
            Place::Job('a'),
            Place::Job('a'),
            Place::Leader('b'),
            Place::Job('b'),
            Place::Stray,
            Place::Stray,
            Place::Stray,
        ]
    );
}

#[test]
fn a_parent_that_ended_during_the_look_leaves_its_child_unsettled_not_a_stray() {
    let look = [seen(1, 0, 0), seen(10, 1, 5), seen(12, 11, 7)];
    assert_eq!(place(&look, 1, &roots(&[(10, 'a')])).last(), Some(&Place::Unsettled));
}

#[test]
fn a_parent_younger_than_its_child_is_a_reused_pid() {
    let look = [seen(1, 0, 0), seen(10, 1, 5), seen(12, 11, 7), seen(11, 10, 8)];
    let places = place(&look, 1, &roots(&[(10, 'a')]));
    assert_eq!(places, [Place::Own, Place::Leader('a'), Place::Unsettled, Place::Job('a')]);
}

#[test]
fn parents_in_a_circle_are_unsettled_and_end() {
    let look = [seen(1, 0, 0), seen(5, 6, 3), seen(6, 5, 3)];
    assert_eq!(place(&look, 1, &roots(&[]))[1..], [Place::Unsettled, Place::Unsettled]);
}

fn session<'a>(
    leader: Option<i32>,
    known: &'a HashSet<ProcessIdentity>,
    others: &'a HashSet<i32>,
) -> SessionJob<'a> {
    SessionJob { leader, started: 100, known, supervisor: 50, others }
}

#[test]
fn in_a_shared_namespace_a_bystander_with_an_old_marker_lives() {
    let look = [seen(1, 0, 0), seen(50, 1, 10), seen(60, 50, 100), seen(70, 1, 99), seen(71, 1, 101)];
    let (known, others) = (HashSet::new(), HashSet::new());
    let found = session_members(&look, &session(Some(60), &known, &others), |_| Marker::Ours);
    // 70 is older than the job. 71 is younger, an orphan, and carries the marker.
    assert_eq!(found.members, [(4, KillMethod::Marker)]);
}

#[test]
fn in_a_shared_namespace_a_marked_process_with_a_living_parent_elsewhere_is_no_member() {
    let look = [seen(1, 0, 0), seen(50, 1, 10), seen(60, 50, 100), seen(80, 1, 20), seen(81, 80, 101)];
    let (known, others) = (HashSet::new(), HashSet::new());
    let found = session_members(&look, &session(Some(60), &known, &others), |at| {
        if at == 4 { Marker::Ours } else { Marker::Absent }
    });
    assert_eq!(found.members, []);
}

#[test]
fn in_a_shared_namespace_ancestry_identity_and_descent_from_the_known_count() {
    let look = [
        seen(1, 0, 0),
        seen(50, 1, 10),
        seen(60, 50, 100),
        seen(61, 60, 101),
        seen(62, 61, 102),
        seen(90, 1, 103),
        seen(91, 90, 104),
    ];
    let known = HashSet::from([ProcessIdentity { pid: 90, start_time: 103 }]);
    let others = HashSet::new();
    let found = session_members(&look, &session(Some(60), &known, &others), |_| Marker::Absent);
    assert_eq!(
        found.members,
        [
            (3, KillMethod::Ancestry),
            (4, KillMethod::Ancestry),
            (5, KillMethod::Identity),
            (6, KillMethod::Ancestry)
        ]
    );
}

#[test]
fn what_fell_to_the_supervisor_from_a_lost_leader_is_the_jobs_whatever_its_environment_says() {
    let look = [seen(1, 0, 0), seen(50, 1, 10), seen(55, 50, 90), seen(61, 50, 101), seen(62, 61, 102)];
    let (known, others) = (HashSet::new(), HashSet::from([55]));
    let found = session_members(&look, &session(None, &known, &others), |_| Marker::Absent);
    assert_eq!(found.members, [(3, KillMethod::Ancestry), (4, KillMethod::Ancestry)]);
}

#[test]
fn an_unreadable_orphan_of_the_right_age_is_named_and_left_alone() {
    let look = [seen(1, 0, 0), seen(50, 1, 10), seen(60, 50, 100), seen(70, 1, 101), seen(71, 1, 50)];
    let (known, others) = (HashSet::new(), HashSet::new());
    let found = session_members(&look, &session(Some(60), &known, &others), |_| Marker::Unreadable);
    assert_eq!(found, SessionLook { members: vec![], unreadable: vec![3] });
}

fn round(now_ms: u64, members: usize) -> Round {
    Round { now_ms, members, new: 0, unsettled: 0, proven: false }
}

#[test]
fn the_kernels_proof_ends_a_sweep_at_once() {
    let mut rounds = Rounds::begin(0, 5_000);
    assert_eq!(rounds.after(Round { proven: true, ..round(0, 0) }), Next::Done(Verdict::Proven));
}

#[test]
fn two_empty_looks_in_a_row_are_needed_without_it() {
    let mut rounds = Rounds::begin(0, 5_000);
    assert_eq!(rounds.after(round(0, 0)), Next::WaitThenLook(50));
    assert_eq!(rounds.after(round(50, 1)), Next::WaitThenLook(50));
    assert_eq!(rounds.after(round(100, 0)), Next::WaitThenLook(50));
    assert_eq!(rounds.after(Round { unsettled: 1, ..round(150, 0) }), Next::WaitThenLook(50));
    assert_eq!(rounds.after(round(200, 0)), Next::WaitThenLook(50));
    assert_eq!(rounds.after(round(250, 0)), Next::Done(Verdict::EmptyTwice));
}

#[test]
fn the_grace_ends_in_kill_and_kill_ends_in_giving_up_each_at_its_edge() {
    let mut rounds = Rounds::begin(0, 5_000);
    assert_eq!(rounds.after(round(4_990, 1)), Next::WaitThenLook(10));
    assert_eq!(rounds.after(round(5_000, 1)), Next::LookWithKill);
    assert_eq!(rounds.phase(), Phase::Kill);
    assert_eq!(rounds.after(round(7_999, 1)), Next::WaitThenLook(1));
    assert_eq!(rounds.after(round(8_000, 1)), Next::Done(Verdict::GaveUp));
}

#[test]
fn what_multiplies_under_kill_gets_no_rest_and_no_grace_begins_with_kill() {
    let mut rounds = Rounds::begin(0, 0);
    assert_eq!(rounds.phase(), Phase::Kill);
    assert_eq!(rounds.after(Round { new: 3, ..round(1, 5) }), Next::WaitThenLook(0));
}

proptest! {
    #[test]
    fn every_process_below_a_leader_is_its_jobs_and_no_other_is(
        parents in prop::collection::vec(0usize..200, 1..200),
    ) {
        // Process k+2 is a child of an earlier process or of the supervisor; every tenth is a leader.
        let mut look = vec![seen(1, 0, 0)];
        let mut expected: Vec<Option<i32>> = vec![None];
        let mut leaders: HashMap<i32, Root<i32>> = HashMap::from([(1, Root::Own)]);
        for (k, choice) in parents.iter().enumerate() {
            let pid = k as i32 + 2;
            let leader = k % 10 == 0;
            let at = if leader { 0 } else { choice % look.len() };
            if leader {
                leaders.insert(pid, Root::Leader(pid));
            }
            look.push(seen(pid, look[at].identity.pid, k as u64 + 1));
            expected.push(if leader { Some(pid) } else { expected[at] });
        }
        // The order of a look is the kernel's business.
        let mut shuffled: Vec<usize> = (0..look.len()).collect();
        shuffled.sort_by_key(|k| (k * 7919) % 211);
        let mixed: Vec<Seen> = shuffled.iter().map(|k| look[*k]).collect();
        for (k, found) in shuffled.iter().zip(place(&mixed, 1, &leaders)) {
            let pid = look[*k].identity.pid;
            let want = match (pid, expected[*k]) {
                (1, _) => Place::Own,
                (pid, Some(job)) if pid == job => Place::Leader(job),
                (_, Some(job)) => Place::Job(job),
                (_, None) => Place::Stray,
            };
            prop_assert_eq!(found, want);
        }
    }

    #[test]
    fn a_sweep_always_ends(rounds in prop::collection::vec((0usize..3, 0usize..2, 0usize..2), 400)) {
        let mut sweep = Rounds::begin(0, 1_000);
        let (mut now, mut done) = (0, false);
        for (members, new, unsettled) in rounds {
            match sweep.after(Round { now_ms: now, members, new, unsettled, proven: false }) {
                Next::WaitThenLook(ms) => now += ms.max(20),
                Next::LookWithKill => {}
                Next::Done(_) => { done = true; break; }
            }
        }
        prop_assert!(done);
    }
}
