//! Training tested on programs of which the truth is known.

use super::track::{Track, of_interval};
use super::*;
use colocate_machine::described;

fn known(name: &str) -> (Machine, Performance) {
    let (_, text) = described::MACHINES.into_iter().find(|(known, _)| *known == name).unwrap();
    let exact = described::from_toml(text).unwrap();
    (exact.machine, exact.performance.unwrap())
}

const STAMP: Stamp<'_> = Stamp { colocate: "0", date: "2000-01-01", data: "drawn" };
const SHORT: Settings =
    Settings { interval: Nanos::from_millis(5), intervals: 2, groups: 80, seed: 1 };

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
        cycles: vec![vec![0.0, 0.0], vec![100.0, 0.0], vec![100.0, 300.0]],
    };
    let together = Track {
        instructions: vec![0.0, 50.0, 150.0],
        cycles: vec![vec![0.0, 0.0], vec![80.0, 0.0], vec![180.0, 300.0]],
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
        cycles: vec![vec![0.0], vec![1.0]],
    };
    let group = [track(10.0), track(20.0)];
    assert!(of_interval(&[0, 0], &group, &[track(20.0)], 1).is_some());
    assert!(of_interval(&[0, 0], &group, &[track(15.0)], 1).is_none());
    assert!(of_interval(&[0, 0], &group, &[track(20.0)], 2).is_none());
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
    let settings = |seed| Settings { groups: 4, seed, ..SHORT };
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
        kernel: colocate_sim::Kernel::default(),
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
    let refusal = |programs, threads, settings: Settings| {
        groups(programs, threads, &settings).unwrap_err().to_string()
    };
    // With this seed every group begins with a program that is held out.
    assert_eq!(
        refusal(24, 4, Settings { groups: 4, seed: 0, ..SHORT }),
        "expected 4 groups or more of 4 programs none of which is held out, found 0 of 4: draw more groups"
    );
    // 500 · 501 / 2 pairs show two threads each, in a hundred intervals.
    assert_eq!(
        refusal(500, 2, Settings { intervals: 100, ..SHORT }),
        "expected at most 1000000 samples of 2 threads on a core, found 25050000: take fewer programs, \
         groups or intervals"
    );
    let most = Settings { groups: 250_000, intervals: 1, ..SHORT };
    assert_eq!(groups(24, 4, &most).unwrap().all.len(), 250_000);
    let more = Settings { groups: 250_001, ..most };
    assert!(refusal(24, 4, more).contains("found 1000004: "));
}
