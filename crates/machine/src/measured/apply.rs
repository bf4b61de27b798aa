//! Replaces a machine's kinds of cores by measured kinds.

use super::CoreSpeeds;
use crate::cpulist::PuSet;
use crate::ids::KindIdx;
use crate::machine::{Core, CoreKind, Machine};
use crate::units::Hertz;
use std::collections::BTreeSet;
use thiserror::Error;

/// Reason why measured speeds do not belong to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotThisMachine {
    /// The processor differs.
    #[error(
        "expected speeds measured on {expected}, found {found}; measure here with colocate-study bench cores"
    )]
    Processor {
        /// Processor of the machine.
        expected: String,
        /// Processor of the measurement.
        found: String,
    },
    /// The cores differ, or other PUs were online.
    #[error(
        "expected speeds of {expected}, found {found}; measure here with colocate-study bench cores"
    )]
    Cores {
        /// Cores of the machine.
        expected: String,
        /// Cores of the measurement.
        found: String,
    },
}

impl CoreSpeeds {
    /// Returns `machine` with measured kinds of cores in place of the reported kinds.
    ///
    /// Kinds are slowest first; the fastest has capacity 1024. Cores that were not measured get a
    /// separate kind, "unmeasured", without a capacity and last, as its speed is unknown. A kind
    /// keeps the reported highest clock rate if the rate is the same for all of its cores.
    ///
    /// # Errors
    /// [`NotThisMachine`] if the speeds were measured on another machine, or when other PUs were online.
    pub fn of_machine(&self, machine: &Machine) -> Result<Machine, NotThisMachine> {
        self.check_machine(machine)?;
        let unmeasured = self.kinds.len();
        let kinds = machine.cores.iter().map(|core| self.kind_of(core, machine));
        let places: Vec<usize> = kinds.map(|kind| kind.unwrap_or(unmeasured)).collect();
        let mut measured = self.with_kinds(machine, &places);
        if places.contains(&unmeasured) {
            let name = "unmeasured".to_owned();
            measured.kinds.push(CoreKind { name, capacity: None, max_frequency: None });
        }
        Ok(measured)
    }

    /// Returns `machine` with measured kinds after PUs went online or offline, if the speeds
    /// belonged to the machine before.
    ///
    /// Remaining cores keep their kinds, and kinds without cores are removed. A core that was not
    /// measured counts as the slowest kind, so that no thread is placed there for its speed.
    #[must_use]
    pub fn still_of(&self, machine: &Machine) -> Machine {
        let kinds = machine.cores.iter().map(|core| self.kind_of(core, machine));
        let places: Vec<usize> = kinds.map(|kind| kind.unwrap_or(0)).collect();
        let mut left = self.with_kinds(machine, &places);
        let used: BTreeSet<usize> = places.into_iter().collect();
        for core in &mut left.cores {
            let before = used.iter().take_while(|&&used| used < core.kind.idx());
            core.kind = KindIdx::new(before.count());
        }
        left.kinds = used.iter().map(|&kind| left.kinds[kind].clone()).collect();
        left
    }

    /// Index of the measured kind of a core; `None` if none of its PUs was measured.
    fn kind_of(&self, core: &Core, machine: &Machine) -> Option<usize> {
        self.kinds
            .iter()
            .position(|kind| core.pus.iter().any(|pu| kind.pus.contains(machine.pus[pu.idx()].os)))
    }

    /// Returns `machine` with all measured kinds; `places` has the index of each core's kind.
    fn with_kinds(&self, machine: &Machine, places: &[usize]) -> Machine {
        let mut made = machine.clone();
        made.kinds = (0..self.kinds.len()).map(|kind| self.kind(kind, places, machine)).collect();
        for (core, &place) in made.cores.iter_mut().zip(places) {
            core.kind = KindIdx::new(place);
        }
        made
    }

    /// Measured PUs.
    #[must_use]
    pub fn measured(&self) -> PuSet {
        self.pus.iter().map(|speed| speed.pu).collect()
    }

    /// The measured kind with index `kind`, named by its rank.
    fn kind(&self, kind: usize, places: &[usize], machine: &Machine) -> CoreKind {
        // `check` refuses speeds without a kind.
        let last = self.kinds.len() - 1;
        let name = match kind {
            0 if last == 0 => "core".to_owned(),
            0 => "slow".to_owned(),
            _ if kind == last => "fast".to_owned(),
            _ => format!("medium-{kind}"),
        };
        let cores = machine.cores.iter().zip(places).filter(|(_, place)| **place == kind);
        let mut reported = cores.map(|(core, _)| machine.kinds[core.kind.idx()].max_frequency);
        let first: Option<Hertz> = reported.next().flatten();
        CoreKind {
            name,
            capacity: Some(self.kinds[kind].speed.capacity()),
            max_frequency: first.filter(|_| reported.all(|other| other == first)),
        }
    }

    fn check_machine(&self, machine: &Machine) -> Result<(), NotThisMachine> {
        // Where either processor is unknown, the cores alone decide.
        if let (Some(here), Some(there)) = (&machine.processor, &self.processor)
            && here != there
        {
            let expected = here.clone();
            let found = there.clone();
            return Err(NotThisMachine::Processor { expected, found });
        }
        let here = cores_of(machine);
        if here == self.cores {
            return Ok(());
        }
        let expected = summary(&here);
        let found = summary(&self.cores);
        if expected != found {
            return Err(NotThisMachine::Cores { expected, found });
        }
        // Same number of cores, same PUs: the PUs are distributed over the cores differently.
        let differs = here.iter().zip(&self.cores).find(|(a, b)| a != b);
        let (expected, found) = differs.map_or((expected, found), |(a, b)| {
            (format!("a core of PUs {a}"), format!("a core of PUs {b}"))
        });
        Err(NotThisMachine::Cores { expected, found })
    }
}

/// PUs of every core, by the kernel's numbers, in logical order.
#[must_use]
pub fn cores_of(machine: &Machine) -> Vec<PuSet> {
    let cores = machine.cores.iter();
    cores.map(|core| core.pus.iter().map(|pu| machine.pus[pu.idx()].os).collect()).collect()
}

/// `2 cores, PUs 0-3`.
fn summary(cores: &[PuSet]) -> String {
    let all: PuSet = cores.iter().flat_map(PuSet::iter).collect();
    match cores.len() {
        1 => format!("1 core, PUs {all}"),
        count => format!("{count} cores, PUs {all}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::described;
    use crate::measured::testing::{measured, speeds_of};

    fn amp() -> Machine {
        let text = described::MACHINES.iter().find(|(name, _)| *name == "amp-4x12").unwrap().1;
        described::from_toml(text).unwrap().machine
    }

    /// The described machine has its fast cores on PUs 0, 4, 8 and 12.
    #[test]
    fn measured_kinds_replace_the_reported_ones() {
        let machine = amp();
        let fast = [3, 7];
        let speed = |pu| if fast.contains(&pu) { 1.0 } else { 0.25 };
        let found = speeds_of(&machine, |pu| Some(speed(pu)));
        let made = found.of_machine(&machine).unwrap();
        assert_eq!(made.check(), Ok(()));
        let kinds: Vec<_> = made.kinds.iter().map(|kind| (&*kind.name, kind.capacity)).collect();
        assert_eq!(kinds, [("slow", Some(256)), ("fast", Some(1024))]);
        for core in &made.cores {
            let pu = made.pus[core.pus[0].idx()].os.0;
            assert_eq!(core.kind.idx(), usize::from(fast.contains(&pu)), "{pu}");
        }
        // Only kinds have changed.
        let back = Machine { kinds: machine.kinds.clone(), cores: machine.cores.clone(), ..made };
        assert_eq!(back, machine);
    }

    #[test]
    fn what_was_not_measured_is_last_and_has_no_capacity() {
        let machine = amp();
        let found = speeds_of(&machine, |pu| (pu < 2).then_some(0.5));
        let made = found.of_machine(&machine).unwrap();
        assert_eq!(made.check(), Ok(()));
        let kinds: Vec<_> = made.kinds.iter().map(|kind| (&*kind.name, kind.capacity)).collect();
        assert_eq!(kinds, [("core", Some(1024)), ("unmeasured", None)]);
        assert_eq!(found.measured().to_string(), "0-1");
    }

    /// The measured machine without some of its PUs, and with one that was not measured.
    #[test]
    fn kinds_stay_where_pus_go_and_come() {
        let machine = amp();
        let found = speeds_of(&machine, |pu| (pu != 5).then_some(if pu == 4 { 1.0 } else { 0.5 }));
        let without = |gone: &[u32]| {
            let mut left = machine.clone();
            left.cores.retain(|core| !gone.contains(&left.pus[core.pus[0].idx()].os.0));
            let made = found.still_of(&left);
            let kind = |core: &Core| made.kinds[core.kind.idx()].name.clone();
            let kinds: Vec<String> = made.cores.iter().map(kind).collect();
            let capacities: Vec<_> = made.kinds.iter().map(|kind| kind.capacity).collect();
            (kinds, capacities)
        };
        let (kinds, capacities) = without(&[0, 1]);
        assert_eq!(kinds[..5], ["slow", "slow", "fast", "slow", "slow"]);
        assert_eq!(capacities, [Some(512), Some(1024)]);
        let (kinds, capacities) = without(&[4]);
        assert!(kinds.len() == 15 && kinds.iter().all(|kind| kind == "slow"), "{kinds:?}");
        assert_eq!(capacities, [Some(512)]);
    }

    #[test]
    fn a_clock_rate_stays_where_all_cores_of_a_kind_have_it() {
        let machine = amp();
        let reported: Vec<_> = machine.kinds.iter().map(|kind| kind.max_frequency).collect();
        assert!(reported[0].is_some() && reported[0] != reported[1], "{reported:?}");
        // Of the fast four one is measured fast, the other three with the slow ones.
        let found = speeds_of(&machine, |pu| Some(if pu == 4 { 1.0 } else { 0.5 }));
        let made = found.of_machine(&machine).unwrap();
        let frequencies: Vec<_> = made.kinds.iter().map(|kind| kind.max_frequency).collect();
        assert_eq!(frequencies, [None, reported[1]]);
    }

    #[test]
    fn speeds_of_another_machine_are_refused_in_a_line() {
        let machine = amp();
        let found = speeds_of(&machine, |_| Some(1.0));
        let refused = |found: &CoreSpeeds| found.of_machine(&machine).unwrap_err().to_string();
        let other = CoreSpeeds { processor: Some("Other 9000".into()), ..found.clone() };
        let mut here = machine.clone();
        here.processor = Some("This 1000".into());
        assert_eq!(
            other.of_machine(&here).unwrap_err().to_string(),
            "expected speeds measured on This 1000, found Other 9000; measure here with colocate-study bench cores"
        );
        let fewer = CoreSpeeds { cores: found.cores[..4].to_vec(), ..found.clone() };
        assert_eq!(
            refused(&fewer),
            "expected speeds of 16 cores, PUs 0-15, found 4 cores, PUs 0-3; measure here with colocate-study bench cores"
        );
        let mut swapped = found;
        swapped.cores.swap(0, 1);
        assert_eq!(
            refused(&swapped),
            "expected speeds of a core of PUs 0, found a core of PUs 1; measure here with colocate-study bench cores"
        );
        // A machine that does not say which processor it has can have any.
        let unknown = CoreSpeeds { processor: None, ..measured(&[&[0], &[1]], &[1.0, 1.0]) };
        assert!(matches!(unknown.of_machine(&here), Err(NotThisMachine::Cores { .. })));
    }
}
