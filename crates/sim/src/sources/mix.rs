//! Instruction mixes of the jobs that are watched.

use crate::parts::Parts;
use crate::scenario::Scenario;
use crate::task::TaskNo;
use colocate_evidence::SeenTask;
use colocate_model::Mix;

pub(super) fn report(parts: &Parts<'_>, task: TaskNo, seen: &mut SeenTask) {
    let watched = parts.tasks[task].counted.by_phase.iter().map(|(phase, did)| (*phase, *did));
    seen.mix = mean_mix(parts.scenario, watched).map(Box::new);
}

/// Mean mix of phases, weighted by their instructions. A class unknown in any phase is unknown.
/// `None` without instructions.
pub(crate) fn mean_mix(
    scenario: &Scenario,
    done: impl Iterator<Item = (usize, f64)> + Clone,
) -> Option<Mix> {
    let all: f64 = done.clone().map(|(_, instructions)| instructions).sum();
    if all <= 0.0 {
        return None;
    }
    let mut mean = Mix::default();
    for class in colocate_model::Class::ALL {
        let share = done.clone().map(|(phase, instructions)| {
            Some(scenario.phases[phase].mix.get(class)?.get() * instructions / all)
        });
        let share: Option<f64> = share.sum();
        // Rounding can lead beyond 1.
        mean.set(class, share.and_then(|share| colocate_model::Share::new(share.min(1.0))));
    }
    Some(mean)
}
