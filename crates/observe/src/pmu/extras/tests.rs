//! Tests of what is counted beside instructions, by hand.

use super::*;
use crate::pmu::cpu::Cpu;
use crate::pmu::plan::{self, grouping};
use crate::pmu::table;
use colocate_machine::Nanos;
use colocate_model::{Backend, Mix, ProfiledProgram};
use expect_test::expect;

const SKX: Cpu = Cpu::Intel { family: 6, model: 85 };

fn skx() -> Option<&'static Family> {
    table::family(SKX, "cpu")
}

fn reading(enabled_ns: u64, running_ns: u64, counts: &[u64]) -> Reading {
    Reading { enabled_ns, running_ns, counts: counts.to_vec() }
}

fn of_roles(roles: &[Extra]) -> EventGroup {
    let roles = roles.iter().map(|&extra| Role::Extra(extra));
    EventGroup::of_roles(&std::iter::once(Role::Instructions).chain(roles).collect::<Vec<_>>())
}

fn profile(processor: Option<&str>, cycles: u64) -> Profile {
    let thread = ThreadProfile {
        order: 0,
        process: 0,
        name: "worker".into(),
        start_ns: Nanos::ZERO,
        end_ns: None,
        cpu_time_ns: None,
        instructions: Some(2_000_000),
        cycles: Some(cycles),
        samples: None,
        mix: Mix { branch: Share::new(0.2), ..Mix::default() },
    };
    Profile {
        version: colocate_model::profile::VERSION,
        backend: Backend::Pmu,
        program: ProfiledProgram { path: "/p".into(), args: vec![], identity: "sha256:0".into() },
        processor: processor.map(str::to_owned),
        started_unix_s: 0,
        watched_ns: Nanos(1),
        complete: true,
        threads: vec![thread],
        notes: vec![],
    }
}

/// 4,000 of 2,000,000 instructions are 0.002 each; a group that counted for a quarter of its time says
/// so, and its figure is not scaled, since its instructions were counted for as long.
#[test]
fn by_instruction() {
    let mut extras = Extras::default();
    let first = of_roles(&[Extra::BranchMisses, Extra::Misses(1)]);
    extras.add(&first, &reading(100, 100, &[2_000_000, 4_000, 50_000]), 100);
    let second = of_roles(&[Extra::Slots]);
    extras.add(&second, &reading(100, 25, &[500_000, 600_000]), 100);
    let all = |figure| Some(PerInstruction { figure, counted: None });
    assert_eq!(extras.get(Extra::BranchMisses), all(0.002));
    assert_eq!(extras.get(Extra::Misses(1)), all(0.025));
    let slots = PerInstruction { figure: 1.2, counted: Share::new(0.25) };
    assert_eq!(extras.get(Extra::Slots), Some(slots));
    assert_eq!(extras.get(Extra::Misses(2)), None);
}

/// A million instructions without one is what a counter looks like that never counts; a few without one
/// may be so. Where no instruction was counted, nothing is known.
#[test]
fn nothing_counted() {
    let group = of_roles(&[Extra::Misses(1)]);
    let of = |instructions| {
        let mut extras = Extras::default();
        extras.add(&group, &reading(1, 1, &[instructions, 0]), 1);
        extras.get(Extra::Misses(1)).map(|one| one.figure)
    };
    assert_eq!((of(1_000_000), of(999), of(0)), (None, Some(0.0), None));
}

/// (3,000 · 0.01 + 1,000 · 0.03) / 4,000 = 0.015; the kinds' caches differ; only one counts slots.
#[test]
fn on_cores_of_several_kinds() {
    let one = |figure: f64, counted: Option<f64>, slots: bool| {
        let per = |figure| PerInstruction { figure, counted: counted.and_then(Share::new) };
        let mut extras = Extras([Some(per(figure)); Extra::ALL.len()]);
        extras.0[Extra::Slots.place()] = slots.then(|| per(1.0));
        extras
    };
    let both =
        Extras::over_kinds(&[(3_000, one(0.01, None, true)), (1_000, one(0.03, Some(0.5), false))]);
    let found = both.get(Extra::BranchMisses).unwrap();
    assert!((found.figure - 0.015).abs() < 1e-15);
    assert_eq!(found.counted, Share::new(0.5));
    assert_eq!((both.get(Extra::Misses(1)), both.get(Extra::Slots)), (None, None));
    assert_eq!(Extras::over_kinds(&[]), Extras::default());
}

fn figures(misses: [Option<f64>; 3]) -> Extras {
    let per = |figure| PerInstruction { figure, counted: None };
    let mut extras = Extras::default();
    for (level, misses) in (1..).zip(misses) {
        extras.0[Extra::Misses(level).place()] = misses.map(per);
    }
    extras
}

const CACHES: [(u8, Bytes); 3] =
    [(1, Bytes::kib(32)), (2, Bytes::kib(1024)), (3, Bytes::kib(32 << 10))];

/// Points at the sizes of the caches, and only if the nearest and the last are among them.
#[test]
fn misses_at_the_sizes_of_the_caches() {
    let points = |misses: [Option<f64>; 3], caches: &[(u8, Bytes)]| {
        curve(&figures(misses), caches).map(|(curve, levels)| (curve.points().to_vec(), levels))
    };
    let (l1, l2, l3) = (32_768.0, 1_048_576.0, 33_554_432.0);
    assert_eq!(
        points([Some(0.02), Some(0.01), Some(0.001)], &CACHES),
        Some((vec![(l1, 0.02), (l2, 0.01), (l3, 0.001)], vec![1, 2, 3]))
    );
    assert_eq!(
        points([Some(0.02), None, Some(0.001)], &CACHES),
        Some((vec![(l1, 0.02), (l3, 0.001)], vec![1, 3]))
    );
    // A larger cache is not taken to miss more.
    assert_eq!(
        points([Some(0.02), Some(0.03), Some(0.001)], &CACHES),
        Some((vec![(l1, 0.02), (l2, 0.02), (l3, 0.001)], vec![1, 2, 3]))
    );
    assert_eq!(points([Some(0.02), Some(0.01), None], &CACHES), None);
    assert_eq!(points([None, Some(0.01), Some(0.001)], &CACHES), None);
    // Two levels, as on a small core: the second is the last.
    let two = points([Some(0.02), Some(0.01), None], &CACHES[..2]);
    assert_eq!(two, Some((vec![(l1, 0.02), (l2, 0.01)], vec![1, 2])));
    assert_eq!(points([Some(0.02), Some(0.01), Some(0.0)], &[]), None);
}

/// All that is known has its event; what is not stays unknown.
#[test]
fn every_component_says_its_source() {
    let plan =
        grouping(&[plan::wanted(skx(), |_| true), wanted(skx(), |_| true)].concat(), |_| true);
    let events = events(plan.groups.iter());
    let mut extras = figures([Some(0.02), Some(0.01), Some(0.001)]);
    extras.0[Extra::BranchMisses.place()] =
        Some(PerInstruction { figure: 0.004, counted: Share::new(0.5) });
    let profile = profile(Some("Xeon"), 3_000_000);
    let phase = phase(&profile.threads[0], &profile, &extras, &events, &CACHES);
    expect![[r#"
        version = 1

        [[phase]]
        name = "worker"
        slots = "unknown"
        dependent-cycles = "unknown"
        dependent-cycles-divided = "unknown"
        stall-cycles = "unknown"
        parallel-misses = "unknown"
        written-back = "unknown"
        shared-lines = "unknown"

        [phase.work]
        source = "instruction mix, profiled by pmu"

        [phase.work.value.classes]
        branch = 0.2

        [phase.branch-misses]
        value = 0.004
        source = "counted: BR_MISP_RETIRED:ALL_BRANCHES over instructions on Xeon, in turns, 50.0 % of the time"

        [phase.misses]
        value = [["32768 B", 0.02], ["1048576 B", 0.01], ["33554432 B", 0.001]]
        source = "counted: L1D:REPLACEMENT over instructions on Xeon; counted: L2_LINES_IN:ALL over instructions on Xeon; counted: LONGEST_LAT_CACHE:MISS over instructions on Xeon"

        [phase.cycles]
        source = "cycles over instructions, profiled by pmu"

        [phase.cycles.value]
        processor = "Xeon"
        cycles = 1.5
    "#]]
    .assert_eq(&colocate_model::phase::PhaseFile::new(vec![phase]).to_toml());
}

/// Cycles that were counted on a processor without a name could be taken for any.
#[test]
fn without_a_name_of_the_processor() {
    let profile = profile(None, 3_000_000);
    let none = Extras::default();
    let phase = phase(&profile.threads[0], &profile, &none, &ExtraEvents::default(), &CACHES);
    assert_eq!((phase.cycles, phase.misses), (Known::Unknown, Known::Unknown));
}

/// Beside the classes there are two groups more; a processor that is not known has its mispredicted
/// branches counted, and one whose kernel lists no such event nothing.
#[test]
fn groups_of_extras() {
    let all = [plan::wanted(skx(), |_| true), wanted(skx(), |_| true)].concat();
    let raw = |e: &&PmuEvent| matches!(e.source, EventKind::Raw(_));
    let plan = grouping(&all, |events| events.iter().filter(raw).count() <= 4);
    let sizes: Vec<usize> = plan.groups.iter().map(|group| group.events.len()).collect();
    assert_eq!((sizes, plan.refused), (vec![6, 5, 2], vec![]));
    let generic = wanted(None, |_| true);
    assert_eq!(generic[0][0].source, EventKind::Generic(5));
    let n1 = table::family(Cpu::Arm { implementer: 0x41, part: 0xd0c }, "armv8_pmuv3_0");
    assert_eq!(wanted(n1, |code| code.config > 0x3f), Vec::<Bundle>::new());
}
