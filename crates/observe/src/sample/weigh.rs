//! Code that a sample represents.
//!
//! # Problem
//! Samples count time, a mix counts instructions. Samples accumulate where an instruction waits.
//! # Approach
//! [`rates`](super::rates) gives the rate of each block of a function. A sample in a loop
//! represents the blocks of the loop without its inner loops, each by its rate; a sample outside of
//! loops represents all blocks outside of loops. Threads share the rates, because they run the same
//! code; each thread's own samples give the share of its time in each loop.
//!
//! An instruction with far more hits than the others of its unit waits, mostly for memory. Its hits
//! show the length of the wait, not the rate of the unit, so the excess over the other instructions
//! is left out.
//! # Limits
//! Apart from that, time represents instructions between loops and functions: a loop twice as slow
//! in all its instructions has twice its true weight. Samples alone cannot correct this.
//! # Terms
//! *Site*: an instruction of a file. *Unit*: the blocks with the same innermost loop.

use super::budget::StepBudget;
use super::flow::{BlockIdx, Graph, LoopIdx};
use super::image::{Image, LONGEST_FUNCTION_B};
use super::live::{self, CodeBytes};
use super::maps::{FileIdx, Spaces};
use super::rates::{Flows, flows, rates};
use super::shares::Shares;
use crate::code::{LENGTH, Stretch, Weight, spread, walk};
use colocate_isa::Decoder;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Index into the sites of [`Weigher`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteIdx(u32);

/// Sampled instructions of files, and the mix that each represents.
#[derive(Debug, Default)]
pub struct Weigher {
    sites: Vec<HitSite>,
    by_place: HashMap<(FileIdx, u64), SiteIdx>,
    /// Images kept open until the next pass, at most [`KEPT`].
    images: BTreeMap<FileIdx, Image>,
}

/// Files open from pass to pass. Chosen: more than most programs have; others are read again.
const KEPT: usize = 64;

/// Limit of the functions of open files, 64 MiB. Chosen: twenty times those of LLVM 22.
const KEPT_FUNCTIONS: usize = 1 << 22;

/// Budget of one function. Chosen: a tenth of all, so that other functions are read, too, and eight
/// times the cost of the largest of Rust's compiler.
const MOST_STEPS: u64 = super::MOST_STEPS / 10;

#[derive(Debug)]
struct HitSite {
    file: FileIdx,
    offset_b: u64,
    hits: u32,
    shares: Option<Shares>,
}

impl Weigher {
    /// Counts a hit at offset `offset_b` of `file`; returns its site.
    ///
    /// # Panics
    /// With more than 2^32 sites, which no memory holds.
    pub fn site(&mut self, file: FileIdx, offset_b: u64) -> SiteIdx {
        let site = *self.by_place.entry((file, offset_b)).or_insert_with(|| {
            let place = u32::try_from(self.sites.len()).expect("fewer than 2^32 sites");
            self.sites.push(HitSite { file, offset_b, hits: 0, shares: None });
            SiteIdx(place)
        });
        let hits = &mut self.sites[site.0 as usize].hits;
        *hits = hits.saturating_add(1);
        site
    }

    /// Mix of a sample at `site`, as of the last [`Weigher::weigh`]; `None` if it was not decoded.
    pub fn shares(&self, site: SiteIdx) -> Option<&Shares> {
        self.sites[site.0 as usize].shares.as_ref()
    }

    /// Decodes the sampled code and computes the mix that each site represents, files and functions
    /// with the most hits first. Sites beyond `budget` keep their last mix; none if never read.
    pub fn weigh(&mut self, spaces: &Spaces, budget: &mut StepBudget) {
        self.each_file(spaces, budget, |weigher, _, image, sites, budget| {
            for function in weigher.functions(image, sites, budget) {
                // A function over its own budget leaves the rest to the others.
                let _ = budget
                    .within(MOST_STEPS, |budget| weigher.weigh_function(image, &function, budget));
            }
        });
    }

    /// Calls `visit` with each readable file that was hit, and the indices of its sites. One file
    /// after the other, since there may be more files than descriptors.
    fn each_file(
        &mut self,
        spaces: &Spaces,
        budget: &mut StepBudget,
        mut visit: impl FnMut(&mut Self, FileIdx, &Image, &[usize], &mut StepBudget),
    ) {
        let mut by_file: BTreeMap<FileIdx, (u64, Vec<usize>)> = BTreeMap::new();
        for (place, site) in self.sites.iter().enumerate() {
            let (hits, sites) = by_file.entry(site.file).or_default();
            *hits += u64::from(site.hits);
            sites.push(place);
        }
        let mut files: Vec<(FileIdx, (u64, Vec<usize>))> = by_file.into_iter().collect();
        files.sort_by_key(|(_, (hits, _))| Reverse(*hits));
        let mut kept = std::mem::take(&mut self.images);
        let mut functions = 0;
        for (file, (_, sites)) in files {
            let known = kept.remove(&file).filter(Image::is_unchanged);
            let image = known.or_else(|| Image::of(spaces.file(file)?.open()?, budget));
            let Some(image) = image else { continue };
            visit(self, file, &image, &sites, budget);
            functions += image.tables.functions.len();
            if self.images.len() < KEPT && functions <= KEPT_FUNCTIONS {
                self.images.insert(file, image);
            }
        }
    }

    /// Sampled functions of a file, most hits first. Weighs sites outside of functions.
    fn functions(
        &mut self,
        image: &Image,
        sites: &[usize],
        budget: &mut StepBudget,
    ) -> Vec<Function> {
        let mut by_address: BTreeMap<u64, Function> = BTreeMap::new();
        for &place in sites {
            let site = &mut self.sites[place];
            let Some(address) = image.tables.address(site.offset_b) else { continue };
            match image.tables.function(address) {
                Some(range) if range.end - range.start <= LONGEST_FUNCTION_B => {
                    let function = Function { range: range.clone(), hits: 0, sites: Vec::new() };
                    let known = by_address.entry(range.start).or_insert(function);
                    known.hits += u64::from(site.hits);
                    known.sites.push((place, address));
                }
                _ if site.shares.is_none() => {
                    site.shares =
                        budget.within(live::MOST_STEPS, |budget| alone(image, address, budget));
                }
                _ => {}
            }
        }
        let mut functions: Vec<Function> = by_address.into_values().collect();
        functions.sort_by_key(|function| Reverse(function.hits));
        functions
    }

    fn weigh_function(
        &mut self,
        image: &Image,
        function: &Function,
        budget: &mut StepBudget,
    ) -> Option<()> {
        let (graph, hits) = self.drawn(image, function, budget)?;
        let rates = rates(&graph, &hits, budget)?;
        let units = units(&graph, &hits, &rates);
        for (place, address) in &function.sites {
            let site = &mut self.sites[*place];
            site.shares = graph.block_at(*address).and_then(|block| {
                units[&graph.blocks[block].innermost].of_sample(site.hits, rates[block])
            });
        }
        Some(())
    }

    /// Graph of `function`, and the hits of each block.
    fn drawn(
        &self,
        image: &Image,
        function: &Function,
        budget: &mut StepBudget,
    ) -> Option<(Graph, Vec<u64>)> {
        let bytes = image.bytes(function.range.clone());
        let code: Vec<_> = Decoder::new(image.tables.isa, &bytes, function.range.start).collect();
        let seen = function.sites.iter().map(|(_, address)| *address).collect();
        let graph = Graph::of(&code, &seen, budget)?;
        let mut hits = vec![0_u64; graph.blocks.len()];
        for (place, address) in &function.sites {
            if let Some(block) = graph.block_at(*address) {
                hits[block] += u64::from(self.sites[*place].hits);
            }
        }
        Some((graph, hits))
    }

    /// At most `count` stretches of the sampled code, each for equally many samples. Code outside
    /// of known functions, or beyond `budget`, has none.
    pub fn stretches(
        &mut self,
        spaces: &Spaces,
        count: usize,
        budget: &mut StepBudget,
    ) -> Vec<Stretch> {
        let mut masses = Vec::new();
        // End of each function's masses. Decoded twice, only one function is in memory.
        let mut ends: Vec<(FunctionId, usize)> = Vec::new();
        // The second pass decodes the chosen functions again.
        let first = budget.left() / 2;
        budget.within(first, |budget| {
            self.each_flow(
                spaces,
                budget,
                |_| true,
                |id, flow, _| {
                    masses.extend(flow.masses());
                    ends.push((id, masses.len()));
                },
            );
            Some(())
        });
        let mut wanted: BTreeMap<FunctionId, Vec<BlockIdx>> = BTreeMap::new();
        for place in spread(&masses, count) {
            let function = ends.partition_point(|(_, end)| *end <= place);
            let begin = function.checked_sub(1).map_or(0, |before| ends[before].1);
            wanted.entry(ends[function].0).or_default().push(place - begin);
        }
        let each = masses.iter().sum::<f64>() / count as f64;
        let mut found = Vec::new();
        self.each_flow(
            spaces,
            budget,
            |id| wanted.contains_key(id),
            |id, flow, budget| {
                let starts = wanted.get(&id).into_iter().flatten();
                found.extend(starts.filter_map(|start| flow.stretch(*start, each, budget)));
            },
        );
        found
    }

    /// Calls `visit` with each sampled function that is wanted and can be decoded.
    fn each_flow(
        &mut self,
        spaces: &Spaces,
        budget: &mut StepBudget,
        wants: impl Fn(&FunctionId) -> bool,
        mut visit: impl FnMut(FunctionId, &FunctionFlow<'_>, &mut StepBudget),
    ) {
        self.each_file(spaces, budget, |weigher, file, image, sites, budget| {
            for function in weigher.functions(image, sites, budget) {
                let id = (file, function.range.start);
                if !wants(&id) {
                    continue;
                }
                // A function over its own budget leaves the rest to the others.
                let _ = budget.within(MOST_STEPS, |budget| {
                    let (graph, hits) = weigher.drawn(image, &function, budget)?;
                    let flows = flows(&graph, &hits, budget)?;
                    let bytes = image.bytes(function.range.clone());
                    let (isa, start) = (image.tables.isa, function.range.start);
                    let code = CodeBytes { isa, start, bytes: &bytes };
                    visit(id, &FunctionFlow { code, graph, flows }, budget);
                    Some(())
                });
            }
        });
    }
}

/// Function of a file, by its first address.
type FunctionId = (FileIdx, u64);

/// Function with the rates of its blocks and edges.
struct FunctionFlow<'a> {
    code: CodeBytes<'a>,
    graph: Graph,
    flows: Flows,
}

impl FunctionFlow<'_> {
    /// Samples that each block represents.
    fn masses(&self) -> impl Iterator<Item = f64> {
        let blocks = self.graph.blocks.iter().zip(&self.flows.blocks);
        blocks.map(|(block, rate)| rate * block.counts.instructions as f64)
    }

    /// Stretch from block `start` on, which represents `each` samples.
    fn stretch(&self, start: BlockIdx, each: f64, budget: &mut StepBudget) -> Option<Stretch> {
        let walked = walk(&self.graph, &self.flows, start, LENGTH as u64, budget);
        let lengths = walked.iter().map(|block| self.graph.blocks[*block].counts.instructions);
        let length: u64 = lengths.sum();
        if length > LONGEST_STRETCH {
            return None;
        }
        budget.spend(length * STEPS_A_LINE)?;
        let code = walked.into_iter().filter_map(|block| {
            let block = &self.graph.blocks[block];
            let inside = block.start..block.end;
            Some((block.start, instructions(self.code, inside)?))
        });
        let code: Vec<_> = code.collect();
        let blocks = code.iter().map(|(address, code)| (*address, &code[..]));
        Stretch::of(self.code.isa, None, Weight::Time(each), blocks)
    }
}

/// Bytes of each instruction in the address range `inside`.
fn instructions(code: CodeBytes<'_>, inside: Range<u64>) -> Option<Vec<Vec<u8>>> {
    let from = usize::try_from(inside.start - code.start).ok()?;
    let to = usize::try_from(inside.end - code.start).ok()?;
    let block = code.bytes.get(from..to)?;
    let decoded = Decoder::new(code.isa, block, inside.start);
    let cut = decoded.map(|found| {
        let from = usize::try_from(found.ip - inside.start).ok()?;
        block.get(from..from + usize::from(found.len)).map(<[u8]>::to_vec)
    });
    cut.collect()
}

/// A sampled function.
struct Function {
    range: Range<u64>,
    hits: u64,
    /// Indices into [`Weigher::sites`], with the sites' addresses.
    sites: Vec<(usize, u64)>,
}

/// Mix that a sample outside of known functions represents.
fn alone(image: &Image, address: u64, budget: &mut StepBudget) -> Option<Shares> {
    let start = address.saturating_sub(live::BEHIND_B as u64);
    // The range before the first byte of a segment is unreadable; then the code from `address` on.
    let (start, bytes) = [start, address]
        .map(|start| (start, image.bytes(start..address.saturating_add(live::AHEAD_B as u64))))
        .into_iter()
        .find(|(_, bytes)| !bytes.is_empty())?;
    let code = CodeBytes { isa: image.tables.isa, start, bytes: &bytes };
    live::shares_around(code, address, budget)
}

/// Largest ratio of an instruction's hits to the mean of the others without waiting: the
/// instructions that a core retires per cycle, since an interrupt hits the first of them. Golden
/// Cove and Zen 4 retire 8 (Intel's optimization reference manual; AMD's software optimization
/// guide for Zen 4).
const RETIRED_AT_ONCE: f64 = 8.0;

/// Hits of one instruction that may be chance. Chosen: where one hit is expected, ten or more come
/// about once in ten million times.
const MAY_BE_CHANCE: f64 = 10.0;

/// Length limit of a stretch, in instructions; a stretch has [`LENGTH`] and one block. Chosen:
/// unrolled ciphers have blocks of some thousands.
const LONGEST_STRETCH: u64 = 1 << 14;

/// Budget per instruction written as text. Chosen.
const STEPS_A_LINE: u64 = 1_000;

/// Blocks with the same innermost loop.
#[derive(Debug, Default)]
struct WeighedLoop {
    /// Mix of the unit's instructions, each by its rate.
    shares: Shares,
    /// Executed instructions, in samples.
    run: f64,
    hits: f64,
}

/// Units of `graph`; `hits[i]` and `rates[i]` are the hits and rate of block `i`.
fn units(graph: &Graph, hits: &[u64], rates: &[f64]) -> HashMap<Option<LoopIdx>, WeighedLoop> {
    let mut units: HashMap<Option<LoopIdx>, WeighedLoop> = HashMap::new();
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

impl WeighedLoop {
    /// Mix of each of `hits` samples of an instruction with rate `rate`; `None` without samples.
    fn of_sample(&self, hits: u32, rate: f64) -> Option<Shares> {
        let hits = f64::from(hits);
        let others_hits = self.hits - hits;
        let others_run = self.run - rate;
        let most = (RETIRED_AT_ONCE * rate * others_hits / others_run).max(MAY_BE_CHANCE);
        // The only instruction of a unit has no other to compare with.
        let counts = if others_run > 0.0 { (most / hits).min(1.0) } else { 1.0 };
        let mut shares = Shares::default();
        // The samples of a unit together represent all that it executed.
        shares.add_scaled(&self.shares, counts / self.hits);
        (hits > 0.0).then_some(shares)
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::FileId;
    use super::super::flow::tests::{PLENTY, graph};
    use super::super::image::tests::{CODE_B, open_in, program};
    use super::super::maps::CodeLocation;
    use super::*;
    use crate::perf::ExecutableMapping;
    use colocate_linux::Pid;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// The share of int in eight ints with 10 hits each, before a loop of four instructions that are
    /// none and have `in_loop` hits.
    fn int_share(in_loop: [u32; 4]) -> f64 {
        let graph = graph(". . . . . . . . n n n c8 r");
        let hits = [80, in_loop.into_iter().map(u64::from).sum(), 10];
        let rates = rates(&graph, &hits, &mut StepBudget::of(PLENTY)).unwrap();
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
        let map = ExecutableMapping {
            start: 0x10_0000,
            length_b: 0x10_0000,
            offset_b: 0,
            path: path.as_os_str().as_encoded_bytes(),
        };
        spaces.map(Pid(1), &map, Some(FileId { device: (0, 0), inode, generation: Some(1) }));
        let CodeLocation::File(file, at) = spaces.origin(Pid(1), 0x10_0000 + CODE_B) else {
            panic!()
        };
        weigher.site(file, at)
    }

    /// A program is built again while it is sampled: what was hit before represents nothing that the new one does.
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
        weigher.weigh(&spaces, &mut StepBudget::of(PLENTY));
        assert_ne!(old, new);
        assert!(weigher.shares(old).is_none(), "its code is gone");
        assert!(weigher.shares(new).is_some());
    }

    /// Of two programs one is hit three times as often, so that three of four stretches are of its code.
    #[test]
    fn stretches_stand_for_equally_many_samples() {
        let folder = tempfile::tempdir().unwrap();
        let (mut weigher, mut spaces) = (Weigher::default(), Spaces::default());
        for (name, multiplies, hits) in [("adds", false, 3), ("multiplies", true, 1)] {
            let path = folder.path().join(name);
            std::fs::write(&path, with_symbol(code(multiplies))).unwrap();
            for _ in 0..hits {
                hit(&mut weigher, &mut spaces, &path);
            }
        }
        let found = weigher.stretches(&spaces, 8, &mut StepBudget::of(PLENTY));
        let of = |word: &str| found.iter().filter(|one| one.text.starts_with(word)).count();
        assert_eq!((found.len(), of("addq"), of("imulq")), (8, 6, 2));
        assert!(found.iter().all(|one| one.weight == Weight::Time(0.5)));
        assert!(found.iter().all(|one| (LENGTH..2 * LENGTH).contains(&one.instructions)));
        assert!(weigher.stretches(&spaces, 8, &mut StepBudget::of(1_000)).is_empty());
    }

    /// The program with one symbol: a function of all its code.
    fn with_symbol(mut elf: Vec<u8>) -> Vec<u8> {
        let (code, length) = (0x10_0000 + CODE_B, elf.len() as u64 - CODE_B);
        elf.resize(elf.len().next_multiple_of(64), 0);
        let symbol = elf.len() as u64;
        elf.extend([0, 0, 0, 0, 0x12, 0, 1, 0]);
        elf.extend([code, length].map(u64::to_le_bytes).concat());
        elf.resize(elf.len().next_multiple_of(64), 0);
        let headers = elf.len() as u64;
        elf.resize(elf.len() + 64, 0);
        // No name, SHT_SYMTAB, no flags, no address.
        elf.extend([0, 0, 0, 0, 2, 0, 0, 0]);
        elf.extend([0, 0, symbol, 24, 0, 8, 24].map(u64::to_le_bytes).concat());
        elf[40..48].copy_from_slice(&headers.to_le_bytes());
        elf[60..62].copy_from_slice(&2_u16.to_le_bytes());
        elf
    }

    /// A budget for one of two programs: the one that is hit most is weighed, in whatever order they were hit.
    #[test]
    fn what_is_over_budget_counts_as_unread() {
        let folder = tempfile::tempdir().unwrap();
        let (mut weigher, mut spaces) = (Weigher::default(), Spaces::default());
        let mut sites = Vec::new();
        for (name, hits) in [("few", 1), ("many", 5), ("some", 3)] {
            let path = folder.path().join(name);
            std::fs::write(&path, code(true)).unwrap();
            for _ in 0..hits {
                sites.push(hit(&mut weigher, &mut spaces, &path));
            }
        }
        let [few, many, some] = [sites[0], sites[1], sites[6]];
        let mut enough = StepBudget::of(PLENTY);
        weigher.weigh(&spaces, &mut enough);
        let steps = PLENTY - enough.left();
        assert!([few, many, some].iter().all(|site| weigher.shares(*site).is_some()));
        for (part, read) in [(0, 0), (2, 1), (3, 2)] {
            weigher.sites.iter_mut().for_each(|site| site.shares = None);
            weigher.images.clear();
            weigher.weigh(&spaces, &mut StepBudget::of(steps * part / 4));
            let found = [many, some, few].map(|site| weigher.shares(site).is_some());
            assert_eq!(found, [read > 0, read > 1, false], "{part}");
        }
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
            weigher.weigh(&spaces, &mut StepBudget::of(PLENTY));
            assert!(sites.iter().all(|site| weigher.shares(*site).is_some()));
            assert_eq!(open_in(folder.path()).0, KEPT);
        }
    }
}
