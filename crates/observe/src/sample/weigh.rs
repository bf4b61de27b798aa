//! What a sample stands for.
//!
//! # Problem
//! Samples count time, a mix counts instructions. Where an instruction waits, samples pile up.
//! # Approach
//! Blocks of a function that must run equally often (each leads to the other, in the same loop)
//! form a *strand*. However the samples are spread within a strand, its instructions have run in
//! equal numbers; so a sample stands for the mix of its whole strand.
//! # Terms
//! *Strand*: blocks of the same rank, see [`Block::rank`](super::flow::Block::rank).

use super::flow::Graph;
use super::image::Image;
use super::maps::{FileIdx, Spaces};
use colocate_isa::{Class as IsaClass, ClassCounts, Decoder};
use colocate_model::{Class, Mix, Share};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// A place in [`Weigher`]'s list of sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteIdx(u32);

/// Sums of shares, to be divided by their weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    of: [f64; 5],
    weight: f64,
}

impl Shares {
    /// The shares of the classes in `counts`, with weight 1; `None` if nothing is counted.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a share needs 15 digits at most
    pub fn of(counts: &ClassCounts) -> Option<Self> {
        let whole = counts.instructions as f64;
        (counts.instructions > 0)
            .then(|| Self { of: counts.of.map(|n| n as f64 / whole), weight: 1.0 })
    }

    /// Adds `other`, `times` over.
    #[allow(clippy::cast_precision_loss)] // samples are far below 2^52
    pub fn add(&mut self, other: &Self, times: u64) {
        self.add_scaled(other, times as f64);
    }

    fn add_scaled(&mut self, other: &Self, factor: f64) {
        for (mine, theirs) in self.of.iter_mut().zip(other.of) {
            *mine += theirs * factor;
        }
        self.weight += other.weight * factor;
    }

    /// The mix; all unknown if the weight is 0.
    #[must_use]
    pub fn mix(&self) -> Mix {
        let mut mix = Mix::default();
        for (class, sum) in CLASSES.into_iter().zip(self.of) {
            // Rounding can carry a sum of shares past its weight.
            mix.set(class, Share::new((sum / self.weight).min(1.0)));
        }
        mix
    }
}

/// The model's classes in the order of the decoder's counts.
const CLASSES: [Class; 5] = {
    let mut classes = Class::ALL;
    let mut place = 0;
    while place < IsaClass::ALL.len() {
        classes[place] = match IsaClass::ALL[place] {
            IsaClass::Branch => Class::Branch,
            IsaClass::Float => Class::Float,
            IsaClass::Int => Class::Int,
            IsaClass::Load => Class::Load,
            IsaClass::Store => Class::Store,
        };
        place += 1;
    }
    classes
};

/// All instructions of files that were sampled, and what each stands for.
#[derive(Debug, Default)]
pub struct Weigher {
    sites: Vec<Site>,
    by_place: HashMap<(FileIdx, u64), SiteIdx>,
    images: BTreeMap<FileIdx, Option<Image>>,
    functions: HashMap<(FileIdx, u64), Graph>,
}

#[derive(Debug)]
struct Site {
    file: FileIdx,
    offset_b: u64,
    hits: u32,
    shares: Option<Shares>,
}

/// Functions that are longer are cut to this much around the sample. Chosen: the largest function
/// of Debian 12's CPython and node is below 200 KiB.
const LONGEST_FUNCTION_B: u64 = 1 << 20;

impl Weigher {
    /// The site `offset_b` bytes into `file`, hit once more.
    ///
    /// # Panics
    /// With more than 2^32 sites, which no memory holds.
    pub fn site(&mut self, file: FileIdx, offset_b: u64) -> SiteIdx {
        let new = || {
            let place = u32::try_from(self.sites.len()).expect("fewer than 2^32 sites");
            self.sites.push(Site { file, offset_b, hits: 0, shares: None });
            SiteIdx(place)
        };
        let site = *self.by_place.entry((file, offset_b)).or_insert_with(new);
        let hits = &mut self.sites[site.0 as usize].hits;
        *hits = hits.saturating_add(1);
        site
    }

    /// What a sample at `site` stands for, as of the last [`Weigher::weigh`]; `None` if its code
    /// could not be decoded.
    #[must_use]
    pub fn shares(&self, site: SiteIdx) -> Option<&Shares> {
        self.sites[site.0 as usize].shares.as_ref()
    }

    /// Decodes what has been sampled so far and works out what each site stands for.
    pub fn weigh(&mut self, spaces: &Spaces) {
        let mut by_function: BTreeMap<(FileIdx, u64), Vec<(usize, u64)>> = BTreeMap::new();
        for place in 0..self.sites.len() {
            let Site { file, offset_b, .. } = self.sites[place];
            let image = self.images.entry(file).or_insert_with(|| Image::open(spaces.path(file)));
            let Some(image) = image else { continue };
            let Some(address) = image.address(offset_b) else { continue };
            let function = bounds(image, address);
            self.functions.entry((file, function.start)).or_insert_with(|| {
                let bytes = image.bytes(function.clone());
                let code: Vec<_> = Decoder::new(image.isa(), &bytes, function.start).collect();
                Graph::of(&code)
            });
            by_function.entry((file, function.start)).or_default().push((place, address));
        }
        for (function, sites) in by_function {
            self.weigh_function(function, &sites);
        }
    }

    fn weigh_function(&mut self, function: (FileIdx, u64), sites: &[(usize, u64)]) {
        let graph = &self.functions[&function];
        let shares = per_block(graph);
        for (place, address) in sites {
            self.sites[*place].shares = graph.block_at(*address).and_then(|block| shares[block]);
        }
    }
}

fn bounds(image: &Image, address: u64) -> Range<u64> {
    let found =
        image.function(address).unwrap_or(address..address.saturating_add(LONGEST_FUNCTION_B));
    found.start..found.end.min(found.start.saturating_add(LONGEST_FUNCTION_B))
}

/// What a sample in each block stands for.
fn per_block(graph: &Graph) -> Vec<Option<Shares>> {
    let mut strands: HashMap<usize, ClassCounts> = HashMap::new();
    for block in &graph.blocks {
        *strands.entry(block.rank).or_default() += block.counts;
    }
    graph.blocks.iter().map(|block| Shares::of(&strands[&block.rank])).collect()
}
