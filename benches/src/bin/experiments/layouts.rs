//! What fast cores bring and moves cost in either layout of the study of asymmetric machines, for docs/results/fedorova.md.

use crate::machine;
use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_policy::PolicySpec;
use colocate_sim::{Moves, Platform};
use colocate_study::replication::Study;
use colocate_study::replication::definition::{Layout, PolicyStudyDefinition, SerialBy, Waiting};
use colocate_study::replication::layout::levelled;
use colocate_study::replication::pace::{DemandKind, Shape, Sizes};
use colocate_study::replication::phased::{self, PhasedSituation};

/// Gain of fast cores in either layout, and cost of moves where they are only said to be fast: half of the time serial, by
/// all threads in turn.
pub fn fast_cores_in_either_layout() {
    let (machine, performance) = machine("amp-4x12");
    let draws = [Assumptions::default()];
    let mut definition = PolicyStudyDefinition::built_in("fedorova").unwrap();
    (definition.length, definition.seeds) = (Nanos::from_millis(400), 1);
    let study = Study {
        definition: &definition,
        machine: &machine,
        performance: &performance,
        draws: &draws,
        seed: 0,
    };
    println!(
        "| layout | phases, ms | fast cores | scheduler | faster than os, % | moves a second, across |"
    );
    println!("|---|---|---|---|---|---|");
    for (layout, levelled) in
        [Layout::Friendly, Layout::Unfriendly].into_iter().flat_map(|of| [(of, false), (of, true)])
    {
        for phase in [5, 10, 20] {
            let parts = 400 / (2 * phase) + 1;
            let length = definition.length;
            let point = PhasedSituation {
                layout,
                levelled,
                shape: Shape { kind: DemandKind::Typical, serial: 0.5, length, parts },
                serial_by: SerialBy::InTurn,
                waiting: Waiting::Sleep,
                programs: 1,
            };
            let os = seconds(&study, &point, "os").0;
            for name in ["parallelism-aware", "parallelism-aware:spare=no"] {
                let (ours, moves, across) = seconds(&study, &point, name);
                let kind = if levelled { "said to be" } else { "are" };
                let faster = (os / ours - 1.0) * 100.0;
                println!(
                    "| {} | {phase} | {kind} | `{name}` | {faster:+.1} | {moves:.0}, {across:.0} |",
                    if layout == Layout::Friendly { "friendly" } else { "unfriendly" }
                );
            }
        }
    }
}

/// Seconds of a situation under a scheduler, the mean of two seeds, and moves a second, also those to another last-level cache.
fn seconds(study: &Study<'_>, point: &PhasedSituation, name: &str) -> (f64, f64, f64) {
    let machine = point.layout.of(study.machine);
    let flat = levelled(study.performance);
    let performance = if point.levelled { &flat } else { study.performance };
    let platform = Platform::new(&machine, performance, study.draws[0]).unwrap();
    let sizes = Sizes::of(&point.shape, &machine, performance, study.draws[0]).unwrap();
    let kind = PolicySpec::named(name);
    let one = |seed| {
        let scenario = phased::scenario(study, point, &sizes, seed);
        let mut scheduler = kind.plain();
        let outcome = phased::under(&platform, point, &scenario, (&mut *scheduler, name)).unwrap();
        let seconds = outcome.slowest().unwrap().as_secs_f64();
        let sum = |of: fn(&Moves) -> u32| {
            outcome.tasks.iter().map(|task| f64::from(of(&task.moves))).sum::<f64>() / seconds
        };
        (seconds, sum(Moves::total), sum(|moves| moves.same_node + moves.other_node))
    };
    let (a, b) = (one(0), one(1));
    ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0, (a.2 + b.2) / 2.0)
}
