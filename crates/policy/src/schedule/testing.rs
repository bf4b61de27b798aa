//! Queues as short texts: for tests only.

use super::{QueuedJob, Rates, Thread, Traffic};
use colocate_evidence::{JobIdx, TaskId};

/// One job of one thread each, with that much memory traffic, in t/µs.
pub fn queue(memory: &[f64]) -> Vec<QueuedJob> {
    traffic(memory.iter().map(|&memory| ([None; super::LEVELS], memory)))
}

/// One job of one thread each, with traffic to the caches and to the memory.
pub fn traffic(
    jobs: impl IntoIterator<Item = ([Option<f64>; super::LEVELS], f64)>,
) -> Vec<QueuedJob> {
    let job = |(at, (caches, memory)): (usize, _)| {
        let job = JobIdx(u32::try_from(at).expect("few"));
        let traffic = Traffic { caches, memory: Some(memory) };
        let ran = Rates { ipc: Some(1.0), traffic, ..Rates::default() };
        let id = TaskId { job, order: 0 };
        QueuedJob {
            job,
            threads: vec![Thread { id, ran: Some(ran), pu: None, runnable: None, bound: false }],
            runnable: None,
            just_ran: false,
            had_own_cores: false,
        }
    };
    jobs.into_iter().enumerate().map(job).collect()
}

/// Job and PU of each chosen thread.
pub fn chosen(choices: &[super::SelectedJob]) -> Vec<(u32, u32)> {
    let places = |choice: &super::SelectedJob| -> Vec<(u32, u32)> {
        let job = choice.job.0;
        choice.places.iter().map(|(pu, _)| (job, pu.expect("a PU").0)).collect()
    };
    choices.iter().flat_map(places).collect()
}

/// Asks for `quanta` quanta: a job that ran goes to the tail, runs at one instruction per cycle,
/// half of that beside another job on its core. `look` sees every quantum.
pub fn run(
    machine: &colocate_machine::Machine,
    mut choose: impl FnMut(&super::Quantum<'_>) -> Vec<super::SelectedJob>,
    memory: &[f64],
    quanta: u64,
    mut look: impl FnMut(&[super::SelectedJob]),
) {
    let pus: Vec<_> = machine.all_pus().collect();
    let mut jobs = queue(memory);
    for number in 0..quanta {
        let now = super::Quantum { number, machine, pus: &pus, queue: &jobs };
        let choices = choose(&now);
        assert!(!choices.is_empty(), "a job must run");
        look(&choices);
        let places = chosen(&choices);
        let on_core = |core| {
            places.iter().filter(|(_, pu)| machine.core_of(pus[*pu as usize]) == core).count()
        };
        for job in &mut jobs {
            let place = places.iter().find(|(chosen, _)| *chosen == job.job.0);
            job.just_ran = place.is_some();
            if let Some(&(_, pu)) = place {
                let pu = pus[pu as usize];
                job.had_own_cores = on_core(machine.core_of(pu)) == 1;
                job.threads[0].pu = Some(pu);
                let ran = job.threads[0].ran.as_mut().expect("there");
                ran.ipc = Some(if job.had_own_cores { 1.0 } else { 0.5 });
            }
        }
        jobs.sort_by_key(|job| job.just_ran);
    }
}
