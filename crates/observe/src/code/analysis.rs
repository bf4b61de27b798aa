//! Demand of stretches of code on a core.

use super::{Stretch, Weight};
use crate::mca::{BlockDemand, Mca, McaError, TargetProcessor};
use colocate_machine::performance::WorkKind;
use colocate_model::mix::Class;
use colocate_model::phase::{Known, Phase, PortWork};
use std::collections::BTreeMap;

/// Results of `llvm-mca` on stretches of code.
#[derive(Clone, Debug)]
pub struct Analysis<'a> {
    stretches: &'a [Stretch],
    /// Index into `figures` for each stretch; `None` if the stretch could not be simulated.
    of: Vec<Option<usize>>,
    figures: Vec<BlockDemand>,
    target: TargetProcessor,
    version: u32,
    complaint: Option<String>,
}

/// Stretch with its figures.
#[derive(Clone, Copy, Debug)]
pub struct Simulated<'a> {
    /// The stretch.
    pub stretch: &'a Stretch,
    /// Figures, per line of the stretch's text on average.
    pub figures: &'a BlockDemand,
    /// Lines of text per instruction: some instructions take two lines.
    pub lines: f64,
    /// Instructions that the stretch represents; in an arbitrary unit if only time is known.
    pub instructions: f64,
}

impl<'a> Analysis<'a> {
    /// Simulates each different stretch on the processor `target`.
    ///
    /// # Errors
    /// As [`Mca::analyse`]; a stretch refused alone is left out.
    pub fn of(
        mca: &Mca,
        target: &TargetProcessor,
        stretches: &'a [Stretch],
    ) -> Result<Self, McaError> {
        let mut place_of: BTreeMap<&str, usize> = BTreeMap::new();
        let mut texts: Vec<&str> = Vec::new();
        let mut places: Vec<usize> = Vec::with_capacity(stretches.len());
        for stretch in stretches {
            places.push(*place_of.entry(&stretch.text).or_insert_with(|| {
                texts.push(&stretch.text);
                texts.len() - 1
            }));
        }
        let mut complaint = None;
        let mut figures = Vec::new();
        let mut kept = Vec::new();
        for found in mca.analyse(target, &texts)? {
            kept.push(found.as_ref().ok().map(|_| figures.len()));
            match found {
                Ok(found) => figures.push(found),
                Err(error) => complaint = complaint.or(Some(error.to_string())),
            }
        }
        let of = places.into_iter().map(|place| kept.get(place).copied().flatten()).collect();
        let version = mca.version();
        Ok(Self { stretches, of, figures, target: target.clone(), version, complaint })
    }

    /// Stretches that could be simulated, with their figures.
    pub fn simulated(&self) -> impl Iterator<Item = Simulated<'_>> {
        let pairs = self.stretches.iter().zip(&self.of);
        pairs.filter_map(|(stretch, place)| {
            let figures = self.figures.get((*place)?)?;
            let lines = figures.instructions.len() as f64 / stretch.instructions as f64;
            let instructions = match stretch.weight {
                Weight::Instructions(count) => count,
                Weight::Time(time) => time / (lines * figures.cycles).max(f64::MIN_POSITIVE),
            };
            Some(Simulated { stretch, figures, lines, instructions })
        })
    }

    /// Simulated share of the instructions (or of the time); `None` without stretches.
    #[must_use]
    pub fn covered(&self) -> Option<f64> {
        let all = total(self.stretches.iter());
        let simulated = total(self.simulated().map(|one| one.stretch));
        (all > 0.0).then(|| simulated / all)
    }

    /// First error of a stretch that could not be simulated.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// Mean demand per instruction of `thread`, or of all threads together. Components that machine
    /// code does not show are unknown. `None` if no stretch could be simulated.
    #[must_use]
    pub fn phase(&self, name: &str, thread: Option<u32>) -> Option<Phase> {
        let mut sums = WeightedSums::default();
        for one in self.simulated().filter(|one| is_of(one.stretch, thread)) {
            sums.add(&one);
        }
        (sums.weight > 0.0).then(|| sums.phase(name, &self.target.cpu, &self.source()))
    }

    /// Source of the figures: version of LLVM, and processor.
    #[must_use]
    pub fn source(&self) -> String {
        format!("llvm-mca {}, {}", self.version, self.target.cpu)
    }
}

/// Sum of the weights of `stretches`.
fn total<'a>(stretches: impl Iterator<Item = &'a Stretch>) -> f64 {
    stretches.fold(0.0, |sum, stretch| sum + stretch.weight.value())
}

/// Whether a stretch belongs to `thread`, or to any thread if `None`.
fn is_of(stretch: &Stretch, thread: Option<u32>) -> bool {
    thread.is_none() || stretch.thread == thread
}
/// Work by kind of `thread`, or of all threads together, per instruction on average. Needs no table
/// of LLVM for the core. `None` without stretches.
#[must_use]
pub fn by_kind(stretches: &[Stretch], thread: Option<u32>) -> Option<Phase> {
    let mut kinds = WorkKind::ALL.map(|kind| (kind, 0.0));
    let mut whole = 0.0;
    for stretch in stretches.iter().filter(|stretch| is_of(stretch, thread)) {
        let weight = stretch.weight.value();
        let each = weight / stretch.instructions as f64;
        for ((_, sum), count) in kinds.iter_mut().zip(stretch.kinds) {
            *sum += each * f64::from(count);
        }
        whole += weight;
    }
    let used = kinds.into_iter().filter(|(_, sum)| *sum > 0.0);
    let work = PortWork::Kinds(used.map(|(kind, sum)| (kind, sum / whole)).collect());
    let work = Known::new(work, "machine code, decoded");
    (whole > 0.0).then(|| Phase { work, ..Phase::default() })
}

/// Kinds of each class of work; the first kind gets the class's work of unknown kind.
const KINDS: [(Class, &[WorkKind]); 5] = [
    (Class::Branch, &[WorkKind::Branch]),
    (Class::Float, &[WorkKind::FloatAdd, WorkKind::FloatMul, WorkKind::FloatDiv]),
    (Class::Int, &[WorkKind::Int, WorkKind::IntMul, WorkKind::IntDiv]),
    (Class::Load, &[WorkKind::Load]),
    (Class::Store, &[WorkKind::Store]),
];

/// Converts counted work of `thread` by class to work by kind; each class is divided as in the
/// thread's stretches. Work in another form is returned unchanged.
#[must_use]
pub fn in_kinds(counted: Known<PortWork>, stretches: &[Stretch], thread: u32) -> Known<PortWork> {
    let (Some(PortWork::Classes(mix)), Some(source)) = (counted.get(), counted.source()) else {
        return counted;
    };
    let found = by_kind(stretches, Some(thread));
    let found = found.as_ref().and_then(|phase| phase.work.get());
    let mut all = Vec::new();
    for (class, kinds) in KINDS {
        // An unknown class would count as no work.
        let Some(share) = mix.get(class) else { return counted };
        let whole: f64 = kinds.iter().map(|kind| share_of(found, *kind)).sum();
        for (place, &kind) in kinds.iter().enumerate() {
            let part = if whole > 0.0 {
                share.get() * share_of(found, kind) / whole
            } else if place == 0 {
                share.get()
            } else {
                0.0
            };
            if part > 0.0 {
                all.push((kind, part));
            }
        }
    }
    Known::new(PortWork::Kinds(all), format!("{source}; parts of classes by machine code, decoded"))
}

/// Share of `kind` in work by kind; 0 if unknown.
fn share_of(work: Option<&PortWork>, kind: WorkKind) -> f64 {
    let Some(PortWork::Kinds(kinds)) = work else { return 0.0 };
    kinds.iter().find(|(of, _)| *of == kind).map_or(0.0, |(_, share)| *share)
}
/// Kinds of work whose units some tables of LLVM lack: Golden Cove's starts a division each cycle.
const DIVISIONS: [WorkKind; 2] = [WorkKind::IntDiv, WorkKind::FloatDiv];

/// Front-end cycles of a taken jump. The next fetch address is known only when the jump has been
/// followed, so taken jumps form a dependency chain; `llvm-mca` does not model it. Front ends
/// follow one jump a cycle at best. By Chips and Cheese's measurements ("Popping the Hood on Golden
/// Cove", 2021), Haswell, Sunny Cove, Golden Cove and Zen 3 do so for some 100 to 1,000 jumps;
/// beyond, they need 2 and 3 cycles, which is left out. Left out as well are loop buffers for some
/// dozen instructions, and cores that follow two jumps a cycle.
const CYCLES_A_JUMP: f64 = 1.0;

/// Sums of figures times weights.
#[derive(Default)]
struct WeightedSums {
    weight: f64,
    slots: f64,
    ports: BTreeMap<Vec<String>, f64>,
    /// Instructions of each kind, in the order of [`WorkKind::ALL`].
    kinds: [f64; WorkKind::ALL.len()],
    dependent: f64,
    /// `None` once unknown for a stretch.
    divided: Option<f64>,
}

impl WeightedSums {
    fn add(&mut self, one: &Simulated<'_>) {
        let Simulated { stretch, figures, lines, instructions } = one;
        // Figures are per line of text, weights per instruction.
        let weight = lines * instructions;
        let each = instructions / stretch.instructions as f64;
        let jumps = f64::from(stretch.taken) * CYCLES_A_JUMP * each;
        // The longer of two chains: through values, and through taken jumps.
        let divided = figures.dependent_cycles_divided.map(|cycles| (cycles * weight).max(jumps));
        self.divided = match (self.weight > 0.0, self.divided, divided) {
            (false, _, divided) => divided,
            (true, Some(sum), Some(more)) => Some(sum + more),
            (true, ..) => None,
        };
        self.weight += instructions;
        self.slots += weight * figures.slots;
        self.dependent += (weight * figures.dependent_cycles).max(jumps);
        for (sum, count) in self.kinds.iter_mut().zip(stretch.kinds) {
            *sum += each * f64::from(count);
        }
        for (ports, cycles) in &figures.ports {
            *self.ports.entry(ports.clone()).or_default() += weight * cycles;
        }
    }

    fn phase(self, name: &str, cpu: &str, source: &str) -> Phase {
        let mean = |sum: f64| Known::new(self.per_instruction(sum), source);
        let groups = self.ports.iter();
        let groups = groups.map(|(ports, sum)| (ports.clone(), self.per_instruction(*sum)));
        let groups = groups.filter(|(_, cycles)| *cycles > 0.0);
        let kinds = DIVISIONS.map(|kind| (kind, self.per_instruction(self.kinds[kind as usize])));
        let work = PortWork::Ports {
            llvm_cpu: cpu.to_owned(),
            groups: groups.collect(),
            kinds: kinds.into_iter().filter(|(_, count)| *count > 0.0).collect(),
        };
        Phase {
            name: name.to_owned(),
            slots: mean(self.slots),
            work: Known::new(work, source),
            dependent_cycles: mean(self.dependent),
            dependent_cycles_divided: self.divided.map_or_else(Known::default, mean),
            ..Phase::default()
        }
    }

    /// Mean per instruction.
    fn per_instruction(&self, sum: f64) -> f64 {
        // Six digits: no figure here is more accurate, and the file stays readable.
        (sum / self.weight * 1e6).round() / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_isa::Isa;
    use colocate_model::Mix;

    /// Four instructions, two of them jumps back: two cycles, half of one for each, where dependencies ask
    /// for a tenth. Of a stretch that jumps nowhere dependencies are all there is. Both together: 0.3.
    #[test]
    fn jumps_that_are_taken_depend_on_each_other() {
        let figures = BlockDemand {
            instructions: Vec::new(),
            slots: 1.0,
            ports: Vec::new(),
            cycles: 0.2,
            dependent_cycles: 0.1,
            dependent_cycles_divided: None,
            width: 6,
        };
        let jump = [vec![0xeb, 0xfc], vec![0x90]];
        let stretch = |times: usize| {
            let blocks = std::iter::repeat_n((0, &jump[..]), times);
            Stretch::of(Isa::X86_64, None, Weight::Instructions(1.0), blocks).unwrap()
        };
        let (jumps, straight) = (Stretch { instructions: 4, ..stretch(3) }, stretch(1));
        let mut sums = WeightedSums::default();
        for stretch in [&jumps, &straight] {
            let one = Simulated { stretch, figures: &figures, lines: 1.0, instructions: 1.0 };
            sums.add(&one);
        }
        let found = sums.phase("", "", "test").dependent_cycles;
        assert!((found.get().unwrap() - 0.3).abs() < 1e-12, "{found:?}");
    }

    /// Two stretches of thread 0, 300 instructions of additions and 100 of divisions.
    #[test]
    fn work_by_kind_is_weighted() {
        let stretch = |thread, weight, bytes: &[u8]| {
            let block = [bytes.to_vec()];
            Stretch::of(Isa::X86_64, Some(thread), Weight::Instructions(weight), [(0, &block[..])])
        };
        let all = [
            stretch(0, 300.0, &[0x01, 0xd8]).unwrap(),
            stretch(0, 100.0, &[0xf7, 0xf3]).unwrap(),
            stretch(1, 600.0, &[0x8b, 0x07]).unwrap(),
        ];
        let kinds = |thread| match by_kind(&all, thread).unwrap().work.get() {
            Some(PortWork::Kinds(kinds)) => kinds.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(kinds(Some(0)), [(WorkKind::Int, 0.75), (WorkKind::IntDiv, 0.25)]);
        assert_eq!(kinds(None)[2], (WorkKind::Load, 0.6));
        assert_eq!(by_kind(&all, Some(7)), None);
        // Of 400 counted instructions 200 compute with integers; the stretches say how many of these divide.
        let counted = Mix::from_counts(400, [100, 10, 200, 90, 0]);
        let work = in_kinds(Known::new(PortWork::Classes(counted), "test"), &all, 0);
        let expected = [
            (WorkKind::Branch, 0.25),
            (WorkKind::FloatAdd, 0.025),
            (WorkKind::Int, 0.375),
            (WorkKind::IntDiv, 0.125),
            (WorkKind::Load, 0.225),
        ];
        assert_eq!(work.get(), Some(&PortWork::Kinds(expected.to_vec())));
    }
}
