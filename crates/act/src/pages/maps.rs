//! What is mapped where in a process: `/proc/PID/smaps`, `numa_maps` and `pagemap`.

use super::{Addr, AddressSpan};
use colocate_machine::{Bytes, NodeNr};
use std::collections::BTreeMap;

/// Memory mapping of a process: neighbouring addresses with the same meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryMapping {
    /// First address and first address after the mapping; see [`MemoryMapping::span`].
    start: u64,
    end: u64,
    /// File, or the kernel's name such as `[heap]`; empty for memory without a name.
    pub what: String,
    /// Page size: larger than a small page only for hugetlbfs.
    pub page: Bytes,
    /// Resident memory.
    pub resident: Bytes,
    /// Resident memory in transparent huge pages.
    pub huge: Bytes,
    /// Whether the mapping is of hugetlbfs.
    pub hugetlb: bool,
    /// Whether the memory belongs to a device or the kernel, and cannot be moved.
    pub fixed: bool,
}

impl MemoryMapping {
    /// Address range.
    pub const fn span(&self) -> AddressSpan {
        AddressSpan { start: Addr(self.start), end: Addr(self.end) }
    }

    /// Parses `smaps`. Malformed lines are skipped.
    pub fn parse_all(smaps: &str) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for line in smaps.lines() {
            if let Some(mapping) = head(line) {
                found.push(mapping);
            } else if let (Some(mapping), Some((key, value))) =
                (found.last_mut(), line.split_once(':'))
            {
                mapping.take(key, value);
            }
        }
        found
    }

    fn take(&mut self, key: &str, value: &str) {
        match key {
            "KernelPageSize" => self.page = kib(value),
            "Rss" => self.resident.0 += kib(value).0,
            // The kernel does not count memory of hugetlbfs as resident.
            "Shared_Hugetlb" | "Private_Hugetlb" => self.resident.0 += kib(value).0,
            "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => self.huge.0 += kib(value).0,
            "VmFlags" => {
                let mut flags = value.split_ascii_whitespace();
                self.hugetlb = flags.clone().any(|flag| flag == "ht");
                // `io` is mapped device memory, `pf` page frames without a page structure
                // (proc(5)).
                self.fixed |= flags.any(|flag| flag == "io" || flag == "pf");
            }
            _ => {}
        }
    }
}

/// Size in a value like `12 kB`; 0 if malformed.
fn kib(value: &str) -> Bytes {
    let number = value.split_ascii_whitespace().next().and_then(|number| number.parse().ok());
    Bytes::kib(number.unwrap_or(0))
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Parses the first line of a mapping, a line of `maps`.
fn head(line: &str) -> Option<MemoryMapping> {
    // The last field is a file's name, which may contain spaces.
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let what = fields.nth(4).unwrap_or_default().trim_start();
    let fixed = ["[vdso]", "[vsyscall]"].contains(&what) || what.starts_with("[vvar");
    Some(MemoryMapping {
        start: hex(start)?,
        end: hex(end)?,
        what: what.into(),
        page: Bytes(0),
        resident: Bytes(0),
        huge: Bytes(0),
        hugetlb: false,
        fixed,
    })
}

/// Nodes of a mapping's pages, and the memory policy for new pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingPlacement {
    /// Memory policy in the kernel's format: `default`, `bind:1`, `interleave:0-3`.
    pub policy: String,
    /// Memory per node.
    pub on: BTreeMap<NodeNr, Bytes>,
}

/// Parses `numa_maps`: the mappings with pages, by their first addresses. Malformed lines are
/// skipped.
pub fn placed(numa_maps: &str) -> BTreeMap<Addr, MappingPlacement> {
    numa_maps.lines().filter_map(placed_line).collect()
}

fn placed_line(line: &str) -> Option<(Addr, MappingPlacement)> {
    let (start, rest) = line.split_once(' ')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    // A policy may have spaces and `=` in it, so it ends at the first known keyword.
    let words: Vec<&str> = rest.split(' ').collect();
    let end = words.iter().position(|word| is_known(word)).unwrap_or(words.len());
    let page_kib = words.iter().find_map(|word| word.strip_prefix("kernelpagesize_kB="));
    let page = Bytes::kib(page_kib?.parse().ok()?);
    let on = words[end..].iter().filter_map(|word| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        let pages: u64 = pages.parse().ok()?;
        Some((NodeNr(node.parse().ok()?), Bytes(pages.saturating_mul(page.0))))
    });
    Some((Addr(start), MappingPlacement { policy: words[..end].join(" "), on: on.collect() }))
}

/// Whether the kernel writes `word` after the policy (`show_numa_map` in fs/proc/task_mmu.c).
fn is_known(word: &str) -> bool {
    const KEYS: [&str; 9] = [
        "file",
        "anon",
        "dirty",
        "mapped",
        "mapmax",
        "swapcache",
        "active",
        "writeback",
        "kernelpagesize_kB",
    ];
    match word.split_once('=') {
        Some((key, _)) => KEYS.contains(&key) || is_node(key),
        None => ["heap", "stack", "huge"].contains(&word),
    }
}

/// Whether `key` is `N` and a node's number.
fn is_node(key: &str) -> bool {
    let digits = key.strip_prefix('N').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// Bytes of an entry of `pagemap`.
pub const ENTRY_B: u64 = 8;

/// Runs of pages in memory, as (first page, number of pages), from entries of `pagemap`
/// (Documentation/admin-guide/mm/pagemap.rst: bit 63).
pub fn present_runs(entries: &[u8]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (place, entry) in entries.chunks_exact(8).enumerate() {
        let place = place as u64;
        // The highest bit of a little-endian word is in its last byte; both architectures are so.
        if entry[7] & 0x80 == 0 {
            continue;
        }
        match runs.last_mut() {
            Some((first, pages)) if *first + *pages == place => *pages += 1,
            _ => runs.push((place, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
KernelPageSize:        4 kB
Rss:                2052 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        0 kB
VmFlags: rd wr mr mw me ac sd hg 
7f0000400000-7f0000800000 rw-s 00000000 00:10 12                         /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Rss:                   0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:    2048 kB
VmFlags: rd wr sh mr mw me ms de ht sd 
7ffc00000000-7ffc00004000 r--p 00000000 00:00 0                          [vvar]
Rss:                   0 kB
VmFlags: rd mr pf io de dd sd 
";

    #[test]
    fn smaps_are_read() {
        let found = MemoryMapping::parse_all(SMAPS);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].span().to_string(), "7f0000000000-7f0000400000");
        assert_eq!((found[0].what.as_str(), found[0].page), ("", Bytes::kib(4)));
        assert_eq!((found[0].resident, found[0].huge), (Bytes::kib(2052), Bytes::mib(2)));
        assert!(!found[0].fixed && !found[0].hugetlb);
        assert_eq!(found[1].what, "/anon_hugepage (deleted)");
        assert!(found[1].hugetlb && found[1].resident == Bytes::mib(2));
        assert!(found[2].fixed);
    }

    #[test]
    fn policies_of_every_form() {
        let line =
            |policy: &str| format!("7f00 {policy} anon=3 dirty=3 N0=1 N12=2 kernelpagesize_kB=4");
        for policy in [
            "default",
            "local",
            "bind:1",
            "bind=static:0-1",
            "prefer (many):0,2",
            "weighted interleave:0-3",
        ] {
            let (at, placed) = placed_line(&line(policy)).unwrap();
            assert_eq!((at, placed.policy.as_str()), (Addr(0x7f00), policy));
            let expected = [(NodeNr(0), Bytes::kib(4)), (NodeNr(12), Bytes::kib(8))];
            assert_eq!(placed.on, BTreeMap::from(expected));
        }
    }

    #[test]
    fn names_and_huge_pages_in_numa_maps() {
        let (_, placed) =
            placed_line("7f00 default file=/a/N0=b mapped=2 N1=2 kernelpagesize_kB=4").unwrap();
        assert_eq!(placed.policy, "default");
        assert_eq!(placed.on, BTreeMap::from([(NodeNr(1), Bytes::kib(8))]));
        let (_, placed) =
            placed_line("7f00 bind:0 huge anon=2 N0=2 kernelpagesize_kB=2048").unwrap();
        assert_eq!(placed.on, BTreeMap::from([(NodeNr(0), Bytes::mib(4))]));
        assert_eq!(placed_line("7f00 default"), None);
        assert_eq!(placed_line("nonsense"), None);
    }

    #[test]
    fn runs_of_present_pages() {
        let entries: Vec<u8> = [1, 1, 0, 1, 0, 0, 1]
            .into_iter()
            .flat_map(|present: u64| (present << 63 | 0x1234).to_le_bytes())
            .collect();
        assert_eq!(present_runs(&entries), [(0, 2), (3, 1), (6, 1)]);
        assert_eq!(present_runs(&[]), []);
    }
}
