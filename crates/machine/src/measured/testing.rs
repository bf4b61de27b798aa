//! Measurements that were never made, for tests.

use super::{CoreSpeeds, MeasuredKind, PuSpeed, Reported, Speed, VERSION, kinds_of};
use crate::cpulist::PuSet;
use crate::ids::PuNr;
use crate::machine::Machine;
use crate::units::{Hertz, Nanos};

/// Cores with these PUs and these speeds relative to the fastest, each known within 1 %.
pub fn measured(cores: &[&[u32]], speeds: &[f64]) -> CoreSpeeds {
    let sets: Vec<PuSet> =
        cores.iter().map(|pus| pus.iter().map(|&pu| PuNr(pu)).collect()).collect();
    let speeds: Vec<Option<f64>> = speeds.iter().copied().map(Some).collect();
    of_sets(sets, &speeds)
}

/// The cores of `machine`, each as fast as its first PU is said to be; `None` for one that was not measured.
pub(crate) fn speeds_of(machine: &Machine, speed: impl Fn(u32) -> Option<f64>) -> CoreSpeeds {
    let sets = super::apply::cores_of(machine);
    let first = |set: &PuSet| set.iter().next().and_then(|pu| speed(pu.0));
    let speeds: Vec<Option<f64>> = sets.iter().map(first).collect();
    of_sets(sets, &speeds)
}

fn of_sets(cores: Vec<PuSet>, speeds: &[Option<f64>]) -> CoreSpeeds {
    let known: Vec<(PuSet, Speed)> = cores
        .iter()
        .zip(speeds)
        .filter_map(|(core, speed)| {
            let value = (*speed)?;
            Some((core.clone(), Speed { value, low: value * 0.99, high: value * 1.01 }))
        })
        .collect();
    let speeds: Vec<Speed> = known.iter().map(|(_, speed)| *speed).collect();
    let top = speeds.iter().map(|speed| speed.value).fold(0.0, f64::max);
    let of_core = kinds_of(&speeds);
    let count = of_core.iter().max().map_or(0, |last| last + 1);
    let kinds = (0..count).map(|kind| {
        let within = known.iter().zip(&of_core).filter(|(_, of)| **of == kind);
        let cores: Vec<&(PuSet, Speed)> = within.map(|(core, _)| core).collect();
        let pus = cores.iter().flat_map(|(core, _)| core.iter()).collect();
        MeasuredKind { speed: cores[0].1.over(top), pus }
    });
    let pu = |(core, speed): &(PuSet, Speed)| {
        let speed = speed.over(top);
        let one = move |pu| PuSpeed {
            pu,
            speed,
            speed_while_running: speed.value,
            share_of_pu: 1.0,
            clock: Hertz::mhz(2000),
            reported: Reported::default(),
        };
        core.iter().map(one).collect::<Vec<_>>()
    };
    let mut pus: Vec<PuSpeed> = known.iter().flat_map(pu).collect();
    pus.sort_by_key(|speed| speed.pu);
    CoreSpeeds {
        version: VERSION,
        processor: None,
        kernel: None,
        started_unix_s: 0,
        rounds: 15,
        visit_ns: Nanos::from_millis(60),
        seed: 1,
        others_runnable: Some(0),
        kinds: kinds.collect(),
        cores,
        pus,
        disagreements: Vec::new(),
    }
}
