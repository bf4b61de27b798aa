//! `memory CPUS REGION...`: memory with known contents. A region is `small:MIB` (small pages),
//! `huge:MIB` (transparent huge pages), `hugetlb:MIB` (pages of hugetlbfs's pool), `shared:MIB`
//! (small pages that a child has mapped too) or `bound:MIB` (small pages with a memory policy).
//! Regions are first written from the PUs of `CPUS`, and so lie on the node of these PUs. With
//! `any` the kernel chooses the PU.
//!
//! The program prints `START-END` of each region as `/proc/PID/maps` does, and then serves the
//! lines of standard input: `where N` (pages of region N by node: `0:16384`), `check` (compares the
//! memory with the written contents), `read CPU` (a thread on that PU reads all regions in a loop).

#![allow(unsafe_code)] // mmap, madvise, mbind, move_pages, fork

use anyhow::{Context as _, bail, ensure};
use std::collections::BTreeMap;
use std::io::Error;
use std::sync::mpsc::channel;

const PAGE_B: usize = 4096;
const BLOCK_B: usize = 2 << 20;

/// Mapped memory of this process.
#[derive(Clone, Copy)]
struct MappedMemory {
    start: usize,
    bytes: usize,
}

/// Maps and writes the regions, and serves the requests.
///
/// # Errors
/// If memory cannot be mapped or moved, or a request is unknown.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let (cpus, words) = arguments.split_first().context("expected CPUS, found nothing")?;
    if cpus != "any" {
        stay_on(&crate::evidence::list(cpus)?)?;
    }
    let regions =
        words.iter().map(|word| MappedMemory::of(word)).collect::<anyhow::Result<Vec<_>>>()?;
    if words.iter().any(|word| word.starts_with("shared")) {
        child()?;
    }
    for region in &regions {
        println!("{:x}-{:x}", region.start, region.start + region.bytes);
    }
    for line in std::io::stdin().lines() {
        let line = line?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("where", place) => {
                let region = regions.get(place.parse::<usize>()?).context("no such region")?;
                println!("{}", region.nodes()?);
            }
            ("check", _) => {
                regions.iter().try_for_each(|region| region.check())?;
                println!("sound");
            }
            ("read", cpu) => {
                read_for_ever(regions.clone(), cpu.parse()?)?;
                println!("reading");
            }
            _ => bail!("expected where, check or read, found {line}"),
        }
    }
    Ok(())
}

impl MappedMemory {
    fn of(word: &str) -> anyhow::Result<Self> {
        let (kind, mib) = word.split_once(':').context("expected KIND:MIB")?;
        let bytes = mib.parse::<usize>()? << 20;
        let region = Self::map(bytes, if kind == "hugetlb" { libc::MAP_HUGETLB } else { 0 })?;
        match kind {
            "huge" => region.advise(libc::MADV_HUGEPAGE)?,
            "hugetlb" => {}
            _ => region.advise(libc::MADV_NOHUGEPAGE)?,
        }
        if kind == "bound" {
            region.bind(0)?;
        }
        for at in (region.start..region.start + bytes).step_by(PAGE_B) {
            // Each page begins with its own address, which `check` expects.
            // SAFETY: the region is writable, and no other thread has its address yet.
            unsafe { std::ptr::write_volatile(at as *mut usize, at) };
        }
        Ok(region)
    }

    fn advise(self, advice: libc::c_int) -> anyhow::Result<()> {
        let start = self.start as *mut libc::c_void;
        // SAFETY: the region is this process's, and the advice does not change its contents.
        let done = unsafe { libc::madvise(start, self.bytes, advice) };
        ensure!(done == 0, "madvise: {}", Error::last_os_error());
        Ok(())
    }

    /// Maps memory aligned to a huge page. The memory is never unmapped.
    fn map(bytes: usize, flags: libc::c_int) -> anyhow::Result<Self> {
        // SAFETY: maps new memory anywhere.
        let found = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                // One block more, to align the start.
                bytes + BLOCK_B,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags,
                -1,
                0,
            )
        };
        ensure!(found != libc::MAP_FAILED, "mmap: {}", Error::last_os_error());
        Ok(Self { start: (found as usize).next_multiple_of(BLOCK_B), bytes })
    }

    fn bind(self, node: u32) -> anyhow::Result<()> {
        let nodes = 1_u64 << node;
        // SAFETY: the region is this process's, and the kernel reads 64 bits of `nodes`.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start,
                self.bytes,
                libc::MPOL_BIND,
                &raw const nodes,
                64,
                0,
            )
        };
        ensure!(done == 0, "mbind: {}", Error::last_os_error());
        Ok(())
    }

    fn pages(self) -> impl Iterator<Item = usize> {
        (self.start..self.start + self.bytes).step_by(PAGE_B)
    }

    fn check(self) -> anyhow::Result<()> {
        for at in self.pages() {
            // SAFETY: the region is readable, and other threads only read it.
            let found = unsafe { std::ptr::read_volatile(at as *const usize) };
            ensure!(found == at, "expected {at:x} in memory, found {found:x}");
        }
        Ok(())
    }

    /// Pages by node, as `NODE:PAGES`; a negative node is the errno of pages on no node.
    fn nodes(self) -> anyhow::Result<String> {
        let pages: Vec<usize> = self.pages().collect();
        let mut nodes = vec![0_i32; pages.len()];
        // SAFETY: both lists have `pages.len()` elements; without nodes the call only reports.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                pages.len(),
                pages.as_ptr(),
                std::ptr::null::<i32>(),
                nodes.as_mut_ptr(),
                0,
            )
        };
        ensure!(done == 0, "move_pages: {}", Error::last_os_error());
        let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
        nodes.iter().for_each(|node| *counts.entry(*node).or_default() += 1);
        let counts = counts.iter().map(|(node, pages)| format!("{node}:{pages}"));
        Ok(counts.collect::<Vec<_>>().join(" "))
    }
}

/// Pins the calling thread to PUs.
fn stay_on(cpus: &[u32]) -> anyhow::Result<()> {
    let mut mask = [0_u64; 16];
    for cpu in cpus {
        mask[*cpu as usize / 64] |= 1 << (cpu % 64);
    }
    // SAFETY: the kernel reads `mask` up to its stated size.
    let done = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    ensure!(done == 0, "sched_setaffinity: {}", Error::last_os_error());
    Ok(())
}

/// Forks a sleeping child, which shares all pages. The child ends with this process.
fn child() -> anyhow::Result<()> {
    // SAFETY: there is only this thread.
    match unsafe { libc::fork() } {
        -1 => Err(Error::last_os_error()).context("fork"),
        0 => {
            // SAFETY: takes a signal number.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            super::lives()
        }
        _ => Ok(()),
    }
}

/// Creates a thread on PU `cpu` that reads a word of each page in a loop.
fn read_for_ever(regions: Vec<MappedMemory>, cpu: u32) -> anyhow::Result<()> {
    let (send, received) = channel();
    std::thread::Builder::new().name("reader".into()).spawn(move || {
        let there = stay_on(&[cpu]);
        let able = there.is_ok();
        // Fails only if the receiver has failed first.
        let _ = send.send(there);
        // Only the accesses matter, not the values.
        while able && regions.iter().all(|region| region.check().is_ok()) {}
    })?;
    received.recv().context("a thread ended at once")?
}
