//! What stretches of code ask of a core.

use super::Stretch;
use crate::mca::{Figures, Mca, McaError, Syntax, Target};
use colocate_model::phase::{Known, Phase, Work};
use std::collections::BTreeMap;

/// What `llvm-mca` says of stretches of code.
#[derive(Clone, Debug)]
pub struct Analysis<'a> {
    stretches: &'a [Stretch],
    /// A place in `figures` for each stretch, if it could be simulated.
    of: Vec<Option<usize>>,
    figures: Vec<Figures>,
    target: Target,
    version: u32,
    complaint: Option<String>,
}

impl<'a> Analysis<'a> {
    /// Has `mca` simulate each different one of `stretches` on the processor `target`.
    ///
    /// # Errors
    /// As [`Mca::analyse`]; a stretch that is refused alone is left out.
    pub fn of(mca: &Mca, target: &Target, stretches: &'a [Stretch]) -> Result<Self, McaError> {
        let mut place_of: BTreeMap<&str, usize> = BTreeMap::new();
        let mut texts: Vec<&str> = Vec::new();
        let place = |stretch: &'a Stretch| {
            *place_of.entry(&stretch.text).or_insert_with(|| {
                texts.push(&stretch.text);
                texts.len() - 1
            })
        };
        let places: Vec<usize> = stretches.iter().map(place).collect();
        let (mut complaint, mut figures) = (None, Vec::new());
        let mut kept = Vec::new();
        for found in mca.analyse(target, Syntax::Usual, &texts)? {
            kept.push(found.as_ref().ok().map(|_| figures.len()));
            match found {
                Ok(found) => figures.push(found),
                Err(error) => complaint = complaint.or(Some(error.to_string())),
            }
        }
        let of = places.into_iter().map(|place| kept.get(place).copied().flatten()).collect();
        let (target, version) = (target.clone(), mca.version());
        Ok(Self { stretches, of, figures, target, version, complaint })
    }

    /// Each stretch that could be simulated, with its figures.
    pub fn simulated(&self) -> impl Iterator<Item = (&Stretch, &Figures)> {
        let pairs = self.stretches.iter().zip(&self.of);
        pairs.filter_map(|(stretch, place)| Some((stretch, self.figures.get((*place)?)?)))
    }

    /// Part of the instructions of `thread`, or of all threads, that could be simulated; `None` without any.
    #[must_use]
    pub fn covered(&self, thread: Option<u32>) -> Option<f64> {
        let of_it = |stretch: &&Stretch| thread.is_none_or(|thread| stretch.thread == thread);
        let all: f64 = self.stretches.iter().filter(of_it).map(|stretch| stretch.weight).sum();
        let simulated = self.simulated().map(|(stretch, _)| stretch).filter(of_it);
        let part: f64 = simulated.map(|stretch| stretch.weight).sum();
        (all > 0.0).then(|| part / all)
    }

    /// Why something could not be simulated: the first complaint.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }

    /// The demand of `thread`, or of all threads together, an instruction on average; what machine code
    /// alone does not tell is unknown. `None` if nothing of it could be simulated.
    #[must_use]
    pub fn phase(&self, name: &str, thread: Option<u32>) -> Option<Phase> {
        let of_it = |stretch: &Stretch| thread.is_none_or(|thread| stretch.thread == thread);
        let mut sums = Sums::default();
        self.simulated().filter(|(stretch, _)| of_it(stretch)).for_each(|pair| sums.add(pair));
        (sums.weight > 0.0).then(|| sums.phase(name, &self.target.cpu, &self.source()))
    }

    fn source(&self) -> String {
        format!("llvm-mca {}, {}", self.version, self.target.cpu)
    }
}

/// Figures times weights.
#[derive(Default)]
struct Sums {
    weight: f64,
    slots: f64,
    ports: BTreeMap<Vec<String>, f64>,
    dependent: f64,
    /// `None` once it is unknown of one stretch.
    divided: Option<f64>,
}

impl Sums {
    fn add(&mut self, (stretch, figures): (&Stretch, &Figures)) {
        // A stretch can have more lines than instructions, and figures are of lines.
        #[allow(clippy::cast_precision_loss)] // hundreds
        let lines = figures.instructions.len() as f64 / stretch.instructions as f64;
        let weight = stretch.weight * lines;
        let divided = figures.dependent_cycles_divided.map(|cycles| cycles * weight);
        self.divided = match (self.weight > 0.0, self.divided, divided) {
            (false, _, divided) => divided,
            (true, Some(sum), Some(more)) => Some(sum + more),
            (true, ..) => None,
        };
        self.weight += stretch.weight;
        self.slots += weight * figures.slots;
        self.dependent += weight * figures.dependent_cycles;
        for (ports, cycles) in &figures.ports {
            *self.ports.entry(ports.clone()).or_default() += weight * cycles;
        }
    }

    fn phase(self, name: &str, cpu: &str, source: &str) -> Phase {
        let mean = |sum: f64| Known::new(sum / self.weight, source);
        let groups = self.ports.iter().map(|(ports, sum)| (ports.clone(), sum / self.weight));
        let work = Work::Ports { llvm_cpu: cpu.to_owned(), groups: groups.collect() };
        Phase {
            name: name.to_owned(),
            slots: mean(self.slots),
            work: Known::new(work, source),
            dependent_cycles: mean(self.dependent),
            dependent_cycles_divided: self.divided.map_or_else(Known::default, mean),
            ..Phase::default()
        }
    }
}
