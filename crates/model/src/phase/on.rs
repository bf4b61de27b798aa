//! Conversion of phases to figures for one kind of core.

use super::{Demand, Guessed, Guesses, Known, Phase, PhaseError, PortWork, typical_misses};
use crate::mix::{Class, Mix};
use colocate_machine::performance::{CorePerformance, PortSet, WorkKind};

/// Phase on one kind of core, with a list of its unknown components.
#[derive(Clone, Debug, PartialEq)]
pub struct OnCore {
    /// Figures.
    pub demand: Demand,
    /// Guessed components, in the order of [`Guessed`]; the figures are those of the [`Guesses`].
    pub guessed: Vec<Guessed>,
    /// Kinds of work without a unit in the core's table: no port is charged for them.
    pub without_unit: Vec<WorkKind>,
}

impl Phase {
    /// Converts the phase to figures on a core of the kind `core`; `guesses` replace unknown
    /// figures.
    ///
    /// A divided window reported faster than the whole window counts as equally fast: tools that
    /// count both are this inexact.
    ///
    /// # Errors
    /// [`PhaseError`] for work on another processor's ports, and the errors of [`Phase::check`].
    pub fn on(&self, core: &CorePerformance, guesses: &Guesses) -> Result<OnCore, PhaseError> {
        self.check()?;
        let mut asked =
            PhaseConversion { core, guesses, guessed: Vec::new(), without_unit: Vec::new() };
        let slots = asked.known(&self.slots, Guessed::Slots);
        let ports = asked.ports(&self.work)?;
        let dependent_cycles = asked.known(&self.dependent_cycles, Guessed::DependentCycles);
        let divided = match self.dependent_cycles_divided.get() {
            // A smaller window is never faster.
            Some(&cycles) => cycles.max(dependent_cycles),
            None => dependent_cycles * asked.guess(Guessed::DividedFactor),
        };
        let stalls = asked.known(&self.stall_cycles, Guessed::StallCycles);
        let branch_misses = asked.known(&self.branch_misses, Guessed::BranchMisses);
        let misses = match self.misses.get() {
            Some(curve) => curve.clone(),
            None => typical_misses(asked.guess(Guessed::MissFactor)),
        };
        let demand = Demand {
            slots,
            ports,
            dependent_cycles,
            dependent_cycles_divided: divided,
            stall_cycles: stalls + branch_misses * core.branch_miss.0,
            misses,
            parallel_misses: asked.known(&self.parallel_misses, Guessed::ParallelMisses),
            written_back: asked.known(&self.written_back, Guessed::WrittenBack),
            shared_lines: asked.known(&self.shared_lines, Guessed::SharedLines),
        };
        asked.guessed.sort_unstable();
        Ok(OnCore { demand, guessed: asked.guessed, without_unit: asked.without_unit })
    }
}

/// Conversion in progress, with the components guessed so far.
struct PhaseConversion<'a> {
    core: &'a CorePerformance,
    guesses: &'a Guesses,
    guessed: Vec<Guessed>,
    without_unit: Vec<WorkKind>,
}

impl PhaseConversion<'_> {
    fn guess(&mut self, guessed: Guessed) -> f64 {
        self.guessed.push(guessed);
        self.guesses.get(guessed)
    }

    fn known(&mut self, known: &Known<f64>, or: Guessed) -> f64 {
        known.get().copied().unwrap_or_else(|| self.guess(or))
    }

    fn ports(&mut self, work: &Known<PortWork>) -> Result<Vec<(PortSet, f64)>, PhaseError> {
        let found = match work.get() {
            Some(PortWork::Ports { llvm_cpu, groups, kinds }) => {
                let mut found = self.named(llvm_cpu, groups)?;
                found.extend(self.unnamed(&found, kinds));
                found
            }
            Some(PortWork::Kinds(kinds)) => self.by_kind(kinds),
            Some(PortWork::Classes(mix)) => self.by_class(mix),
            None => self.by_class(&Mix::default()),
        };
        Ok(merged(found))
    }

    fn named(
        &self,
        llvm_cpu: &str,
        groups: &[(Vec<String>, f64)],
    ) -> Result<Vec<(PortSet, f64)>, PhaseError> {
        // The names of ports are LLVM's, and belong to one processor's table.
        if self.core.llvm_cpu.as_deref() != Some(llvm_cpu) {
            let expected = self.core.llvm_cpu.as_deref();
            let expected = expected.unwrap_or("a processor without a table of LLVM's");
            return Err(PhaseError(format!(
                "expected work for the ports of {expected}, found that of {llvm_cpu}; find out the demand for this machine"
            )));
        }
        groups.iter().map(|(names, cycles)| Ok((self.port_set(names)?, *cycles))).collect()
    }

    /// Work on units that no group names. LLVM's table has no such unit, or `named` would contain
    /// its ports.
    fn unnamed(&self, named: &[(PortSet, f64)], kinds: &[(WorkKind, f64)]) -> Vec<(PortSet, f64)> {
        let all = named.iter().fold(0, |all, (set, _)| all | set.0);
        let mut found = Vec::new();
        for &(kind, count) in kinds {
            let units = self.core.units.iter();
            let units = units.filter(|unit| unit.kind == kind && unit.ports.0 & all == 0);
            found.extend(units.map(|unit| (unit.ports, count * unit.occupancy.0)));
        }
        found
    }

    /// Set of the ports with these names.
    fn port_set(&self, names: &[String]) -> Result<PortSet, PhaseError> {
        let mut set = 0;
        for name in names {
            // A `PortSet` has 32 bits.
            let place = self.core.ports.iter().take(32).position(|port| port == name);
            let place = place.ok_or_else(|| {
                let expected = self.core.ports.join(", ");
                PhaseError(format!("expected one of the ports {expected}, found {name}"))
            })?;
            set |= 1 << place;
        }
        Ok(PortSet(set))
    }

    fn by_kind(&mut self, kinds: &[(WorkKind, f64)]) -> Vec<(PortSet, f64)> {
        let mut found = Vec::new();
        for &(kind, count) in kinds {
            let units = self.core.units.iter().filter(|unit| unit.kind == kind);
            let before = found.len();
            found.extend(units.map(|unit| (unit.ports, count * unit.occupancy.0)));
            if found.len() == before && count > 0.0 {
                self.without_unit.push(kind);
            }
        }
        found
    }

    /// Work by class. A mix may lack a class, and does not tell additions from multiplications and
    /// divisions.
    fn by_class(&mut self, mix: &Mix) -> Vec<(PortSet, f64)> {
        let [branch, float, int, load, store] = Class::ALL.map(|class| match mix.get(class) {
            Some(share) => share.get(),
            None => self.guess(Guessed::share(class)),
        });
        let int_mul = self.guess_part(int, Guessed::IntMulPart);
        let int_div = self.guess_part(int, Guessed::IntDivPart);
        let float_mul = self.guess_part(float, Guessed::FloatMulPart);
        let float_div = self.guess_part(float, Guessed::FloatDivPart);
        self.by_kind(&[
            (WorkKind::Branch, branch),
            // Even the largest plausible parts sum to less than 1, so the rest is not negative.
            (WorkKind::Int, int - int_mul - int_div),
            (WorkKind::IntMul, int_mul),
            (WorkKind::IntDiv, int_div),
            (WorkKind::FloatAdd, float - float_mul - float_div),
            (WorkKind::FloatMul, float_mul),
            (WorkKind::FloatDiv, float_div),
            (WorkKind::Load, load),
            (WorkKind::Store, store),
        ])
    }

    /// Guessed part `guessed` of the share `of`. Nothing is guessed, nor reported as guessed, of 0.
    fn guess_part(&mut self, of: f64, guessed: Guessed) -> f64 {
        if of > 0.0 { of * self.guess(guessed) } else { 0.0 }
    }
}

/// Merges entries of the same set and sorts by set; drops empty sets and entries without cycles.
fn merged(mut found: Vec<(PortSet, f64)>) -> Vec<(PortSet, f64)> {
    found.retain(|(set, cycles)| !set.is_empty() && *cycles > 0.0);
    found.sort_by_key(|(set, _)| *set);
    // `dedup_by` passes the later element first.
    found.dedup_by(|next, first| {
        let same = next.0 == first.0;
        if same {
            first.1 += next.1;
        }
        same
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Share;
    use crate::phase::MeasuredCycles;
    use colocate_machine::performance::ExecutionUnit;
    use colocate_machine::{Cycles, Hertz};

    const ADDS: PortSet = PortSet(0b011);
    const MULS: PortSet = PortSet(0b001);

    /// Two ports for additions, the first also for multiplications of two cycles; a port for loads;
    /// no other unit.
    fn core() -> CorePerformance {
        let unit = |kind, ports, cycles| ExecutionUnit { kind, ports, occupancy: Cycles(cycles) };
        CorePerformance {
            clock: Hertz::mhz(2000),
            llvm_cpu: Some("znver1".into()),
            width: 4.0,
            ports: vec!["p0".into(), "p1".into(), "ld".into()],
            units: vec![
                unit(WorkKind::Int, ADDS, 1.0),
                unit(WorkKind::IntMul, MULS, 2.0),
                unit(WorkKind::Load, PortSet(0b100), 1.0),
                unit(WorkKind::Store, PortSet(0b100), 1.0),
                unit(WorkKind::Store, ADDS, 1.0),
            ],
            branch_miss: Cycles(20.0),
            divided: true,
            thread_sets: 1,
        }
    }

    fn known<T>(value: T) -> Known<T> {
        Known::new(value, "chosen for a test")
    }

    fn on(phase: &Phase) -> OnCore {
        phase.on(&core(), &Guesses::default()).unwrap()
    }

    /// Every component known: nothing is guessed. Ports: 0.5 additions and 0.25 stores ask for 0.75
    /// cycles of p0 or p1, 0.1 multiplications for 0.2 of p0, the stores for 0.25 of ld. Stalls: 0.1
    /// and 0.01 mispredicted branches of 20 cycles, 0.3.
    #[test]
    fn all_known() {
        let kinds = vec![(WorkKind::Int, 0.5), (WorkKind::IntMul, 0.1), (WorkKind::Store, 0.25)];
        let phase = Phase {
            name: "kernel".into(),
            slots: known(1.1),
            work: known(PortWork::Kinds(kinds)),
            dependent_cycles: known(0.5),
            dependent_cycles_divided: known(0.4),
            stall_cycles: known(0.1),
            branch_misses: known(0.01),
            misses: known(typical_misses(0.0)),
            parallel_misses: known(3.0),
            written_back: known(0.5),
            shared_lines: known(0.0),
            cycles: known(MeasuredCycles { processor: "made up".into(), cycles: 0.9 }),
        };
        let OnCore { demand, guessed, without_unit } = on(&phase);
        assert_eq!((guessed, without_unit), (vec![], vec![]));
        assert_eq!(demand.ports, [(MULS, 0.2), (ADDS, 0.75), (PortSet(0b100), 0.25)]);
        assert!((demand.stall_cycles - 0.3).abs() < 1e-15);
        assert!((demand.slots - 1.1).abs() < 1e-15);
        // A smaller window is not faster: 0.4 counts as 0.5.
        assert!((demand.dependent_cycles_divided - 0.5).abs() < 1e-15);
    }

    /// An unknown phase: all components are guessed, and kinds without a unit are reported.
    #[test]
    fn nothing_known() {
        let OnCore { demand, guessed, without_unit } = on(&Phase::default());
        assert_eq!(guessed, Guessed::ALL);
        let floats = [WorkKind::FloatAdd, WorkKind::FloatMul, WorkKind::FloatDiv];
        assert_eq!(without_unit[..2], [WorkKind::Branch, WorkKind::IntDiv]);
        assert_eq!(without_unit[2..], floats);
        assert!((demand.dependent_cycles_divided - 0.5 * 1.15).abs() < 1e-15);
        assert!((demand.stall_cycles - (0.05 + 0.003 * 20.0)).abs() < 1e-15);
        assert_eq!(demand.misses, typical_misses(1.0));
    }

    /// A mix of integer 0.5 and float 0, with all else unknown. The parts of integer arithmetic are
    /// guessed (2 % multiplications, 0.2 % divisions: 0.01 and 0.001), the parts of float are not.
    #[test]
    fn from_a_mix() {
        let mix = Mix { int: Share::new(0.5), float: Share::new(0.0), ..Mix::default() };
        let OnCore { demand, guessed, .. } = on(&Phase::of_mix("thread", mix, "sampled"));
        assert!(guessed.contains(&Guessed::IntMulPart) && guessed.contains(&Guessed::LoadShare));
        assert!(!guessed.contains(&Guessed::IntShare) && !guessed.contains(&Guessed::FloatDivPart));
        let asked = |set| demand.ports.iter().find(|(ports, _)| *ports == set).unwrap().1;
        assert!((asked(MULS) - 0.02).abs() < 1e-15);
        // 0.489 simple operations and 0.1 stores, guessed.
        assert!((asked(ADDS) - 0.589).abs() < 1e-12);
        assert_eq!(Phase::of_mix("thread", Mix::default(), "none").work, Known::default());
    }

    #[test]
    fn named_ports_are_those_of_one_processor() {
        let work = |cpu: &str, groups: &[(&[&str], f64)]| {
            let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            let groups = groups.iter().map(|&(ports, cycles)| (names(ports), cycles)).collect();
            let kinds = Vec::new();
            let work = known(PortWork::Ports { llvm_cpu: cpu.to_owned(), groups, kinds });
            Phase { work, ..Phase::default() }.on(&core(), &Guesses::default())
        };
        let both = work("znver1", &[(&["p1", "p0"], 0.5), (&["p0", "p1"], 0.25), (&["ld"], 0.0)]);
        assert_eq!(both.unwrap().demand.ports, [(ADDS, 0.75)]);
        let error = |found: Result<OnCore, PhaseError>| found.unwrap_err().to_string();
        assert_eq!(
            error(work("znver1", &[(&["p9"], 0.5)])),
            "expected one of the ports p0, p1, ld, found p9"
        );
        assert_eq!(
            error(work("skylake", &[])),
            "expected work for the ports of znver1, found that of skylake; find out the demand for \
             this machine"
        );
    }

    /// The core has a divider `div`, occupied for 6 cycles. A table without a divider does not name
    /// its port: 0.1 divisions add 0.6 cycles. A table with a divider has them in its groups.
    #[test]
    fn units_that_a_table_lacks() {
        let mut core = core();
        core.ports.push("div".into());
        let div = PortSet(0b1000);
        for (ports, cycles) in [(MULS, 1.0), (div, 6.0)] {
            core.units.push(ExecutionUnit {
                kind: WorkKind::IntDiv,
                ports,
                occupancy: Cycles(cycles),
            });
        }
        let asked = |groups: &[(&str, f64)]| {
            let groups = groups.iter().map(|&(port, cycles)| (vec![port.to_owned()], cycles));
            let kinds = vec![(WorkKind::IntDiv, 0.1)];
            let work =
                PortWork::Ports { llvm_cpu: "znver1".into(), groups: groups.collect(), kinds };
            let phase = Phase { work: known(work), ..Phase::default() };
            phase.on(&core, &Guesses::default()).unwrap().demand.ports
        };
        let [mul, (found, cycles)] = asked(&[("p0", 0.3)])[..] else { panic!("two sets") };
        assert_eq!((mul, found), ((MULS, 0.3), div));
        assert!((cycles - 0.6).abs() < 1e-15, "{cycles}");
        assert_eq!(asked(&[("p0", 0.3), ("div", 0.5)]), [(MULS, 0.3), (div, 0.5)]);
    }

    #[test]
    fn what_cannot_be() {
        let error = |phase: Phase| phase.on(&core(), &Guesses::default()).unwrap_err();
        let of = |component, expected, found: f64| {
            PhaseError(format!("expected {component} to be {expected}, found {found}"))
        };
        let phase = Phase { slots: known(-1.0), ..Phase::default() };
        assert_eq!(error(phase), of("slots", "a number from 0 to 1e6", -1.0));
        let phase = Phase { parallel_misses: known(0.5), ..Phase::default() };
        assert_eq!(error(phase), of("parallel-misses", "a number from 1 to 1e6", 0.5));
        let phase = Phase { written_back: known(1.5), ..Phase::default() };
        assert_eq!(error(phase), of("written-back", "a number from 0 to 1", 1.5));
        let work = known(PortWork::Kinds(vec![(WorkKind::Int, f64::INFINITY)]));
        let phase = Phase { work, ..Phase::default() };
        assert_eq!(error(phase), of("work", "a number from 0 to 1e6", f64::INFINITY));
    }
}
