//! The study of asymmetric machines against arithmetic.

use crate::kept::Kept;
use crate::machine;
use colocate_evidence::SourceSet;
use colocate_machine::{Machine, Nanos, Performance, PuIdx};
use colocate_model::Assumptions;
use colocate_policy::schedule::{Allocated, Selected, SelectedJob};
use colocate_policy::{Evidence, Plan, Policy, PolicySpec};
use colocate_sim::Platform;
use colocate_study::replication::Study;
use colocate_study::replication::definition::{Layout, PolicyStudyDefinition, SerialBy, Waiting};
use colocate_study::replication::layout::all_slow;
use colocate_study::replication::pace::{self, DemandKind, ProgramSpeed, Shape, Sizes};
use colocate_study::replication::phased::{self, PhasedSituation};

const MACHINE: &str = "amp-4x12";

/// Every thread on the core of its number, all the time.
#[derive(Debug)]
struct InPlace;

impl Policy for InPlace {
    fn needs(&self) -> SourceSet {
        SourceSet::NONE
    }

    fn decide(&mut self, evidence: &Evidence<'_>) -> Plan {
        let one = |job: &colocate_policy::schedule::QueuedJob| SelectedJob {
            job: job.job,
            selected: Selected::Room,
            places: job
                .threads
                .iter()
                .map(|thread| (Some(PuIdx(thread.id.order)), Allocated::Next))
                .collect(),
        };
        evidence.plan(&evidence.now.queue.iter().map(one).collect::<Vec<_>>())
    }
}

fn definition() -> PolicyStudyDefinition {
    let mut definition = PolicyStudyDefinition::built_in("fedorova").unwrap();
    (definition.length, definition.seeds) = (Nanos::from_millis(400), 1);
    definition
}

fn study<'a>(
    definition: &'a PolicyStudyDefinition,
    (machine, performance): (&'a Machine, &'a Performance),
    draws: &'a [Assumptions],
) -> Study<'a> {
    Study { definition, machine, performance, draws, seed: 0 }
}

fn point(serial: f64, waiting: Waiting) -> PhasedSituation {
    PhasedSituation {
        layout: Layout::Friendly,
        shape: Shape {
            kind: DemandKind::Typical,
            serial,
            length: Nanos::from_millis(400),
            parts: 4,
        },
        serial_by: SerialBy::First,
        waiting,
        levelled: false,
        programs: 1,
    }
}

/// Seconds of a program in place on a machine.
fn in_place(
    point: &PhasedSituation,
    machine: &Machine,
    performance: &Performance,
    sizes: &Sizes,
) -> f64 {
    let draws = [Assumptions::default()];
    let definition = definition();
    let study = study(&definition, (machine, performance), &draws);
    let platform = Platform::new(machine, performance, draws[0]).unwrap();
    let scenario = phased::scenario(&study, point, sizes, 0);
    let outcome = phased::under(&platform, point, &scenario, (&mut InPlace, "in place")).unwrap();
    outcome.slowest().filter(|_| outcome.complete).unwrap().as_secs_f64()
}

/// Thread 0, which does the serial parts, is on core 0, a fast one; nothing moves but in the first quantum. What waiting threads do
/// has no effect, as no two share a core.
#[test]
fn oracle_is_what_is_simulated() {
    let (machine, performance) = machine(MACHINE);
    let usual = Assumptions::default();
    for serial in [0.0, 0.3, 0.9] {
        for waiting in [Waiting::Sleep, Waiting::Spin, Waiting::SpinUnknown] {
            let point = point(serial, waiting);
            let sizes = Sizes::of(&point.shape, &machine, &performance, usual).unwrap();
            let oracle = sizes.oracle(
                &ProgramSpeed::new(&machine, &performance, usual, DemandKind::Typical).unwrap(),
            );
            let simulated = in_place(&point, &machine, &performance, &sizes);
            assert!(
                (simulated / oracle - 1.0).abs() < 0.02,
                "{serial} {waiting:?}: {simulated} s, oracle {oracle} s"
            );
        }
    }
}

/// On slow cores the program takes as long as it is said to be, whatever is serial of it, and whichever thread does it.
#[test]
fn share_is_of_the_time_on_slow_cores() {
    let (machine, performance) = machine(MACHINE);
    let slow = all_slow(&machine);
    let by = [SerialBy::First, SerialBy::InTurn];
    let all = [0.0, 0.5, 0.9].map(|serial| by.map(|by| (serial, by)));
    for (serial, serial_by) in all.into_iter().flatten() {
        let point = PhasedSituation { serial_by, ..point(serial, Waiting::Sleep) };
        let usual = Assumptions::default();
        let sizes = Sizes::of(&point.shape, &machine, &performance, usual).unwrap();
        let simulated = in_place(&point, &slow, &performance, &sizes);
        assert!((simulated / 0.4 - 1.0).abs() < 0.01, "{serial} {serial_by:?}: {simulated} s");
    }
}

/// Four programs with four threads each share the slow cores, and each takes as long as it is said to alone: the kernel
/// has a core for every thread.
#[test]
fn several_programs_share_the_cores() {
    let (machine, performance) = machine(MACHINE);
    let slow = all_slow(&machine);
    let draws = [Assumptions::default()];
    let serial_by = SerialBy::InTurn;
    let point = PhasedSituation { programs: 4, serial_by, ..point(0.5, Waiting::Sleep) };
    let definition = definition();
    let study = study(&definition, (&slow, &performance), &draws);
    let sizes = Sizes::of(&point.shape, &machine, &performance, draws[0]).unwrap();
    let scenario = phased::scenario(&study, &point, &sizes, 0);
    assert_eq!(scenario.jobs.iter().map(|job| job.threads.len()).collect::<Vec<_>>(), [4; 4]);
    let platform = Platform::new(&slow, &performance, draws[0]).unwrap();
    let mut os = PolicySpec::named("os").plain();
    let outcome = phased::under(&platform, &point, &scenario, (&mut *os, "os")).unwrap();
    for job in &outcome.jobs {
        let took = job.took().unwrap().as_secs_f64();
        assert!((took / 0.4 - 1.0).abs() < 0.03, "{}: {took} s", job.name);
    }
    let launched: Vec<Option<Nanos>> = outcome.jobs.iter().map(|job| job.launched).collect();
    assert_eq!(launched, [0, 31_250_000, 62_500_000, 93_750_000].map(|at| Some(Nanos(at))));
}

/// Of 2, 4 and 8 programs in rounds of 125 ms each begins in a part of the first round of its own, all threads at once.
#[test]
fn programs_begin_in_different_parts_of_a_round() {
    let (machine, performance) = machine(MACHINE);
    let draws = [Assumptions::default()];
    let definition = definition();
    let study = study(&definition, (&machine, &performance), &draws);
    for programs in [2, 4, 8] {
        let point = PhasedSituation { programs, ..point(0.5, Waiting::Sleep) };
        let sizes = Sizes::of(&point.shape, &machine, &performance, draws[0]).unwrap();
        let scenario = phased::scenario(&study, &point, &sizes, 0);
        for (place, job) in (0..).zip(&scenario.jobs) {
            let begin = Nanos(125_000_000 * place / u64::from(programs));
            let created = job.threads.iter().map(|thread| job.arrives + thread.born);
            assert_eq!(created.collect::<Vec<_>>(), vec![begin; 16 / programs as usize]);
        }
    }
}

/// The page's table of recorded programs is that which is kept.
#[test]
fn the_page_has_the_applications_that_are_kept() {
    const PAGE: &str = include_str!("../../../../docs/results/fedorova.md");
    let kept = Kept::of(include_str!("../../../../studies/fedorova.csv"));
    let percent = |part: &str, cell: &str, policy: &str| {
        let ratios = kept.get([part, cell, "time", "os"], policy).unwrap();
        let [value, low, high] = ratios.map(|ratio| format!("{:+.1}", (ratio - 1.0) * 100.0));
        format!("{value} ({low} to {high})").replace('-', "−")
    };
    let (all, aware, plain) = ("all-fast-first", "parallelism-aware", "parallelism-aware:spare=no");
    let programs: Vec<&str> = pace::recorded().iter().map(|phase| &*phase.name).collect();
    assert_eq!(programs.len(), 9);
    for program in programs {
        let gains = [all, plain, aware, "oracle"].map(|it| percent("applications", program, it));
        let cell = |layout: &str| format!("{layout}; {program}");
        let costs = [("friendly", plain), ("unfriendly", plain), ("unfriendly", aware)];
        let costs = costs.map(|(layout, policy)| percent("overheads", &cell(layout), policy));
        let row = format!("| {program} | {} | {} |", gains.join(" | "), costs.join(" | "));
        assert!(PAGE.contains(&row), "{row}");
    }
}
