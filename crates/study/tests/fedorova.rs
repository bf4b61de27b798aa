//! The study of asymmetric machines against arithmetic.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use colocate_machine::{Machine, Nanos, Performance, PuIdx, described};
use colocate_model::Assumptions;
use colocate_policy::schedule::{Allocated, Choice, Quantum, Scheduler, Selected};
use colocate_sim::Platform;
use colocate_study::fedorova::layout::{Layout, all_slow};
use colocate_study::fedorova::points::{Point, Question, SerialBy, Waiting};
use colocate_study::fedorova::program::{Kind, Pace, Shape, Sizes};
use colocate_study::fedorova::{MACHINE, Study, run};

fn machine() -> (Machine, Performance) {
    let text = described::MACHINES.iter().find(|(name, _)| *name == MACHINE).unwrap().1;
    (described::from_toml(text).unwrap().machine, described::performance(text).unwrap().unwrap())
}

/// Every thread on the core of its number, all the time.
#[derive(Debug)]
struct InPlace;

impl Scheduler for InPlace {
    fn choose(&mut self, now: &Quantum<'_>) -> Vec<Choice> {
        let one = |job: &colocate_policy::schedule::Queued| Choice {
            job: job.job,
            selected: Selected::Room,
            places: job
                .threads
                .iter()
                .map(|thread| (Some(PuIdx(thread.id.order)), Allocated::Next))
                .collect(),
        };
        now.queue.iter().map(one).collect()
    }
}

fn point(serial: f64, waiting: Waiting) -> Point {
    Point {
        question: Question::Shares,
        layout: Layout::Friendly,
        shape: Shape { kind: Kind::Typical, serial, length: Nanos::from_millis(400), parts: 4 },
        serial_by: SerialBy::First,
        waiting,
        levelled: false,
    }
}

/// Seconds of a program in place on a machine.
fn in_place(point: &Point, machine: &Machine, performance: &Performance, sizes: &Sizes) -> f64 {
    let draws = [Assumptions::default()];
    let study = Study {
        machine,
        performance,
        draws: &draws,
        seeds: 1,
        seed: 0,
        length: point.shape.length,
        round: point.shape.length,
        quantum: Nanos::from_millis(1),
    };
    let platform = Platform::new(machine, performance, draws[0]).unwrap();
    let scenario = run::scenario(&study, point, sizes, 0);
    let outcome = run::under(&platform, point, &scenario, (&mut InPlace, "in place")).unwrap();
    outcome.slowest().filter(|_| outcome.complete).unwrap().as_secs_f64()
}

/// Thread 0, which does the serial parts, is on core 0, a fast one; nothing moves but in the first quantum. What threads do
/// that wait changes nothing, for nobody shares a core.
#[test]
fn oracle_is_what_is_simulated() {
    let (machine, performance) = machine();
    let usual = Assumptions::default();
    for serial in [0.0, 0.3, 0.9] {
        for waiting in Waiting::ALL {
            let point = point(serial, waiting);
            let sizes = Sizes::of(&point.shape, &machine, &performance, usual).unwrap();
            let oracle =
                sizes.oracle(&Pace::new(&machine, &performance, usual, Kind::Typical).unwrap());
            let simulated = in_place(&point, &machine, &performance, &sizes);
            assert!(
                (simulated / oracle - 1.0).abs() < 0.02,
                "{serial} {waiting:?}: {simulated} s, oracle {oracle} s"
            );
        }
    }
}

/// On slow cores the program takes as long as it is said to be, whatever is serial of it, whoever does it.
#[test]
fn share_is_of_the_time_on_slow_cores() {
    let (machine, performance) = machine();
    let slow = all_slow(&machine);
    let by = [SerialBy::First, SerialBy::InTurn];
    let all = [0.0, 0.5, 0.9].map(|serial| by.map(|by| (serial, by)));
    for (serial, serial_by) in all.into_iter().flatten() {
        let point = Point { serial_by, ..point(serial, Waiting::Sleep) };
        let usual = Assumptions::default();
        let sizes = Sizes::of(&point.shape, &machine, &performance, usual).unwrap();
        let simulated = in_place(&point, &slow, &performance, &sizes);
        assert!((simulated / 0.4 - 1.0).abs() < 0.01, "{serial} {serial_by:?}: {simulated} s");
    }
}
