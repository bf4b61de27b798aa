//! Training tested on programs of which the truth is known.

use super::*;
use colocate_machine::described;
use colocate_model::symbiosis::Coefficients;

fn known(name: &str) -> (Machine, Performance) {
    let (_, text) = described::MACHINES.into_iter().find(|(known, _)| *known == name).unwrap();
    let exact = described::from_toml(text).unwrap();
    (exact.machine, exact.performance.unwrap())
}

fn known_machine() -> (Machine, Performance) {
    known("power8-10c")
}

const STAMP: ModelMetadata<'_> = ModelMetadata { colocate: "0", date: "2000-01-01", data: "drawn" };
const SHORT: TrainingSettings =
    TrainingSettings { interval: Nanos::from_millis(5), intervals: 2, groups: 80, seed: 1 };

fn trained(name: &str, programs: usize) -> CpiModel {
    let (machine, performance) = known(name);
    let set = TrainingSet::drawn(programs, 1);
    train(&machine, &performance, &set, &SHORT, &STAMP).unwrap()
}

/// Alone 100 instructions take 100 cycles of the first component, then 100 take 300 of the second. Together the
/// interval has instructions 50 to 150 in 400 cycles: alone these took 50 and 150.
#[test]
fn aligned_by_instructions() {
    let alone = Track {
        instructions: vec![0.0, 100.0, 200.0],
        cycles: vec![Some(vec![100.0, 0.0]), Some(vec![0.0, 300.0])],
    };
    let together = Track {
        instructions: vec![0.0, 50.0, 150.0],
        cycles: vec![Some(vec![80.0, 0.0]), Some(vec![100.0, 300.0])],
    };
    let found = of_interval(&[0, 0], &[together.clone(), together], &[alone], 2).unwrap();
    assert_eq!(found[0].own, [0.25, 0.75]);
    assert_eq!(found[0].others, [0.25, 0.75]);
    assert_eq!(found[0].together, [0.5, 1.5]);
}

#[test]
fn beyond_what_was_seen_alone_there_is_nothing() {
    let track = |instructions: f64| Track {
        instructions: vec![0.0, instructions],
        cycles: vec![Some(vec![1.0])],
    };
    let group = [track(10.0), track(20.0)];
    assert!(of_interval(&[0, 0], &group, &[track(20.0)], 1).is_some());
    assert!(of_interval(&[0, 0], &group, &[track(15.0)], 1).is_none());
    assert!(of_interval(&[0, 0], &group, &[track(20.0)], 2).is_none());
}

/// Where cycles went is not known in the second interval; in half of the others it is.
#[test]
fn unknown_cycles_stay_unknown() {
    let alone = Track {
        instructions: vec![0.0, 100.0, 200.0, 300.0],
        cycles: vec![Some(vec![10.0]), None, Some(vec![30.0])],
    };
    assert_eq!(alone.between(50.0, 100.0), Some(vec![5.0]));
    assert_eq!(alone.between(50.0, 101.0), None);
    assert_eq!(alone.between(200.0, 250.0), Some(vec![15.0]));
    assert_eq!(alone.between(250.0, 301.0), None);
    assert_eq!(alone.between(250.0, 250.0), None);
    assert!(alone.is_known_after(2) && !alone.is_known_after(3));
}

/// Programs of one phase each that follow the equation.
struct ByEquation {
    /// By program: instructions per cycle alone, and the share of the first of two components.
    programs: Vec<(f64, f64)>,
    coefficients: [Coefficients; 2],
}

impl TrainingBench for ByEquation {
    fn run(
        &mut self,
        group: &[usize],
        _: usize,
        step: Nanos,
        samples: u32,
    ) -> Result<Vec<Track>, StudyError> {
        let shares = |program: usize| [self.programs[program].1, 1.0 - self.programs[program].1];
        let track = |(place, &program): (usize, &usize)| {
            let others = group.iter().enumerate().filter(|(other, _)| *other != place);
            let others = others.fold([0.0; 2], |sums, (_, &other)| {
                [sums[0] + shares(other)[0], sums[1] + shares(other)[1]]
            });
            let together = [0, 1].map(|at| {
                let (Coefficients { alpha, beta, gamma, delta }, c) =
                    (self.coefficients[at], shares(program)[at]);
                if group.len() == 1 {
                    c
                } else {
                    alpha + beta * c + gamma * others[at] + delta * c * others[at]
                }
            });
            let slowdown: f64 = together.iter().sum();
            let cycles = step.0 as f64;
            let done = cycles * self.programs[program].0 / slowdown;
            Track {
                instructions: (0..=samples).map(|at| done * f64::from(at)).collect(),
                cycles: vec![
                    Some(together.map(|c| cycles * c / slowdown).to_vec());
                    samples as usize
                ],
            }
        };
        Ok(group.iter().enumerate().map(track).collect())
    }
}

/// Of two and of four threads, with samples alone that fall between those together.
#[test]
fn coefficients_are_found_again() {
    let coefficients = |alpha, beta, gamma, delta| Coefficients { alpha, beta, gamma, delta };
    let known = [coefficients(0.01, 1.1, 0.05, 0.3), coefficients(0.0, 0.9, 0.1, 0.8)];
    let programs: Vec<(f64, f64)> =
        (1..9).map(|n| (0.3 * f64::from(n), 0.11 * f64::from(n))).collect();
    let (machine, _) = known_machine();
    let component = |name: &str| Component {
        name: name.to_owned(),
        parts: vec![name.to_owned()],
        memory: false,
    };
    let subject = Subject {
        machine: &machine,
        simulated: false,
        siblings: 4,
        parts: vec!["busy".to_owned(), "stalled".to_owned()],
        components: vec![component("busy"), component("stalled")],
        programs: (0..8).map(|n| format!("program {n}")).collect(),
    };
    let mut bench = ByEquation { programs, coefficients: known };
    let found = train_on(&mut bench, &subject, &SHORT, &STAMP).unwrap();
    assert!(!found.simulated && found.parts == subject.parts);
    assert_eq!(found.modes.iter().map(|mode| mode.threads).collect::<Vec<_>>(), [2, 4]);
    for mode in &found.modes {
        for (found, known) in mode.coefficients.iter().zip(known) {
            let of = |c: Coefficients| [c.alpha, c.beta, c.gamma, c.delta];
            let off = of(*found).into_iter().zip(of(known)).map(|(f, k)| (f - k).abs());
            assert!(off.fold(0.0, f64::max) < 1e-6, "{found:?} for {known:?}");
        }
        assert!(mode.held_out.as_ref().unwrap().slowdown.r2.unwrap() > 0.999_999);
    }
    assert_eq!(CpiModel::from_json(&found.to_json()).unwrap(), found);
    // 8 programs alone and 36 pairs; 8 alone on a core that is split among four, and 80 groups.
    assert_eq!(runs(&subject, &SHORT).unwrap(), 8 + 36 + 8 + 80);
}

/// Counters that say nothing, as those of an emulator.
struct Silent;

impl TrainingBench for Silent {
    fn run(&mut self, _: &[usize], _: usize, _: Nanos, _: u32) -> Result<Vec<Track>, StudyError> {
        Ok(vec![Track { instructions: vec![0.0, 5.0], cycles: vec![None] }])
    }
}

#[test]
fn unknown_stacks_are_refused() {
    let (machine, _) = known_machine();
    let subject = Subject {
        machine: &machine,
        simulated: false,
        siblings: 2,
        parts: Vec::new(),
        components: Vec::new(),
        programs: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
    };
    let error = train_on(&mut Silent, &subject, &SHORT, &STAMP).unwrap_err().to_string();
    assert_eq!(
        error,
        "expected stacks of every program alone after its first interval, found none of a, which ended, did nothing, or was not \
         counted"
    );
}

#[test]
fn repeatable() {
    let found = trained("epyc-7301", 5);
    assert_eq!(found, trained("epyc-7301", 5));
    assert_eq!(found.modes.iter().map(|mode| mode.threads).collect::<Vec<_>>(), [2]);
    assert_eq!(CpiModel::from_json(&found.to_json()).unwrap(), found);
}

/// Siblings cost something, and the equation follows the simulator better than the mean does.
#[test]
fn programs_that_were_held_out_have_errors() {
    let found = trained("power8-10c", 24);
    assert_eq!(found.modes.iter().map(|mode| mode.threads).collect::<Vec<_>>(), [2, 4]);
    for mode in &found.modes {
        let held_out = mode.held_out.as_ref().unwrap();
        assert_eq!(held_out.programs, [3, 7, 11, 15, 19, 23].map(|at| format!("drawn {at}")));
        assert!(mode.samples > 30 && held_out.samples > 30);
        let r2 = |at: usize| held_out.components[at].r2.unwrap_or(1.0);
        assert!((0..5).all(|at| r2(at) > 0.0), "{mode:#?}");
        assert!(r2(2) > 0.5 && r2(3) > 0.5, "caches and memory: {mode:#?}");
        assert!(held_out.slowdown.r2.unwrap() > 0.0, "{mode:#?}");
    }
}

/// Of four programs the last is held out. Of ten pairs six are without it. Three have it beside another and one
/// beside itself, so five threads are its own, with two intervals each.
#[test]
fn only_programs_held_out_are_judged() {
    let found = trained("epyc-7301", 4).modes.remove(0);
    let held_out = found.held_out.unwrap();
    assert_eq!((found.samples, held_out.samples), (6 * 2 * 2, 5 * 2));
}

/// The first seed whose four groups of four can all be fitted to: the one of seven programs that is held out is in
/// none.
#[test]
fn without_held_out_programs_there_are_no_errors() {
    let settings = |seed| TrainingSettings { groups: 4, seed, ..SHORT };
    let seed = (0..).find(|&seed| groups(7, 4, &settings(seed)).is_ok()).unwrap();
    let (machine, performance) = known("power8-10c");
    let set = TrainingSet::drawn(7, 1);
    let found = train(&machine, &performance, &set, &settings(seed), &STAMP).unwrap();
    assert_eq!(found.modes[0].held_out.as_ref().unwrap().programs, ["drawn 3"]);
    assert_eq!(found.modes[1].held_out, None);
}

#[test]
fn a_set_of_scenarios_has_every_course_once() {
    let drawn = TrainingSet::drawn(3, 1);
    let scenario = |programs: &[usize]| colocate_sim::Scenario {
        name: String::new(),
        seed: 0,
        phases: drawn.phases.clone(),
        jobs: programs.iter().map(|&program| drawn.job(program)).collect(),
        method: colocate_sim::Method::Leave,
        quantum: Nanos::from_millis(1),
        grain: Nanos::ZERO,
        horizon: Nanos::from_secs(1),
        usable: None,
        events: Vec::new(),
        kernel: colocate_sim::KernelScheduler::default(),
    };
    let names = |set: &TrainingSet| -> Vec<String> {
        set.programs.iter().map(|program| program.name.clone()).collect()
    };
    let set = TrainingSet::of([&scenario(&[0, 0, 1]), &scenario(&[2, 1])]);
    assert_eq!(names(&set), ["drawn 0", "drawn 1", "drawn 2"]);
    assert_eq!(set.programs[2].course[0].phase.0 as usize, 4);

    // The same in another order, by other names.
    let mut other = scenario(&[2, 1, 0]);
    other.phases.rotate_right(1);
    other.phases.iter_mut().for_each(|spec| spec.phase.name.push('x'));
    for stretch in other.jobs.iter_mut().flat_map(|job| &mut job.threads[0].course) {
        stretch.phase.0 = (stretch.phase.0 + 1) % 6;
    }
    let set = TrainingSet::of([&scenario(&[0, 1, 2]), &other]);
    assert_eq!((names(&set), set.phases.len()), (names(&drawn), 6));
}

#[test]
fn refused_with_a_line() {
    let (machine, performance) = known("xeon-x3320");
    let set = TrainingSet::drawn(4, 1);
    let error = train(&machine, &performance, &set, &SHORT, &STAMP).unwrap_err().to_string();
    assert!(error.starts_with("expected a machine with SMT, found "), "{error}");
    let (machine, performance) = known("epyc-7301");
    let error =
        train(&machine, &performance, &TrainingSet::drawn(3, 1), &SHORT, &STAMP).unwrap_err();
    assert_eq!(error.to_string(), "expected a training set of 4 programs or more, found 3");
}

#[test]
fn groups_are_neither_too_few_nor_too_many() {
    let refusal = |programs, threads, settings: TrainingSettings| {
        groups(programs, threads, &settings).unwrap_err().to_string()
    };
    // With this seed every group begins with a program that is held out.
    assert_eq!(
        refusal(24, 4, TrainingSettings { groups: 4, seed: 0, ..SHORT }),
        "expected 4 groups or more of 4 programs none of which is held out, found 0 of 4: draw more groups"
    );
    // 500 · 501 / 2 pairs show two threads each, in a hundred intervals.
    assert_eq!(
        refusal(500, 2, TrainingSettings { intervals: 100, ..SHORT }),
        "expected at most 1000000 samples of 2 threads on a core, found 25050000: take fewer programs, \
         groups or intervals"
    );
    let most = TrainingSettings { groups: 250_000, intervals: 1, ..SHORT };
    assert_eq!(groups(24, 4, &most).unwrap().all.len(), 250_000);
    let more = TrainingSettings { groups: 250_001, ..most };
    assert!(refusal(24, 4, more).contains("found 1000004: "));
}
