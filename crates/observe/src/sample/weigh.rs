//! What a sample stands for.
//!
//! # Problem
//! Samples count time, a mix counts instructions. Where an instruction waits, samples pile up.
//! # Approach
//! [`rates`](super::rates) tells how often each block of a function has run. A sample in a loop
//! stands for the blocks of that loop, without those of loops inside it, each as often as it has
//! run; a sample outside of loops for all blocks outside of loops. Threads share the rates, because
//! they run the same code; each thread's own samples say how much of its time each loop takes.
//!
//! An instruction that has far more hits than the others of its unit waits, mostly for memory. Its
//! hits say how long that takes and not how often the unit runs, so what they exceed the others'
//! by is left out.
//! # Limits
//! Apart from that, time stands for instructions between loops and functions: one that is twice as
//! slow in all its instructions weighs twice what it should. Nothing that samples alone can tell
//! corrects this.
//! # Terms
//! *Site*: an instruction of a file. *Unit*: the blocks with the same innermost loop.

use super::flow::{Graph, LoopIdx};
use super::image::Image;
use super::live;
use super::maps::{FileIdx, Spaces};
use super::rates::{flows, rates};
use super::shares::Shares;
use crate::code::{LENGTH, Stretch, Weight, spread, walk};
use colocate_isa::{Decoder, Isa};
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
    /// Kept open until the next look, at most [`KEPT`].
    images: BTreeMap<FileIdx, Image>,
}

/// Files that stay open from look to look. Chosen: more than most programs have; others are read again at each look.
const KEPT: usize = 64;

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
        self.each_file(spaces, |weigher, image, sites| {
            for function in weigher.functions(image, sites).into_values() {
                weigher.weigh_function(image, &function);
            }
        });
    }

    /// Calls `look` with each file that was hit and can be read, and the places of its sites. One after the other,
    /// since there may be more files than descriptors.
    fn each_file(&mut self, spaces: &Spaces, mut look: impl FnMut(&mut Self, &Image, &[usize])) {
        let mut by_file: BTreeMap<FileIdx, Vec<usize>> = BTreeMap::new();
        for (place, site) in self.sites.iter().enumerate() {
            by_file.entry(site.file).or_default().push(place);
        }
        for (file, sites) in by_file {
            let kept = self.images.remove(&file).filter(Image::is_unchanged);
            let open = || Image::of(spaces.file(file)?.open()?);
            let Some(image) = kept.or_else(open) else { continue };
            look(self, &image, &sites);
            if self.images.len() < KEPT {
                self.images.insert(file, image);
            }
        }
    }

    /// The functions of a file that were hit, by address. Sites outside of any are weighed here.
    fn functions(&mut self, image: &Image, sites: &[usize]) -> BTreeMap<u64, Function> {
        let mut by_address: BTreeMap<u64, Function> = BTreeMap::new();
        for &place in sites {
            let site = &mut self.sites[place];
            let Some(address) = image.address(site.offset_b) else { continue };
            match image.function(address) {
                Some(range) if range.end - range.start <= LONGEST_FUNCTION_B => {
                    let function = Function { range: range.clone(), sites: Vec::new() };
                    let known = by_address.entry(range.start).or_insert(function);
                    known.sites.push((place, address));
                }
                _ if site.shares.is_none() => site.shares = alone(image, address),
                _ => {}
            }
        }
        by_address
    }

    fn weigh_function(&mut self, image: &Image, function: &Function) {
        let (graph, hits) = self.drawn(image, function);
        let rates = rates(&graph, &hits);
        let units = units(&graph, &hits, &rates);
        for (place, address) in &function.sites {
            let site = &mut self.sites[*place];
            site.shares = graph.block_at(*address).and_then(|block| {
                units[&graph.blocks[block].innermost].of_sample(site.hits, rates[block])
            });
        }
    }

    /// The control flow of `function`, and how often each block was hit.
    fn drawn(&self, image: &Image, function: &Function) -> (Graph, Vec<u64>) {
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
        (graph, hits)
    }

    /// Stretches of the code that was sampled: at most `count`, each standing for equally many samples.
    /// Code of no known function has none.
    pub fn stretches(&mut self, spaces: &Spaces, count: usize) -> Vec<Stretch> {
        let mut drawn = Vec::new();
        self.each_file(spaces, |weigher, image, sites| {
            for function in weigher.functions(image, sites).into_values() {
                let (graph, hits) = weigher.drawn(image, &function);
                let flows = flows(&graph, &hits);
                let bytes = image.bytes(function.range.clone());
                drawn.push((image.isa(), bytes, function, graph, flows));
            }
        });
        let (mut masses, mut places) = (Vec::new(), Vec::new());
        for (function, (.., graph, flows)) in drawn.iter().enumerate() {
            for (block, rate) in flows.blocks.iter().enumerate() {
                #[allow(clippy::cast_precision_loss)] // instructions of one block
                masses.push(rate * graph.blocks[block].counts.instructions as f64);
                places.push((function, block));
            }
        }
        #[allow(clippy::cast_precision_loss)] // dozens
        let each = masses.iter().sum::<f64>() / count as f64;
        let one = |place: usize| {
            let (function, start) = places[place];
            let (isa, bytes, function, graph, flows) = &drawn[function];
            let walked = walk(graph, flows, start, LENGTH as u64);
            let (start, isa) = (function.range.start, *isa);
            let code = walked.into_iter().filter_map(|block| {
                let block = &graph.blocks[block];
                Some((block.start, instructions(isa, bytes, start, block.start..block.end)?))
            });
            let code: Vec<_> = code.collect();
            let blocks = code.iter().map(|(address, code)| (*address, &code[..]));
            Stretch::of(isa, None, Weight::Time(each), blocks)
        };
        spread(&masses, count).into_iter().filter_map(one).collect()
    }
}

/// The bytes of each instruction at `inside`, of code that begins at address `start`.
fn instructions(isa: Isa, bytes: &[u8], start: u64, inside: Range<u64>) -> Option<Vec<Vec<u8>>> {
    let place = |address: u64| usize::try_from(address - start).ok();
    let block = bytes.get(place(inside.start)?..place(inside.end)?)?;
    let decoded = Decoder::new(isa, block, inside.start);
    let cut = |at: u64, len: u8| {
        let from = usize::try_from(at - inside.start).ok()?;
        block.get(from..from + usize::from(len)).map(<[u8]>::to_vec)
    };
    decoded.map(|found| cut(found.ip, found.len)).collect()
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

/// How many times the hits of the others an instruction may have without waiting: as many as a core
/// retires in one cycle, since an interrupt finds the first of them. Golden Cove and Zen 4 retire 8
/// (Intel's optimization reference manual; AMD's software optimization guide for Zen 4).
const RETIRED_AT_ONCE: f64 = 8.0;

/// So many hits of one instruction may be chance. Chosen: where one is expected, ten or more come
/// about once in ten million times.
const MAY_BE_CHANCE: f64 = 10.0;

/// The blocks with the same innermost loop.
#[derive(Debug, Default)]
struct Unit {
    /// What its instructions do, each as often as it has run.
    shares: Shares,
    /// How many instructions have run, in samples.
    run: f64,
    hits: f64,
}

/// The units of `graph`, of which block `i` was hit `hits[i]` times and has run `rates[i]` times.
#[allow(clippy::cast_precision_loss)] // samples and instructions are far below 2^52
fn units(graph: &Graph, hits: &[u64], rates: &[f64]) -> HashMap<Option<LoopIdx>, Unit> {
    let mut units: HashMap<Option<LoopIdx>, Unit> = HashMap::new();
    for (place, block) in graph.blocks.iter().enumerate() {
        let unit = units.entry(block.innermost).or_default();
        let run = rates[place] * block.counts.instructions as f64;
        unit.hits += hits[place] as f64;
        unit.run += run;
        if let Some(of_block) = Shares::of(&block.counts) {
            unit.shares.add_scaled(&of_block, run);
        }
    }
    units
}

impl Unit {
    /// What each of the `hits` samples of an instruction stands for that has run `rate` times; `None`
    /// without any.
    fn of_sample(&self, hits: u32, rate: f64) -> Option<Shares> {
        let hits = f64::from(hits);
        let (others_hits, others_run) = (self.hits - hits, self.run - rate);
        let most = (RETIRED_AT_ONCE * rate * others_hits / others_run).max(MAY_BE_CHANCE);
        // An instruction that is alone in its unit cannot be compared.
        let counts = if others_run > 0.0 { (most / hits).min(1.0) } else { 1.0 };
        let mut shares = Shares::default();
        shares.add_scaled(&self.shares, counts / self.hits);
        (hits > 0.0).then_some(shares)
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::FileId;
    use super::super::flow::tests::graph;
    use super::super::image::tests::{CODE_B, open_in, program};
    use super::super::maps::Origin;
    use super::*;
    use crate::perf::Mapping;
    use crate::task::Pid;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// The share of int in eight ints with 10 hits each, before a loop of four instructions that are
    /// none and have `in_loop` hits.
    fn int_share(in_loop: [u32; 4]) -> f64 {
        let graph = graph(". . . . . . . . n n n c8 r");
        let hits = [80, in_loop.into_iter().map(u64::from).sum(), 10];
        let rates = rates(&graph, &hits);
        let units = units(&graph, &hits, &rates);
        let mut all = Shares::default();
        let sites = [(0, 10); 8].into_iter().chain(in_loop.map(|hits| (1, hits))).chain([(2, 10)]);
        for (block, hits) in sites.filter(|(_, hits)| *hits > 0) {
            let unit = &units[&graph.blocks[block].innermost];
            all.add(&unit.of_sample(hits, rates[block]).unwrap(), hits.into());
        }
        all.mix().int.unwrap().get()
    }

    #[test]
    fn an_instruction_that_waits_counts_no_more_than_what_a_core_retires_at_once() {
        // Evenly spread, the loop's 1,000 hits are instructions that ran: 80 of 1,090 are ints.
        assert!((int_share([250; 4]) - 80.0 / 1_090.0).abs() < 0.01);
        // The first of some that retire together has the hits of all: nothing waits.
        assert!((int_share([700, 100, 100, 100]) - 80.0 / 1_090.0).abs() < 0.01);
        // Eight times the 10 hits of each other one are left of 970: 80 of 90 + 80 + 30.
        assert!((int_share([970, 10, 10, 10]) - 80.0 / 200.0).abs() < 0.03);
    }

    #[test]
    fn few_hits_may_be_chance() {
        // The loop is run through once: 8 of 13 instructions are ints.
        assert!((int_share([10, 0, 0, 0]) - 8.0 / 13.0).abs() < 0.01);
    }

    /// `imul rax, rdi` 64 times, or additions.
    fn code(multiplies: bool) -> Vec<u8> {
        let one: &[u8] =
            if multiplies { &[0x48, 0x0f, 0xaf, 0xc7] } else { &[0x48, 0x01, 0xf8, 0x90] };
        program(&[&one.repeat(64)[..], &[0xc3]].concat())
    }

    /// Process 1 maps the file that lies there now, and is hit once.
    fn hit(weigher: &mut Weigher, spaces: &mut Spaces, path: &Path) -> SiteIdx {
        let inode = std::fs::metadata(path).unwrap().ino();
        let map = Mapping {
            start: 0x10_0000,
            length_b: 0x10_0000,
            offset_b: 0,
            path: path.as_os_str().as_encoded_bytes(),
        };
        spaces.map(Pid(1), &map, Some(FileId { device: (0, 0), inode, generation: Some(1) }));
        let Origin::File(file, at) = spaces.origin(Pid(1), 0x10_0000 + CODE_B) else { panic!() };
        weigher.site(file, at)
    }

    /// A program is built again while it is sampled: what was hit before stands for nothing that the new one does.
    #[test]
    fn a_program_that_is_built_again_is_weighed_by_its_new_code() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.out");
        let (mut weigher, mut spaces) = (Weigher::default(), Spaces::default());
        std::fs::write(&path, code(false)).unwrap();
        let old = hit(&mut weigher, &mut spaces, &path);
        std::fs::write(folder.path().join("new"), code(true)).unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        let new = hit(&mut weigher, &mut spaces, &path);
        weigher.weigh(&spaces);
        assert_ne!(old, new);
        assert!(weigher.shares(old).is_none(), "its code is gone");
        assert!(weigher.shares(new).is_some());
    }

    /// 1,000 programs are hit. All are weighed, and few of them stay open.
    #[test]
    fn many_programs_need_few_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let (mut weigher, mut spaces) = (Weigher::default(), Spaces::default());
        let sites: Vec<SiteIdx> = (0..1_000)
            .map(|place| {
                let path = folder.path().join(place.to_string());
                std::fs::write(&path, code(true)).unwrap();
                hit(&mut weigher, &mut spaces, &path)
            })
            .collect();
        for _ in 0..2 {
            weigher.weigh(&spaces);
            assert!(sites.iter().all(|site| weigher.shares(*site).is_some()));
            assert_eq!(open_in(folder.path()).0, KEPT);
        }
    }
}
