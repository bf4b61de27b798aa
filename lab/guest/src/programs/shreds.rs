//! `shreds NODE CPUS`: fragments a node's free memory: takes all small pages and frees every
//! second. Prints `shredded` and keeps the other pages.

#![allow(unsafe_code)] // mmap, mbind, madvise

use anyhow::{Context as _, ensure};
use std::io::Error;

const PAGE_B: usize = 4096;
/// Bytes taken beyond the node's free memory, from any node: the kernel's reserve varies.
const MORE_B: usize = 16 << 20;

/// Fragments the node's memory.
///
/// # Errors
/// If memory cannot be mapped, bound or locked.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let node: u32 = arguments.first().context("expected NODE, found nothing")?.parse()?;
    let bytes = (free(node)? + MORE_B) / PAGE_B * PAGE_B;
    // SAFETY: maps new memory anywhere.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    ensure!(start != libc::MAP_FAILED, "mmap: {}", Error::last_os_error());
    let nodes = 1_u64 << node;
    // SAFETY: the memory is this process's, and the kernel reads 64 bits of `nodes`.
    let bound = unsafe {
        libc::syscall(libc::SYS_mbind, start, bytes, libc::MPOL_PREFERRED, &raw const nodes, 64, 0)
    };
    ensure!(bound == 0, "mbind: {}", Error::last_os_error());
    // SAFETY: the memory is this process's, and the advice does not change its contents.
    let small = unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
    ensure!(small == 0, "madvise: {}", Error::last_os_error());
    let pages = (start as usize..start as usize + bytes).step_by(PAGE_B);
    for page in pages.clone() {
        // SAFETY: the memory is this process's and writable.
        unsafe { std::ptr::write_volatile(page as *mut u8, 1) };
    }
    // Compaction does not move locked pages. Locked before any page is freed.
    std::fs::write("/proc/sys/vm/compact_unevictable_allowed", "0")?;
    // SAFETY: takes a flag.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) };
    ensure!(locked == 0, "mlockall: {}", Error::last_os_error());
    for page in pages.step_by(2) {
        // SAFETY: the page is this process's, and its contents are not needed.
        let freed =
            unsafe { libc::madvise(page as *mut libc::c_void, PAGE_B, libc::MADV_DONTNEED_LOCKED) };
        ensure!(freed == 0, "madvise: {}", Error::last_os_error());
    }
    println!("shredded");
    super::lives()
}

/// Free memory of a node, in bytes.
fn free(node: u32) -> anyhow::Result<usize> {
    let all = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo"))?;
    let line = all.lines().find_map(|line| line.split_once("MemFree:"));
    let kib = line.context("meminfo without MemFree")?.1.trim().trim_end_matches(" kB");
    Ok(kib.parse::<usize>()? << 10)
}
