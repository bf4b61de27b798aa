//! Properties of predictions under generated input.

use super::super::*;
use super::{demand, machine, near_to, seat};
use crate::curve::MissCurve;
use colocate_machine::Bytes;
use colocate_machine::performance::{Inclusion, PortSet};
use proptest::prelude::*;

/// Miss curves whose misses fall to a share in `kept` while the size grows by a factor in `grown`.
fn any_curve(
    grown: std::ops::Range<f64>,
    kept: std::ops::Range<f64>,
) -> impl Strategy<Value = MissCurve> {
    let steps = prop::collection::vec((kept, grown), 1..8);
    (0.0_f64..0.1, steps).prop_map(|(first, steps)| {
        let mut size = 16_384.0;
        let mut misses = first;
        let mut points = vec![(Bytes(16_384), first)];
        for (kept, grown) in steps {
            size *= grown;
            misses *= kept;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // far below 2^53
            points.push((Bytes(size as u64), misses));
        }
        MissCurve::new(points).expect("a curve")
    })
}

/// Curves without cliffs, as of most programs.
fn smooth() -> BoxedStrategy<MissCurve> {
    any_curve(2.0..4.0, 0.5..1.0).boxed()
}

/// Curves with cliffs: loops over data larger than a cache.
fn steep() -> BoxedStrategy<MissCurve> {
    any_curve(1.001..8.0, 0.0..1.0).boxed()
}

fn any_demand(curve: BoxedStrategy<MissCurve>) -> impl Strategy<Value = Demand> {
    let core = (0.2_f64..1.5, 0.0_f64..1.0, 0.0_f64..1.0, 0.1_f64..2.0, 1.0_f64..1.5);
    let memory = (0.0_f64..1.0, 1.0_f64..10.0, 0.0_f64..1.0, 0.0_f64..0.01);
    (core, curve, memory).prop_map(|(core, misses, memory)| {
        let (slots, one, both, dependent, divided) = core;
        let (stall_cycles, parallel_misses, written_back, shared_lines) = memory;
        Demand {
            slots,
            ports: vec![(PortSet(1), one), (PortSet(3), both)],
            dependent_cycles: dependent,
            dependent_cycles_divided: dependent * divided,
            stall_cycles,
            misses,
            parallel_misses,
            written_back,
            shared_lines,
        }
    })
}

fn any_pages() -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        Just(Vec::new()),
        (0_usize..8).prop_map(|node| (0..8).map(|n| f64::from(u8::from(n == node))).collect()),
        prop::collection::vec(0.0_f64..1.0, 8),
    ]
}

fn any_assumptions() -> impl Strategy<Value = Assumptions> {
    (prop::bool::ANY, -1.0_f64..1.0, 0.0_f64..1.0, 0.8_f64..1.2, 0.8_f64..1.2).prop_map(
        |(slots, width, overlap, bandwidth, latency)| Assumptions {
            fairness: if slots { crate::Fairness::Slots } else { crate::Fairness::Progress },
            width,
            overlap,
            bandwidth,
            latency,
            ..Assumptions::default()
        },
    )
}

#[derive(Clone, Debug)]
struct GeneratedSituation {
    tasks: Vec<(u32, Demand, Vec<f64>, u32)>,
    assumptions: Assumptions,
    inclusion: Inclusion,
}

/// Up to `most` tasks on different PUs of one or two L3 caches, or anywhere.
fn any_situation(most: usize) -> impl Strategy<Value = GeneratedSituation> {
    situation(most, smooth())
}

fn situation(
    most: usize,
    curve: BoxedStrategy<MissCurve>,
) -> impl Strategy<Value = GeneratedSituation> {
    let task = (any_demand(curve), any_pages(), 0_u32..3);
    let pus = (
        Just((0_u32..64).collect::<Vec<_>>()).prop_shuffle(),
        prop::sample::select(vec![4, 8, 64]),
    );
    let inclusions = vec![Inclusion::Exclusive, Inclusion::Inclusive, Inclusion::Neither];
    let tasks = prop::collection::vec(task, 1..=most);
    (tasks, pus, any_assumptions(), prop::sample::select(inclusions)).prop_map(
        |(tasks, (mut pus, among), assumptions, inclusion)| {
            pus.retain(|&pu| pu < among);
            let tasks = pus.into_iter().zip(tasks);
            let tasks = tasks.map(|(pu, (demand, pages, space))| (pu, demand, pages, space));
            GeneratedSituation { tasks: tasks.collect(), assumptions, inclusion }
        },
    )
}

impl GeneratedSituation {
    fn seats(&self) -> Vec<PlacedTask<'_>> {
        let of = self.tasks.iter();
        of.map(|task| PlacedTask {
            pu: PuIdx(task.0),
            demand: &task.1,
            pages: &task.2,
            space: task.3,
        })
        .collect()
    }

    fn with<T>(&self, check: impl FnOnce(&Model<'_>) -> T) -> T {
        let (machine, mut performance) = machine();
        performance.caches[2].inclusion = self.inclusion;
        performance.caches[2].bandwidth = Some(BytesPerSecond(60e9));
        check(&Model::new(&machine, &performance, self.assumptions).expect("a model"))
    }

    fn predict(&self) -> Prediction {
        self.with(|model| model.predict(&self.seats()))
    }
}

/// Tolerance of rates: ten times that of the search.
const EXACT: f64 = 10.0 * NEAR;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_resource_above_capacity(situation in any_situation(20)) {
        let found = situation.predict();
        prop_assert!(found.residual <= NEAR, "{} after {}", found.residual, found.rounds);
        for (what, used) in [
            ("controllers", &found.controllers),
            ("links", &found.links),
            ("caches", &found.caches),
            ("slots", &found.slots),
            ("ports", &found.ports),
        ] {
            for &share in used {
                prop_assert!((0.0..=1.0 + EXACT).contains(&share), "{what}: {used:?}");
            }
        }
        for task in &found.tasks {
            prop_assert!(task.ipc > 0.0 && task.ipc.is_finite());
            prop_assert!(task.misses.windows(2).all(|pair| pair[0] >= pair[1] * (1.0 - EXACT)));
            prop_assert!(task.occupancy.iter().all(|bytes| *bytes >= 0.0));
        }
    }

    /// With cliffs there may be several solutions; the search ends at one of them.
    #[test]
    fn an_end_is_found_with_cliffs(situation in situation(20, steep())) {
        let found = situation.predict();
        prop_assert!(found.residual <= NEAR, "{} after {}", found.residual, found.rounds);
    }

    #[test]
    fn no_cache_holds_more_than_it_has(situation in any_situation(12)) {
        let found = situation.predict();
        situation.with(|model| {
            let mut held = vec![0.0; model.parts.caches.len()];
            for (seat, task) in situation.seats().iter().zip(&found.tasks) {
                let over = &model.parts.places[seat.pu.idx()].caches;
                for (&cache, bytes) in over.iter().zip(&task.occupancy) {
                    held[cache] += bytes;
                }
            }
            for (held, cache) in held.iter().zip(&model.parts.caches) {
                prop_assert!(*held <= cache.capacity * (1.0 + EXACT), "{held} of {}", cache.capacity);
            }
            Ok(())
        })?;
    }

    #[test]
    fn order_of_seats_changes_nothing(situation in any_situation(12)) {
        let mut back = situation.clone();
        back.tasks.reverse();
        let forth = situation.predict().tasks;
        let mut back = back.predict().tasks;
        back.reverse();
        for (a, b) in forth.iter().zip(&back) {
            prop_assert!((a.ipc / b.ipc - 1.0).abs() < EXACT, "{} {}", a.ipc, b.ipc);
        }
    }

    /// One task on every second die shares nothing with the others if all accesses are local.
    #[test]
    fn alone_equals_solo(situation in any_situation(4), with in any_assumptions()) {
        let mut apart = situation;
        apart.assumptions = with;
        for (place, task) in apart.tasks.iter_mut().enumerate() {
            task.0 = u32::try_from(16 * place).expect("few");
            task.2.clear();
            task.3 = u32::try_from(place).expect("few");
        }
        let together = apart.predict();
        for (seat, task) in apart.seats().iter().zip(&together.tasks) {
            let alone = apart.with(|model| model.alone(seat));
            prop_assert!((task.ipc / alone.ipc - 1.0).abs() < EXACT);
        }
    }

    #[test]
    fn more_streams_help_none(
        misses in 0.001_f64..0.1, parallel in 1.0_f64..10.0, count in 1_usize..7, with in any_assumptions(),
    ) {
        let (machine, performance) = machine();
        let model = Model::new(&machine, &performance, with).expect("a model");
        let mut demand = demand(misses);
        demand.parallel_misses = parallel;
        // The eight PUs of the first die; every second is the first of its core.
        let order = [0, 2, 4, 6, 1, 3, 5, 7];
        let seats: Vec<_> = order.iter().map(|&pu| seat(pu, &demand)).collect();
        let before = model.predict(&seats[..count]);
        let after = model.predict(&seats[..=count]);
        for (a, b) in before.tasks.iter().zip(&after.tasks) {
            prop_assert!(b.ipc <= a.ipc * (1.0 + EXACT), "{} {}", a.ipc, b.ipc);
        }
        prop_assert!(after.controllers[0] >= before.controllers[0] * (1.0 - EXACT));
    }

    #[test]
    fn continuity(situation in any_situation(8), which in 0_usize..8) {
        let before = situation.predict();
        let mut more = situation;
        let which = which % more.tasks.len();
        let demand = &mut more.tasks[which].1;
        demand.slots *= 1.0 + 1e-5;
        demand.stall_cycles *= 1.0 + 1e-5;
        demand.parallel_misses *= 1.0 + 1e-5;
        demand.written_back *= 1.0 - 1e-5;
        for (a, b) in before.tasks.iter().zip(&more.predict().tasks) {
            prop_assert!((a.ipc / b.ipc - 1.0).abs() < 3e-3, "{} {}", a.ipc, b.ipc);
        }
    }

    #[test]
    fn warm_equals_cold(before in any_situation(12), after in any_situation(12)) {
        after.with(|model| {
            let mut search = Solver::new(model);
            let _ = search.predict(&before.seats());
            let warm = search.predict_next(&after.seats());
            let cold = model.predict(&after.seats());
            for (a, b) in warm.tasks.iter().zip(&cold.tasks) {
                prop_assert!((a.ipc / b.ipc - 1.0).abs() < EXACT, "{} {}", a.ipc, b.ipc);
            }
            Ok(())
        })?;
    }

    #[test]
    fn history_changes_nothing(before in any_situation(12), after in any_situation(12)) {
        after.with(|model| {
            let mut search = Solver::new(model);
            let _ = search.predict(&before.seats());
            let again = search.predict(&after.seats());
            prop_assert_eq!(again, model.predict(&after.seats()));
            Ok(())
        })?;
    }

    #[test]
    fn stacks_add_up(situation in any_situation(12)) {
        for task in situation.predict().tasks {
            near_to(task.cpi.total() * task.ipc, 1.0, 1e-9);
            let parts = [task.cpi.core, task.cpi.siblings, task.cpi.stalls, task.cpi.caches];
            let more = [task.cpi.memory, task.cpi.queues, task.cpi.communication];
            prop_assert!(parts.iter().chain(&more).all(|part| *part >= -1e-9), "{:?}", task.cpi);
        }
    }
}
