//! A scheduler with its settings on mixes of a study: means over the mixes, with the default assumptions and seed 0.

use crate::machine;
use colocate_machine::Nanos;
use colocate_model::Assumptions;
use colocate_policy::schedule::Selected;
use colocate_sim::{Platform, alone_of};
use colocate_study::replication::definition::{Cells, PolicyStudyDefinition};
use colocate_study::replication::{Study, StudyCell, StudyCells, mixes};
use std::fmt::{self, Display, Formatter};

/// Means over the mixes.
#[derive(Debug, Default)]
pub struct Means {
    /// When the last program is done, in seconds.
    last: f64,
    /// End of the last quantum in which there was a program for every context, in seconds.
    full: f64,
    /// The last end over the first.
    pub unfairness: f64,
    /// Quanta that make estimates, as a share.
    estimates: f64,
    /// Jobs that have cores of their own in such a quantum.
    solo: f64,
}

/// A scheduler, by name and settings, on some mixes of a study's first table.
pub fn means(name: &str, places: &[usize], policy: &str) -> Means {
    let definition = PolicyStudyDefinition::built_in(name).unwrap();
    let (machine, performance) = machine(&definition.machine);
    let draws = [Assumptions::default()];
    let study = Study {
        definition: &definition,
        machine: &machine,
        performance: &performance,
        draws: &draws,
        seed: 0,
    };
    let work = StudyCells::new(study).unwrap();
    let table = &work.tables[0];
    let Cells::Mixes(form) = &table.part.cells else { panic!("mixes") };
    let platform = Platform::new(&machine, &performance, draws[0]).unwrap();
    let mut found = Means::default();
    let (mut quanta, mut estimates, mut solo) = (0.0, 0.0, 0.0);
    for cell in places.iter().map(|&place| &table.cells[place]) {
        let StudyCell::Mix(mix) = cell else { panic!("a mix") };
        let scenario = mixes::scenario(&study, form.programs_per_pu, &work.programs, mix, 0);
        let alone = alone_of(&platform, &scenario).unwrap();
        let mut full = Nanos::ZERO;
        let outcome = mixes::under(
            &study,
            &platform,
            &scenario,
            (policy.parse().unwrap(), &alone),
            &mut |round| {
                let selected = round.plan.selected();
                let is_solo = |selected: &&&Selected| ***selected == Selected::Estimated;
                let count = selected.values().filter(is_solo).count();
                quanta += 1.0;
                estimates += f64::from(u8::from(count > 0));
                solo += count as f64;
                if selected.len() >= mix.pus.len() {
                    full = round.seen.at;
                }
            },
        )
        .unwrap();
        let mut ends: Vec<f64> =
            outcome.jobs.iter().map(|job| job.done.unwrap().as_secs_f64()).collect();
        ends.sort_by(f64::total_cmp);
        let last = ends[ends.len() - 1];
        found.last += last / places.len() as f64;
        found.full += full.as_secs_f64() / places.len() as f64;
        found.unfairness += last / ends[0] / places.len() as f64;
    }
    Means { estimates: estimates / quanta, solo: solo / f64::max(estimates, 1.0), ..found }
}

impl Display for Means {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { last, full, unfairness, estimates, solo } = self;
        write!(
            f,
            "last done at {last:.1} s, all contexts used until {full:.1} s, {unfairness:.2} times the first; {:.0} % of the quanta \
             estimate {solo:.1} jobs (simulated)",
            estimates * 100.0
        )
    }
}
