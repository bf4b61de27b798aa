//! What a sample stands for.
//!
//! # Problem
//! Samples count time, a mix counts instructions. Where an instruction waits, samples pile up.
//! # Approach
//! [`rates`](super::rates) tells how often each block of a function has run. A sample in a loop
//! stands for the blocks of that loop, without those of loops inside it, each as often as it has
//! run; a sample outside of loops for all blocks outside of loops. Threads share the rates, because
//! they run the same code; each thread's own samples say how much of its time each loop takes.
//! # Limits
//! Between loops and functions, time stands for instructions: a function with twice the cycles per
//! instruction weighs twice what it should. Nothing that samples alone can tell corrects this.
//! # Terms
//! *Site*: an instruction of a file. *Unit*: the blocks with the same innermost loop.

use super::flow::{Graph, LoopIdx};
use super::image::Image;
use super::live;
use super::maps::{FileIdx, Spaces};
use super::rates::rates;
use super::shares::Shares;
use colocate_isa::Decoder;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// A place in [`Weigher`]'s list of sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteIdx(u32);

/// All instructions of files that were sampled, and what each stands for.
#[derive(Debug, Default)]
pub struct Weigher {
    sites: Vec<Site>,
    by_place: HashMap<(FileIdx, u64), SiteIdx>,
    images: BTreeMap<FileIdx, Option<Image>>,
}

#[derive(Debug)]
struct Site {
    file: FileIdx,
    offset_b: u64,
    hits: u32,
    shares: Option<Shares>,
}

/// A longer function is taken to have wrong bounds. Chosen: the largest function of Debian 12's
/// CPython and node is below 200 KiB.
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
        let mut by_function: BTreeMap<(FileIdx, u64), Function> = BTreeMap::new();
        for (place, site) in self.sites.iter_mut().enumerate() {
            let open = || Image::open(spaces.path(site.file));
            let Some(image) = self.images.entry(site.file).or_insert_with(open) else { continue };
            let Some(address) = image.address(site.offset_b) else { continue };
            match image.function(address) {
                Some(range) if range.end - range.start <= LONGEST_FUNCTION_B => {
                    let function = Function { range: range.clone(), sites: Vec::new() };
                    let known = by_function.entry((site.file, range.start)).or_insert(function);
                    known.sites.push((place, address));
                }
                _ if site.shares.is_none() => site.shares = alone(image, address),
                _ => {}
            }
        }
        for ((file, _), function) in by_function {
            self.weigh_function(file, &function);
        }
    }

    fn weigh_function(&mut self, file: FileIdx, function: &Function) {
        let Some(Some(image)) = self.images.get(&file) else { return };
        let bytes = image.bytes(function.range.clone());
        let code: Vec<_> = Decoder::new(image.isa(), &bytes, function.range.start).collect();
        let seen = function.sites.iter().map(|(_, address)| *address).collect();
        let graph = Graph::of(&code, &seen);
        let mut hits = vec![0_u64; graph.blocks.len()];
        for (place, address) in &function.sites {
            if let Some(block) = graph.block_at(*address) {
                hits[block] += u64::from(self.sites[*place].hits);
            }
        }
        let shares = per_block(&graph, &hits);
        for (place, address) in &function.sites {
            self.sites[*place].shares = graph.block_at(*address).and_then(|block| shares[block]);
        }
    }
}

/// A function that was hit.
struct Function {
    range: Range<u64>,
    /// Places in [`Weigher::sites`] and their addresses.
    sites: Vec<(usize, u64)>,
}

/// What a sample stands for whose function has no known bounds.
fn alone(image: &Image, address: u64) -> Option<Shares> {
    let start = address.saturating_sub(live::BEHIND_B as u64);
    // Before the first byte of a segment there is nothing to read.
    let (start, bytes) = [start, address]
        .map(|start| (start, image.bytes(start..address.saturating_add(live::AHEAD_B as u64))))
        .into_iter()
        .find(|(_, bytes)| !bytes.is_empty())?;
    live::shares_around(image.isa(), start, &bytes, address)
}

/// What a sample in each block stands for, if block `i` was hit `hits[i]` times: the instructions
/// of the innermost loop that it is in, or of what is in none, as often as they have run.
#[allow(clippy::cast_precision_loss)] // samples and instructions are far below 2^52
fn per_block(graph: &Graph, hits: &[u64]) -> Vec<Option<Shares>> {
    let rates = rates(graph, hits);
    let mut units: HashMap<Option<LoopIdx>, (Shares, f64)> = HashMap::new();
    for (place, block) in graph.blocks.iter().enumerate() {
        let (shares, hit) = units.entry(block.innermost).or_default();
        *hit += hits[place] as f64;
        if let Some(of_block) = Shares::of(&block.counts) {
            shares.add_scaled(&of_block, rates[place] * block.counts.instructions as f64);
        }
    }
    let of_unit = |unit: &Option<LoopIdx>| {
        let (sum, hit) = units.get(unit)?;
        let mut shares = Shares::default();
        shares.add_scaled(sum, 1.0 / hit);
        (*hit > 0.0).then_some(shares)
    };
    graph.blocks.iter().map(|block| of_unit(&block.innermost)).collect()
}
