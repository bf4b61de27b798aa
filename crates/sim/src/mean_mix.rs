//! The mix of several phases.

use crate::scenario::Scenario;
use colocate_model::Mix;

/// The mean mix of phases, weighted by their instructions. A class is unknown if one of the phases does not say.
/// `None` if there are no instructions.
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
        mean.set(class, share.and_then(|share| colocate_model::Share::new(share.min(1.0))));
    }
    Some(mean)
}
