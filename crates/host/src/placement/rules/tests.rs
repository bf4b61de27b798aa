//! One row a rule: facts and plan, and the decision.

use super::*;
use Decision::{Exempt, LeaveUnpinned, Pin, Wait};
use Exemption::{
    ExtScheduler, GoMonitor, JavaMain, JustForked, MaskReset, Orphan, StartsPrograms, Storm,
};
use colocate_machine::{PuNr, SharedPart};

const NOW: Nanos = Nanos::from_secs(100);
const SETTLE: Nanos = Nanos::from_millis(200);
const LATER: Nanos = Nanos(NOW.0 + 1);

const PU: Place = Place::Pu(PuNr(3));
const CORE: Place = Place::Sharing(SharedPart::Core, PuNr(3));
const ON_PU: Mark = Mark::On(PuNr(3));
const ON_CORE: Mark = Mark::Among(0);

/// The plan has a PU for the thread.
const TO_PU: PlanView = PlanView {
    target: PU,
    mark: ON_PU,
    is_planned: true,
    has_ext_scheduler: false,
    is_launched: true,
    settle: SETTLE,
};
/// The plan has a core for it.
const TO_CORE: PlanView = PlanView { target: CORE, mark: ON_CORE, ..TO_PU };
/// The plan has a PU for it that it has lost.
const LOST: PlanView = PlanView { target: Place::LeftToKernel, mark: Mark::Original, ..TO_PU };
/// The plan leaves it unpinned.
const TO_KERNEL: PlanView = PlanView { is_planned: false, ..LOST };
/// The plan has a PU for it; a sched_ext scheduler is loaded, and the PU's core has several.
const EXT: PlanView = PlanView { mark: ON_CORE, has_ext_scheduler: true, ..TO_PU };
/// The same, and every part of the machine has one PU or all.
const EXT_NO_PART: PlanView = PlanView { mark: Mark::Original, ..EXT };
/// The programs are not launched.
const BEFORE_LAUNCH: PlanView = PlanView { is_launched: false, ..TO_PU };
/// The same, and programs settle at once.
const SETTLES_AT_ONCE: PlanView = PlanView { settle: Nanos::ZERO, ..BEFORE_LAUNCH };

/// A first thread.
const fn first(event: PlacementEvent) -> ThreadFacts {
    let program = ProgramFacts {
        runtime: Runtime::Plain,
        settled_at: Nanos::ZERO,
        further: 0,
        is_storm: false,
        is_orphan: false,
    };
    ThreadFacts { event, is_first: true, exempt: None, program }
}

/// The thread that a program of this runtime has created as its `further`-th.
const fn further(event: PlacementEvent, runtime: Runtime, further: u32) -> ThreadFacts {
    let facts = first(event);
    let program = ProgramFacts { runtime, further, ..facts.program };
    ThreadFacts { is_first: false, program, ..facts }
}

const fn settling(facts: ThreadFacts) -> ThreadFacts {
    let program = ProgramFacts { settled_at: LATER, ..facts.program };
    ThreadFacts { program, ..facts }
}

const fn exempt(facts: ThreadFacts, why: Exemption) -> ThreadFacts {
    ThreadFacts { exempt: Some(why), ..facts }
}

const fn in_storm(facts: ThreadFacts) -> ThreadFacts {
    let program = ProgramFacts { is_storm: true, ..facts.program };
    ThreadFacts { program, ..facts }
}

const fn orphan(facts: ThreadFacts) -> ThreadFacts {
    let program = ProgramFacts { is_orphan: true, ..facts.program };
    ThreadFacts { program, ..facts }
}

type Row = (&'static str, ThreadFacts, PlanView, Decision);

fn check(rows: &[Row]) {
    for (name, facts, plan, decision) in rows {
        assert_eq!(decide(facts, plan, NOW), *decision, "{name}");
    }
}

#[test]
#[rustfmt::skip] // a row a line
fn new_threads() {
    use PlacementEvent::Created;
    use Runtime::{Go, Jvm, Plain};
    let first_of_go = ThreadFacts { is_first: true, ..further(Created, Go, 1) };
    check(&[
        ("a first thread waits until its program has settled", settling(first(Created)), TO_PU, Wait(LATER)),
        ("a first thread of a program that has settled", first(Created), TO_PU, Pin(ON_PU)),
        ("a further thread is pinned at creation", settling(further(Created, Plain, 1)), TO_PU, Pin(ON_PU)),
        ("a first thread waits for a core, too", settling(first(Created)), TO_CORE, Wait(LATER)),
        ("an unplanned first thread does not wait", settling(first(Created)), TO_KERNEL, LeaveUnpinned),
        ("the second thread of Go is its monitor", further(Created, Go, 1), TO_PU, Exempt(GoMonitor)),
        ("the third thread of Go is a worker", further(Created, Go, 2), TO_PU, Pin(ON_PU)),
        ("the second thread of Java runs main", further(Created, Jvm, 1), TO_PU, Exempt(JavaMain)),
        ("the third thread of Java is a worker", further(Created, Jvm, 2), TO_PU, Pin(ON_PU)),
        ("a first thread of Go waits as others", settling(first_of_go), TO_PU, Wait(LATER)),
        ("the monitor gets no core either", further(Created, Go, 1), TO_CORE, Exempt(GoMonitor)),
        ("an unplanned monitor needs no reason", further(Created, Go, 1), TO_KERNEL, LeaveUnpinned),
        ("a thread in a storm", in_storm(further(Created, Plain, 9)), TO_PU, Exempt(Storm)),
        ("a storm prevails over an orphan", orphan(in_storm(first(Created))), TO_PU, Exempt(Storm)),
        ("an orphan prevails over a runtime", orphan(further(Created, Go, 1)), TO_PU, Exempt(Orphan)),
        ("an orphan does not wait", settling(orphan(first(Created))), TO_PU, Exempt(Orphan)),
    ]);
}

#[test]
#[rustfmt::skip] // a row a line
fn threads_that_have_begun() {
    use PlacementEvent::{ChildExec, Exec, Forked, PlanChanged, Restored, WaitOver};
    let reset = PlacementEvent::MaskReset;
    let storm = PlacementEvent::Storm;
    let worker = |event| further(event, Runtime::Go, 1);
    check(&[
        ("a program waits after its exec", settling(first(Exec)), TO_PU, Wait(LATER)),
        ("without a settle time it is pinned after its exec", first(Exec), TO_PU, Pin(ON_PU)),
        ("an orphan stays one after an exec", settling(orphan(first(Exec))), TO_PU, Exempt(Orphan)),
        ("a thread that forks", first(Forked), TO_PU, Exempt(JustForked)),
        ("a thread that forks may be on a core", first(Forked), TO_CORE, Pin(ON_CORE)),
        ("on a core it does not even wait", settling(exempt(first(PlanChanged), JustForked)), TO_CORE, Pin(ON_CORE)),
        ("a thread whose child executes a program", first(ChildExec), TO_PU, Exempt(StartsPrograms)),
        ("such a thread may be on a core", exempt(first(PlanChanged), StartsPrograms), TO_CORE, Pin(ON_CORE)),
        ("a thread that may not even be on a core", exempt(first(PlanChanged), MaskReset), TO_CORE, Exempt(MaskReset)),
        ("a storm replaces another exemption", exempt(first(storm), JustForked), TO_CORE, Exempt(Storm)),
        ("a program that has set all PUs again", first(reset), TO_PU, Exempt(MaskReset)),
        ("an exemption lasts", exempt(first(PlanChanged), GoMonitor), TO_PU, Exempt(GoMonitor)),
        ("an exemption lasts beyond a wait", exempt(settling(first(WaitOver)), Storm), TO_PU, Exempt(Storm)),
        ("a wait that is over", first(WaitOver), TO_PU, Pin(ON_PU)),
        ("a wait that was postponed, or begun anew by an exec", settling(first(WaitOver)), TO_PU, Wait(LATER)),
        ("a restriction that has ended", settling(first(Restored)), TO_PU, Pin(ON_PU)),
        ("a second thread is a monitor from its creation only", worker(PlanChanged), TO_PU, Pin(ON_PU)),
    ]);
}

#[test]
#[rustfmt::skip] // a row a line
fn plans() {
    use PlacementEvent::{Created, PlanChanged};
    let worker = further(PlanChanged, Runtime::Plain, 1);
    let forked = exempt(first(PlanChanged), JustForked);
    let after_launch = Wait(Nanos(NOW.0 + SETTLE.0));
    check(&[
        ("a thread goes where the plan says", first(PlanChanged), TO_PU, Pin(ON_PU)),
        ("a first thread waits yet", settling(first(PlanChanged)), TO_PU, Wait(LATER)),
        ("a further thread does not", settling(worker), TO_PU, Pin(ON_PU)),
        ("before the launch nothing has settled", first(PlanChanged), BEFORE_LAUNCH, after_launch),
        ("not even a further thread", worker, BEFORE_LAUNCH, after_launch),
        ("unless programs settle at once", first(PlanChanged), SETTLES_AT_ONCE, Pin(ON_PU)),
        ("an exempt thread without its target says why", forked, LOST, Exempt(JustForked)),
        ("an exempt thread without a place needs no reason", forked, TO_KERNEL, LeaveUnpinned),
        ("without a target", first(PlanChanged), LOST, LeaveUnpinned),
        ("sched_ext: a core instead of a PU", first(PlanChanged), EXT, Pin(ON_CORE)),
        ("sched_ext: no core", first(PlanChanged), EXT_NO_PART, Exempt(ExtScheduler)),
        ("sched_ext prevails over an exemption", forked, EXT_NO_PART, Exempt(ExtScheduler)),
        ("sched_ext: a target of one PU stays one", forked, EXT, Exempt(JustForked)),
        ("sched_ext: a first thread waits", settling(first(Created)), EXT, Wait(LATER)),
    ]);
}

/// The exemption of a thread is kept apart from decisions: a thread without a place is exempt when it gets one.
#[test]
fn exemptions() {
    let rows = [
        (first(PlacementEvent::Created), None),
        (further(PlacementEvent::Created, Runtime::Go, 1), Some(GoMonitor)),
        (exempt(first(PlacementEvent::Storm), JustForked), Some(Storm)),
        (exempt(first(PlacementEvent::Restored), JavaMain), Some(JavaMain)),
        (exempt(orphan(first(PlacementEvent::PlanChanged)), StartsPrograms), Some(StartsPrograms)),
        (exempt(orphan(first(PlacementEvent::Exec)), StartsPrograms), Some(Orphan)),
    ];
    for (facts, then) in rows {
        assert_eq!(exemption(&facts), then, "{facts:?}");
    }
}

/// The PU of a thread that has forked stays reserved, as the thread comes back. That of any other exempt thread does not.
#[test]
fn targets_of_exempt_threads() {
    let rows = [
        (first(PlacementEvent::Forked), TO_PU, false),
        (first(PlacementEvent::ChildExec), TO_PU, true),
        (first(PlacementEvent::ChildExec), TO_CORE, false),
        (first(PlacementEvent::Storm), TO_CORE, true),
        (settling(first(PlacementEvent::Created)), TO_PU, false),
        // The exemption counts, not the decision, which names the scheduler.
        (first(PlacementEvent::MaskReset), EXT_NO_PART, true),
        (first(PlacementEvent::PlanChanged), EXT_NO_PART, false),
    ];
    for (facts, plan, loses) in rows {
        assert_eq!(loses_target(&facts, &plan), loses, "{facts:?} {plan:?}");
    }
}

#[test]
fn places_of_exempt_threads() {
    let kernel = Some(Place::LeftToKernel);
    let rows = [
        (Some(PU), None, Some(PU)),
        (Some(PU), Some(JustForked), Some(PU)),
        (Some(PU), Some(StartsPrograms), kernel),
        (Some(CORE), Some(StartsPrograms), Some(CORE)),
        (Some(Place::Waiting), Some(GoMonitor), Some(Place::Waiting)),
        (None, None, None),
        // It must not take a PU by default placement.
        (None, Some(GoMonitor), kernel),
        (None, Some(JustForked), None),
    ];
    for (place, exempt, then) in rows {
        assert_eq!(planned_place(place, exempt), then, "{place:?} {exempt:?}");
    }
}

#[test]
fn threads_that_plans_may_move() {
    use PlacementStatus::{LeftToKernel, Missed, PinnedByProgram, Placed, Settling, Trouble};
    let status = PlacementStatus::Exempt;
    let movable = [Placed, LeftToKernel, Settling, Trouble("t".into())];
    let exempt = [JustForked, StartsPrograms, ExtScheduler].map(status);
    assert!(movable.iter().chain(&exempt).all(is_movable));
    let exempt = [GoMonitor, JavaMain, Storm, Orphan, MaskReset].map(status);
    assert!(![PinnedByProgram, Missed].iter().chain(&exempt).any(is_movable));
}

#[test]
fn threads_that_forks_exempt() {
    let (placed, bound) = (PlacementStatus::Placed, PlacementStatus::PinnedByProgram);
    assert!(is_exemptible(None, &placed));
    assert!(!is_exemptible(Some(GoMonitor), &placed), "exempt for good");
    assert!(!is_exemptible(None, &bound), "the program's mask stays");
}

/// Forks in a row: 0.2 s, 0.4 s and so on to 10 s; after another 10 s 0.2 s again.
#[test]
fn each_fork_in_a_row_exempts_for_twice_as_long() {
    let mut forked = ForkExemption::default();
    for length in [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000] {
        forked = forked.after_fork(SETTLE, NOW);
        assert_eq!(forked.until, NOW + Nanos::from_millis(length));
    }
    let later = NOW + Nanos::from_secs(20);
    assert_eq!(forked.after_fork(SETTLE, later).until, later + Nanos::from_millis(200));
    let first = ForkExemption::default().after_fork(Nanos::ZERO, NOW);
    assert_eq!(first.until, NOW + Nanos::from_millis(20));
}

#[test]
fn threads_that_are_where_they_are_to_be() {
    use PlacementStatus::{LeftToKernel, Placed, Settling};
    let none = Mark::Original;
    assert!(is_pinned_as_wanted(ON_PU, ON_PU, &Placed));
    assert!(!is_pinned_as_wanted(ON_PU, ON_CORE, &Placed));
    assert!(!is_pinned_as_wanted(ON_PU, ON_PU, &LeftToKernel), "its mask is its creator's");
    assert!(!is_pinned_as_wanted(none, none, &Placed));
    assert!(is_unpinned_as_wanted(none, none, &LeftToKernel, None));
    assert!(!is_unpinned_as_wanted(none, none, &LeftToKernel, Some(Storm)), "it says no reason");
    assert!(is_unpinned_as_wanted(none, none, &PlacementStatus::Exempt(Storm), Some(Storm)));
    assert!(!is_unpinned_as_wanted(none, none, &Settling, None));
    assert!(!is_unpinned_as_wanted(none, ON_PU, &LeftToKernel, None));
}

/// A program has begun with a tenth of its settle time, and does not wait for a PU if it sleeps.
#[test]
fn settling_is_postponed_on_busy_machines() {
    let start = |cpu_time, could_run, postponements| {
        let start = ProgramStart { cpu_time: Nanos(cpu_time), could_run, postponements };
        postponed(&start, SETTLE, NOW)
    };
    let tenth = SETTLE.0 / 10;
    assert_eq!(start(tenth - 1, true, 0), Some(Nanos(NOW.0 + SETTLE.0 / 2)));
    assert_eq!(start(tenth, true, 0), None);
    assert_eq!(start(0, false, 0), None);
    assert!(start(0, true, 19).is_some());
    assert_eq!(start(0, true, 20), None);
}

/// LLVM's OpenMP sets all PUs on its threads as they begin: each is pinned again, once.
#[test]
fn masks_that_programs_reset() {
    let two_seconds = Nanos::from_secs(2);
    assert_eq!(after_reset(Nanos(two_seconds.0 - 1), false), PlacementEvent::Restored);
    assert_eq!(after_reset(Nanos(two_seconds.0 - 1), true), PlacementEvent::MaskReset);
    assert_eq!(after_reset(two_seconds, false), PlacementEvent::MaskReset);
}
