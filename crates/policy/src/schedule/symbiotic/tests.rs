//! Symbiotic scheduling by hand, and its properties under generated input.

use super::*;
use crate::rng::SplitMix64;
use crate::schedule::QueuedJob;
use crate::schedule::testing::{chosen, queue};
use crate::testing::machine;
use crate::{Evidence, Knowledge, PolicySpec};
use colocate_machine::Machine;
use colocate_model::stack::StackParts;
use colocate_model::symbiosis::{Coefficients, Component, Conditioning, TrainedMode, normalised};
use proptest::prelude::*;

/// The parts of the stacks that are shown here.
const PARTS: StackParts = &["core", "memory", "other"];

/// Three components, each a part of its own; drawn coefficients of weak coupling for two and four
/// threads.
pub(in crate::schedule) fn model(rng: &mut SplitMix64) -> CpiModel {
    let mut trained = |threads: u32| {
        let mut one = || Coefficients {
            alpha: 0.03 * rng.unit(),
            beta: 0.8 + 0.4 * rng.unit(),
            gamma: 0.25 * rng.unit(),
            delta: 0.8 * rng.unit(),
        };
        let coefficients: Vec<Coefficients> = (0..3).map(|_| one()).collect();
        let conditioning =
            Conditioning { coupling: 0.3, stack_error: 0.0, slowdown_error: 0.0, unique: true };
        TrainedMode { threads, samples: 4, coefficients, held_out: None, conditioning }
    };
    let component = |name: &str| Component {
        name: name.to_owned(),
        parts: vec![name.to_owned()],
        memory: name == "memory",
    };
    CpiModel {
        version: colocate_model::symbiosis::file::VERSION,
        simulated: true,
        colocate: String::new(),
        machine: String::new(),
        processor: None,
        date: "2000-01-01".to_owned(),
        data: String::new(),
        parts: PARTS.iter().map(|part| (*part).to_owned()).collect(),
        components: PARTS.iter().map(|part| component(part)).collect(),
        modes: vec![trained(2), trained(4)],
    }
}

pub(in crate::schedule) fn stacks(rng: &mut SplitMix64, count: usize) -> Vec<Vec<f64>> {
    let mut stack = |_| {
        let parts: Vec<f64> = (0..3).map(|_| -(1.0 - rng.unit()).ln()).collect();
        normalised(&parts).unwrap()
    };
    (0..count).map(&mut stack).collect()
}

/// A scheduler that knows the stacks alone of as many jobs.
pub(in crate::schedule) fn knowing(scheduler: Symbiotic, stacks: &[Vec<f64>]) -> Symbiotic {
    let mut scheduler = scheduler;
    for (job, stack) in queue(&vec![0.0; stacks.len()]).iter().zip(stacks) {
        scheduler.table.note(job.threads[0].id, stack);
    }
    scheduler
}

fn eager(gain: f64) -> SymbioticSettings {
    SymbioticSettings { gain, ..SymbioticSettings::USUAL }
}

/// Jobs on each core.
pub(in crate::schedule) fn on_core(machine: &Machine, choices: &[SelectedJob]) -> Vec<Vec<usize>> {
    let mut groups = vec![Vec::new(); machine.cores.len()];
    for (job, pu) in chosen(choices) {
        groups[machine.core_of(PuIdx(pu)).idx()].push(job as usize);
    }
    groups.iter_mut().for_each(|group| group.sort_unstable());
    groups
}

/// What all groups cost, from the equation alone.
fn cost(model: &CpiModel, fullest: usize, stacks: &[Vec<f64>], groups: &[Vec<usize>]) -> f64 {
    let mode = model.mode(fullest);
    let group = |group: &Vec<usize>| -> f64 {
        let members: Vec<&[f64]> = group.iter().map(|&at| &stacks[at][..]).collect();
        mode.slowdowns(&members).into_iter().map(|s| Objective::Stp.cost(s)).sum()
    };
    groups.iter().map(group).sum()
}

/// The least cost of all pairings.
fn brute(model: &CpiModel, stacks: &[Vec<f64>], left: &[usize]) -> f64 {
    let Some((&first, rest)) = left.split_first() else { return 0.0 };
    let mut least = f64::INFINITY;
    for at in 0..rest.len() {
        let mut others = rest.to_vec();
        let pair = vec![first, others.remove(at)];
        let these = cost(model, 2, stacks, &[pair]);
        least = least.min(these + brute(model, stacks, &others));
    }
    least
}

fn quantum<'a>(machine: &'a Machine, pus: &'a [PuIdx], queue: &'a [QueuedJob]) -> Quantum<'a> {
    Quantum { number: 0, machine, pus, queue }
}

fn all(machine: &Machine) -> Vec<PuIdx> {
    machine.all_pus().collect()
}

/// The thread has shown shares of its cycles.
fn show(thread: &mut Thread, shares: Vec<f64>) {
    let ran = thread.ran.as_mut().unwrap();
    (ran.stack, ran.parts) = (Some(shares), PARTS);
}

/// All have run where they were put, and show what the equation says.
fn ran(
    machine: &Machine,
    model: &CpiModel,
    stacks: &[Vec<f64>],
    choices: &[SelectedJob],
    queue: &mut [QueuedJob],
) {
    let groups = on_core(machine, choices);
    let fullest = groups.iter().map(Vec::len).max().unwrap_or(0);
    for (job, pu) in chosen(choices) {
        let group = groups.iter().find(|group| group.contains(&(job as usize))).unwrap();
        let members: Vec<&[f64]> = group.iter().map(|&at| &stacks[at][..]).collect();
        let place = group.iter().position(|&at| at == job as usize).unwrap();
        let together = match members.len() {
            1 => members[0].to_vec(),
            _ => model.mode(fullest).together(&members).swap_remove(place),
        };
        let thread = &mut queue.iter_mut().find(|queued| queued.job.0 == job).unwrap().threads[0];
        thread.pu = Some(PuIdx(pu));
        show(thread, normalised(&together).unwrap());
    }
    queue.iter_mut().for_each(|job| job.just_ran = true);
}

#[test]
fn learns_what_they_are_alone() {
    for (spec, count) in [("core:4 pu:2", 8), ("core:2 pu:4", 8), ("core:4 pu:2", 3)] {
        let machine = machine(spec);
        let mut rng = SplitMix64::new(5);
        let (model, truth) = (model(&mut rng), stacks(&mut rng, count));
        let settings = SymbioticSettings { weight: 1.0, gain: 0.0, ..SymbioticSettings::USUAL };
        let mut scheduler = Symbiotic::new(model.clone(), settings);
        let (pus, mut queue) = (all(&machine), queue(&vec![0.0; count]));
        for _ in 0..3 {
            let choices = scheduler.choose(&quantum(&machine, &pus, &queue));
            ran(&machine, &model, &truth, &choices, &mut queue);
        }
        scheduler.choose(&quantum(&machine, &pus, &queue));
        let threads: Vec<&Thread> = queue.iter().flat_map(|job| &job.threads).collect();
        assert_eq!(scheduler.table.known(), count);
        let mean = scheduler.table.mean();
        let found = scheduler.table.stacks(&mean, &threads);
        for (found, truth) in found.concat().iter().zip(truth.concat()) {
            assert!((found - truth).abs() < 1e-5, "{spec}: {found} where {truth} is");
        }
    }
}

/// Two that wait for memory and two that compute; memory beside memory is dear. First in order,
/// then apart.
#[test]
fn parts_threads_that_disturb_each_other() {
    let machine = machine("core:2 pu:2");
    let mut model = model(&mut SplitMix64::new(1));
    let memory = Coefficients { delta: 1.0, ..Coefficients::UNCHANGED };
    for mode in &mut model.modes {
        mode.coefficients = vec![Coefficients::UNCHANGED, memory, Coefficients::UNCHANGED];
    }
    let (streams, computes) = (vec![0.1, 0.9, 0.0], vec![0.9, 0.1, 0.0]);
    let truth = [streams.clone(), streams, computes.clone(), computes];
    let (pus, mut queue) = (all(&machine), queue(&[0.0; 4]));
    for (job, pu) in queue.iter_mut().zip(&pus) {
        job.threads[0].pu = Some(*pu);
    }
    let mut scheduler = Symbiotic::new(model.clone(), SymbioticSettings::USUAL);
    let first = scheduler.choose(&quantum(&machine, &pus, &queue));
    assert_eq!(on_core(&machine, &first), [[0, 1], [2, 3]]);
    ran(&machine, &model, &truth, &first, &mut queue);
    let second = scheduler.choose(&quantum(&machine, &pus, &queue));
    let groups = on_core(&machine, &second);
    assert!(groups.iter().all(|group| group[0] < 2 && group[1] >= 2), "{groups:?}");
    // 0.1 + 0.9 + 0.9 · 0.1 = 1.09.
    let Allocated::Symbiosis { slowdown } = second[0].places[0].1 else { panic!("{second:?}") };
    assert!((slowdown - 1.09).abs() < 1e-5, "{slowdown}");
    assert_eq!(
        scheduler.state(),
        "4 threads' stacks known, groups changed 1 times and stayed 1 times"
    );
}

#[test]
fn stays() {
    let machine = machine("core:4 pu:2");
    let mut rng = SplitMix64::new(3);
    let (model, truth) = (model(&mut rng), stacks(&mut rng, 8));
    let mut scheduler = Symbiotic::new(model.clone(), SymbioticSettings::USUAL);
    let (pus, mut queue) = (all(&machine), queue(&[0.0; 8]));
    let mut last = Vec::new();
    for turn in 0..8 {
        let choices = scheduler.choose(&quantum(&machine, &pus, &queue));
        let places = chosen(&choices);
        assert!(turn < 4 || places == last, "still moving in turn {turn}");
        last = places;
        ran(&machine, &model, &truth, &choices, &mut queue);
    }
}

/// Ten threads on four cores of four, the last two of them on the first core: of groups of three
/// nothing is proved.
#[test]
fn two_of_many_on_the_first_core() {
    let machine = machine("core:4 pu:4");
    let mut rng = SplitMix64::new(3);
    let (model, stacks) = (model(&mut rng), stacks(&mut rng, 10));
    let (pus, mut queue) = (all(&machine), queue(&[0.0; 10]));
    for (job, pu) in queue.iter_mut().zip([4, 5, 6, 8, 9, 10, 12, 13, 0, 1]) {
        job.threads[0].pu = Some(PuIdx(pu));
    }
    let mut scheduler = knowing(Symbiotic::new(model, SymbioticSettings::USUAL), &stacks);
    assert_eq!(scheduler.choose(&quantum(&machine, &pus, &queue)).len(), 10);
}

#[test]
fn without_stacks_all_stay() {
    let machine = machine("core:2 pu:2");
    let (pus, mut queue) = (all(&machine), queue(&[0.0; 4]));
    for (job, pu) in queue.iter_mut().zip([3, 1, 0, 2]) {
        job.threads[0].pu = Some(PuIdx(pu));
    }
    let mut scheduler = Symbiotic::new(model(&mut SplitMix64::new(1)), SymbioticSettings::USUAL);
    let found = chosen(&scheduler.choose(&quantum(&machine, &pus, &queue)));
    assert_eq!(found, [(0, 3), (1, 1), (2, 0), (3, 2)]);
    assert!(scheduler.state().starts_with("0 threads' stacks known, groups changed 0 times"));
}

#[test]
fn stacks_of_another_host_are_ignored() {
    let machine = machine("core:2 pu:2");
    let parts: [(StackParts, usize); 4] = [
        (&["core", "memory"], 0),
        // As many, but others, and the same in another order.
        (&["core", "memory", "caches"], 0),
        (&["memory", "core", "other"], 0),
        (PARTS, 4),
    ];
    for (parts, known) in parts {
        let (pus, mut queue) = (all(&machine), queue(&[0.0; 4]));
        let mut scheduler =
            Symbiotic::new(model(&mut SplitMix64::new(1)), SymbioticSettings::USUAL);
        for _ in 0..3 {
            let choices = scheduler.choose(&quantum(&machine, &pus, &queue));
            for (job, (_, pu)) in queue.iter_mut().zip(chosen(&choices)) {
                job.just_ran = true;
                job.threads[0].pu = Some(PuIdx(pu));
                let ran = job.threads[0].ran.as_mut().unwrap();
                let shares = parts.iter().map(|_| 1.0 / parts.len() as f64).collect();
                (ran.stack, ran.parts) = (Some(shares), parts);
            }
        }
        assert_eq!(scheduler.table.known(), known, "{parts:?}");
    }
}

#[test]
fn the_head_runs_and_a_wide_job_alone() {
    let machine = machine("core:2 pu:2");
    let (pus, mut queue) = (all(&machine), queue(&[0.0; 7]));
    let mut scheduler = Symbiotic::new(model(&mut SplitMix64::new(1)), SymbioticSettings::USUAL);
    let jobs: Vec<u32> = scheduler
        .choose(&quantum(&machine, &pus, &queue))
        .iter()
        .map(|choice| choice.job.0)
        .collect();
    assert_eq!(jobs, [0, 1, 2, 3]);
    let thread = queue[0].threads[0].clone();
    queue[0].threads = vec![thread; 9];
    let choices = scheduler.choose(&quantum(&machine, &pus, &queue));
    assert_eq!((choices.len(), choices[0].places.len()), (1, 9));
}

/// Seven ran on four cores of two, of which one sibling is offline, and those on the last two cores
/// have ended. Each that is left has a core each.
#[test]
fn no_core_is_shared_while_another_is_empty() {
    let machine = machine("core:4 pu:2");
    let pus: Vec<PuIdx> = all(&machine).into_iter().filter(|pu| pu.0 != 7).collect();
    for count in [2, 4] {
        let mut queue = queue(&vec![0.0; count]);
        for (job, pu) in queue.iter_mut().zip([0, 1, 2, 3]) {
            job.threads[0].pu = Some(PuIdx(pu));
        }
        let model = model(&mut SplitMix64::new(1));
        let mut scheduler = Symbiotic::new(model, SymbioticSettings::USUAL);
        let choices = scheduler.choose(&quantum(&machine, &pus, &queue));
        let groups = on_core(&machine, &choices);
        assert!(groups.iter().all(|group| group.len() <= 1), "{groups:?}");
    }
}

/// It has the stack that it had beside another one, and sleeps through a quantum in which it has a
/// core alone: that is not its stack alone, and it needs no core of its own now. When it has run,
/// what it shows then is.
#[test]
fn asleep_shows_no_stack() {
    let machine = machine("core:2 pu:2");
    let (pus, mut queue) = (all(&machine), queue(&[0.0; 1]));
    let mut scheduler = Symbiotic::new(strongly_coupled(), SymbioticSettings::USUAL);
    let mut known = |runnable: f64, stack: [f64; 3]| {
        queue[0].just_ran = true;
        queue[0].threads[0].runnable = Some(runnable);
        show(&mut queue[0].threads[0], stack.to_vec());
        scheduler.choose(&quantum(&machine, &pus, &queue));
        let thread = &queue[0].threads[0];
        let (age, shows) = (scheduler.table.sample_age(thread.id), scheduler.table.shows(thread));
        (scheduler.table.known(), age, shows)
    };
    let (beside, alone) = ([0.2, 0.6, 0.2], [0.6, 0.2, 0.2]);
    assert_eq!(known(1.0, beside), (0, None, true), "where it was before is unknown");
    assert_eq!(known(0.0, beside), (0, None, false));
    assert_eq!(known(1.0, alone), (1, Some(0), true));
}

/// Coefficients with which it is unknown whose cycles they are.
fn strongly_coupled() -> CpiModel {
    let mut model = model(&mut SplitMix64::new(1));
    for mode in &mut model.modes {
        let c = Coefficients { alpha: 0.0, beta: 0.8, gamma: 0.8, delta: 0.5 };
        mode.coefficients = vec![c; 3];
        mode.conditioning.unique = false;
    }
    model
}

/// As many quanta of eight jobs on four cores of two; the scheduler after them, and what was
/// chosen.
fn quanta(
    model: &CpiModel,
    truth: &[Vec<f64>],
    count: usize,
) -> (Symbiotic, Vec<Vec<SelectedJob>>) {
    let machine = machine("core:4 pu:2");
    let settings = SymbioticSettings { weight: 1.0, ..SymbioticSettings::USUAL };
    let mut scheduler = Symbiotic::new(model.clone(), settings);
    let (pus, mut queue) = (all(&machine), queue(&[0.0; 8]));
    let mut quantum = || {
        let now = Quantum { number: 0, machine: &machine, pus: &pus, queue: &queue };
        let choices = scheduler.choose(&now);
        ran(&machine, model, truth, &choices, &mut queue);
        let waits = |job: &QueuedJob| choices.iter().all(|choice| choice.job != job.job);
        queue.iter_mut().for_each(|job| job.just_ran = !waits(job));
        queue.sort_by_key(|job| job.just_ran);
        choices
    };
    let choices = (0..count).map(|_| quantum()).collect();
    (scheduler, choices)
}

#[test]
fn solo_shows_what_stacks_together_do_not() {
    let truth = stacks(&mut SplitMix64::new(8), 8);
    let (scheduler, choices) = quanta(&strongly_coupled(), &truth, 80);
    assert_eq!(scheduler.table.known(), 8);
    for (job, truth) in (0..8).zip(&truth) {
        let id = colocate_evidence::TaskId { job: colocate_evidence::JobIdx(job), order: 0 };
        let thread = Thread { id, ran: None, pu: None, runnable: None, bound: false };
        let found = scheduler.table.stacks(&[], &[&thread])[0].to_vec();
        assert!(found.iter().zip(truth).all(|(found, truth)| (found - truth).abs() < 1e-12));
    }
    let own = |choice: &SelectedJob| choice.places[0].1 == Allocated::OwnCores;
    let alone: Vec<&SelectedJob> = choices.iter().flatten().filter(|choice| own(choice)).collect();
    assert!(alone.iter().all(|choice| choice.selected == Selected::Estimated));
    assert!(scheduler.state().ends_with(&format!("of their own {} times", alone.len())));
}

/// Eight contexts, of which one is left empty with each job that waits.
#[test]
fn solo_is_rationed() {
    let truth = stacks(&mut SplitMix64::new(8), 8);
    let (_, choices) = quanta(&strongly_coupled(), &truth, 500);
    let empty: usize = choices.iter().map(|choices| 8 - choices.len()).sum();
    // 500 · 8 · 0.02 = 80.
    assert!((70..=80).contains(&empty), "{empty}");
    assert!(choices.iter().all(|choices| choices.len() >= 7));
    for turn in choices.windows(2) {
        let waits =
            |turn: &Vec<SelectedJob>, job: u32| turn.iter().all(|choice| choice.job.0 != job);
        assert!((0..8).all(|job| !waits(&turn[0], job) || !waits(&turn[1], job)), "twice");
    }
}

#[test]
fn no_solo_where_stacks_are_known() {
    let truth = stacks(&mut SplitMix64::new(8), 8);
    let (scheduler, choices) = quanta(&model(&mut SplitMix64::new(1)), &truth, 50);
    assert!(choices.iter().all(|choices| choices.len() == 8));
    assert_eq!((scheduler.ration.given, scheduler.table.known()), (0, 8));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The decision, made by costs that are computed pair by pair and without a proof that spares
    /// the search.
    #[test]
    fn as_without_the_proof(
        count in 5_usize..=8,
        last in prop::collection::vec(prop::option::of(0_u32..8), 8),
        gain in prop::sample::select(vec![0.0, 0.003, 0.01, 0.05]),
        seed: u64,
    ) {
        let machine = machine("core:4 pu:2");
        let mut rng = SplitMix64::new(seed);
        let (model, stacks) = (model(&mut rng), stacks(&mut rng, count));
        let (pus, mut queue) = (all(&machine), queue(&vec![0.0; count]));
        for (job, last) in queue.iter_mut().zip(&last) {
            job.threads[0].pu = last.map(PuIdx);
        }
        let mut scheduler = knowing(Symbiotic::new(model.clone(), eager(gain)), &stacks);
        let choices = scheduler.choose(&quantum(&machine, &pus, &queue));
        let found = cost(&model, 2, &stacks, &on_core(&machine, &choices));
        let threads: Vec<&Thread> = queue.iter().flat_map(|job| &job.threads).collect();
        let stay = cost(&model, 2, &stacks, &staying(&UsableMachine::new(&machine, &pus), &threads));
        let of_one = |group: &[usize]| cost(&model, 2, &stacks, &[group.to_vec()]);
        let best = cost(&model, 2, &stacks, &matching::in_groups(count, 4, 2, of_one));
        let over = stay - best - gain * Objective::Stp.whole(count, stay);
        let wanted = if over > 0.0 { best } else { stay };
        prop_assert!((found - wanted).abs() < 2e-6 || over.abs() < 2e-6, "{found}, wanted {wanted}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn optimal_pairs(pairs in 2_usize..=4, seed: u64) {
        let machine = machine(&format!("core:{pairs} pu:2"));
        let mut rng = SplitMix64::new(seed);
        let (model, stacks) = (model(&mut rng), stacks(&mut rng, 2 * pairs));
        let mut scheduler = knowing(Symbiotic::new(model.clone(), eager(0.0)), &stacks);
        let (pus, queue) = (all(&machine), queue(&vec![0.0; 2 * pairs]));
        let choices = scheduler.choose(&quantum(&machine, &pus, &queue));
        let found = cost(&model, 2, &stacks, &on_core(&machine, &choices));
        let least = brute(&model, &stacks, &(0..2 * pairs).collect::<Vec<_>>());
        prop_assert!((found - least).abs() < 2e-6, "found {found}, least {least}");
    }

    #[test]
    fn never_worse_than_staying(
        count in 1_usize..=16,
        last in prop::collection::vec(prop::option::of(0_u32..16), 16),
        spec in prop::sample::select(vec!["core:8 pu:2", "core:4 pu:4", "pack:2 core:4 pu:2"]),
        usable in 1_usize..=16,
        seed: u64,
    ) {
        let machine = machine(spec);
        let mut rng = SplitMix64::new(seed);
        let (model, stacks) = (model(&mut rng), stacks(&mut rng, count));
        let pus: Vec<PuIdx> = all(&machine)[..usable].to_vec();
        let mut queue = queue(&vec![0.0; count]);
        for (job, last) in queue.iter_mut().zip(&last) {
            job.threads[0].pu = last.map(PuIdx);
        }
        for kind in ["symbiotic", "symbiotic-numa"] {
            let new = match kind {
                "symbiotic" => Symbiotic::new(model.clone(), SymbioticSettings::USUAL),
                _ => Symbiotic::new(model.clone(), SymbioticSettings::USUAL).with_homes(HomeNodes::new(1.0)),
            };
            let mut scheduler = knowing(new, &stacks);
            let choices = scheduler.choose(&quantum(&machine, &pus, &queue));
            let places = UsableMachine::new(&machine, &pus);
            let threads: Vec<&Thread> =
                queue.iter().take(usable).flat_map(|job| &job.threads).collect();
            let fullest = threads.len().div_ceil(places.cores.len());
            let stay = cost(&model, fullest, &stacks, &staying(&places, &threads));
            let found = cost(&model, fullest, &stacks, &on_core(&machine, &choices));
            prop_assert!(found <= stay + 1e-9, "{kind}: {found}, staying {stay}");
            let mut taken: Vec<u32> = chosen(&choices).into_iter().map(|(_, pu)| pu).collect();
            taken.sort_unstable();
            taken.dedup();
            prop_assert_eq!(taken.len(), count.min(usable));
        }
    }

    /// Also of threads that are alike, so that many groups cost the same.
    #[test]
    fn order_changes_nothing(
        spec in prop::sample::select(vec!["core:4 pu:2", "core:2 pu:4"]),
        alike in 1_usize..=8,
        seed: u64,
    ) {
        let machine = machine(spec);
        let mut rng = SplitMix64::new(seed);
        let (model, mut stacks) = (model(&mut rng), stacks(&mut rng, 8));
        for at in 1..alike {
            stacks[at] = stacks[0].clone();
        }
        let (pus, mut plain) = (all(&machine), queue(&[0.0; 8]));
        for (job, pu) in plain.iter_mut().zip(&pus) {
            job.threads[0].pu = Some(*pu);
        }
        let mut mixed = plain.clone();
        rng.shuffle(&mut mixed);
        let groups = |queue: &[QueuedJob]| {
            let new = Symbiotic::new(model.clone(), eager(0.0));
            let choices = knowing(new, &stacks).choose(&quantum(&machine, &pus, queue));
            on_core(&machine, &choices)
        };
        prop_assert_eq!(groups(&plain), groups(&mixed));
    }

    #[test]
    fn one_each(count in 1_usize..=40, seed: u64) {
        let machine = machine("node:2 core:4 pu:4");
        let mut rng = SplitMix64::new(seed);
        let (model, stacks) = (model(&mut rng), stacks(&mut rng, count));
        let (pus, queue) = (all(&machine), queue(&vec![0.0; count]));
        for kind in ["symbiotic", "symbiotic-numa", "oracle"] {
            let known = Knowledge { cpi: Some(&model), ..Knowledge::default() };
            let evidence = Evidence::of_queue(quantum(&machine, &pus, &queue));
            let plan = PolicySpec::named(kind).policy(&known).decide(&evidence);
            let mut taken: Vec<u32> =
                plan.decisions.iter().filter_map(|decision| Some(decision.place.pu()?.0)).collect();
            taken.sort_unstable();
            taken.dedup();
            prop_assert_eq!(taken.len(), count.min(32));
        }
        prop_assert_eq!(stacks.len(), count);
    }
}
