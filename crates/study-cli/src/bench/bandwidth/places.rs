//! PUs of the program and its copies, and the size of a copy's memory. Pure.

use colocate_cli::exit::{self, no_capability};
use colocate_cli::measure::harness::{asked, list};
use colocate_machine::{Cache, CacheKind, Machine, PuIdx, PuNr};
use serde::{Deserialize, Serialize};
use smt_bench::traffic::ROW_BYTES;

/// Which lines the copies request.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestedLines {
    /// Main memory: their lines fit in no cache.
    Memory,
    /// The second cache: their lines do not fit in the first one.
    L2,
}

/// PUs, by the kernel's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasurementPus {
    /// PU of the program.
    pub program: u32,
    /// PUs of the copies, in the order of use.
    pub copies: Vec<u32>,
}

/// Rows of the published matrix; 108 MiB with rows of [`ROW_BYTES`].
pub const PUBLISHED_ROWS: u32 = 196_608;
/// Size of a copy's lines, in times of the cache that must not hold them. Derived for lines in
/// circular order: a cache with random replacement still holds a share h of them with h = exp(-4 (1
/// - h)), which is 2 %; a cache with LRU replacement holds none.
const TIMES: u64 = 4;
/// Default limit of copies, as published for main memory.
const PUBLISHED_COPIES: usize = 3;

/// PUs of the program and of up to `wanted` copies. Named PUs are used in their order, the
/// program's first. Without names, `level` decides: PUs of different cores for memory, PUs of one
/// second cache for [`RequestedLines::L2`].
pub fn places(
    machine: Option<&Machine>,
    usable: &[u32],
    named: Option<Vec<u32>>,
    level: RequestedLines,
    wanted: Option<u32>,
) -> anyhow::Result<MeasurementPus> {
    let mut all = match (named, level, machine) {
        (Some(named), ..) => distinct(asked(Some(named), usable)?)?,
        (None, RequestedLines::L2, Some(machine)) => sharers(machine, usable)?,
        (None, RequestedLines::Memory, Some(machine)) => apart(machine, usable),
        (None, _, None) => usable.to_vec(),
    };
    let default = match level {
        // At least one copy, so that a lack of PUs is an error.
        RequestedLines::Memory => PUBLISHED_COPIES.min(all.len().saturating_sub(1)).max(1),
        RequestedLines::L2 => 1,
    };
    let wanted = wanted.map_or(default, |wanted| wanted as usize);
    if all.len() <= wanted {
        return Err(too_few(&all, wanted));
    }
    all.truncate(1 + wanted);
    Ok(MeasurementPus { program: all.remove(0), copies: all })
}

fn distinct(pus: Vec<u32>) -> anyhow::Result<Vec<u32>> {
    match pus.iter().enumerate().find(|(at, pu)| pus[..*at].contains(pu)) {
        Some((_, pu)) => Err(exit::usage(format!("--cpus: PU {pu} is named twice"))),
        None => Ok(pus),
    }
}

fn too_few(found: &[u32], copies: usize) -> anyhow::Error {
    let plural = if copies == 1 { "copy" } else { "copies" };
    let found = if found.is_empty() { "none".to_owned() } else { format!("only {}", list(found)) };
    no_capability(format!(
        "bench bandwidth needs a PU for the program and one for each of {copies} {plural}, found {found}: \
         widen the affinity mask or cpuset, or reduce their number with --copies"
    ))
}

fn numbers(machine: &Machine, pus: &[PuIdx]) -> Vec<u32> {
    pus.iter().map(|pu| machine.pus[pu.idx()].os.0).collect()
}

/// Usable PUs, the first of each core before the rest.
fn apart(machine: &Machine, usable: &[u32]) -> Vec<u32> {
    let cores = machine.core_sets();
    let core = |pu: u32| cores.iter().position(|core| core.contains(PuNr(pu)));
    let (first, later): (Vec<u32>, Vec<u32>) = usable.iter().partition(|&&pu| {
        // A PU of no known core counts as a core.
        core(pu).is_none() || usable.iter().find(|&&other| core(other) == core(pu)) == Some(&pu)
    });
    [first, later].concat()
}

/// Usable PUs of the first second-level cache with at least two of them.
fn sharers(machine: &Machine, usable: &[u32]) -> anyhow::Result<Vec<u32>> {
    let caches = machine.caches.iter().filter(|cache| cache.level == 2 && holds_data(cache));
    let mut shared = caches.map(|cache| {
        let mut pus = numbers(machine, &cache.pus);
        pus.retain(|pu| usable.contains(pu));
        pus.sort_unstable();
        pus
    });
    shared.find(|pus| pus.len() > 1).ok_or_else(|| {
        no_capability(format!(
            "no two of the usable PUs {} share a second cache, so copies cannot request lines of the program's: \
             name PUs with --cpus to measure all the same, or use --level memory",
            list(usable)
        ))
    })
}

fn holds_data(cache: &Cache) -> bool {
    cache.kind != CacheKind::Instruction
}

/// Rows of a copy's matrix, so that its lines do not fit in the cache above `level` of PU `pu`.
/// `None` if the size of that cache, or for [`RequestedLines::L2`] of the second cache, is unknown.
pub fn rows(machine: &Machine, pu: u32, level: RequestedLines) -> Option<u32> {
    let size = |wanted: Option<u8>| {
        let mine = machine.caches.iter().filter(|cache| {
            holds_data(cache)
                && wanted.is_none_or(|level| cache.level == level)
                && numbers(machine, &cache.pus).contains(&pu)
        });
        mine.max_by_key(|cache| cache.level)?.size
    };
    let rows = match level {
        RequestedLines::Memory => rows_of(TIMES * size(None)?.0).max(PUBLISHED_ROWS.into()),
        RequestedLines::L2 => {
            let first = size(Some(1))?.0;
            let second = size(Some(2))?.0;
            // At most half of the second cache, which has to hold the lines.
            rows_of((TIMES * first).min(second / 2)).max(1)
        }
    };
    u32::try_from(rows).ok()
}

fn rows_of(bytes: u64) -> u64 {
    bytes.div_ceil(ROW_BYTES as u64)
}

/// Refuses `copies` matrices of `rows` rows if they need more than half of the available memory in
/// `meminfo`, the text of /proc/meminfo. The other half is left to the program. Accepts any number
/// if the available memory is unknown.
pub fn check_memory(meminfo: &str, copies: usize, rows: u32) -> anyhow::Result<()> {
    let Some(available) = available_kib(meminfo) else { return Ok(()) };
    let needed = copies as u64 * u64::from(rows) * ROW_BYTES as u64 / 1024;
    if needed <= available / 2 {
        return Ok(());
    }
    Err(no_capability(format!(
        "{copies} copies with {rows} rows need {} MiB: expected at most half of the {} MiB that are \
         available; reduce --copies or --rows",
        needed / 1024,
        available / 1024
    )))
}

fn available_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    // `kB` means 1024 bytes here (proc_meminfo(5)).
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_cli::exit::{Failure, NO_CAPABILITY};
    use colocate_machine::read::synthetic;

    fn told(done: anyhow::Result<MeasurementPus>) -> (u8, String) {
        let error = done.unwrap_err();
        (error.downcast_ref::<Failure>().unwrap().code, error.to_string())
    }

    /// Two cores of two PUs, numbered in order: one of each core first.
    #[test]
    fn copies_for_memory_are_far_away() {
        let machine = synthetic("core:2 pu:2").unwrap();
        let found =
            places(Some(&machine), &[0, 1, 2, 3], None, RequestedLines::Memory, Some(2)).unwrap();
        assert_eq!(found, MeasurementPus { program: 0, copies: vec![2, 1] });
        let found =
            places(Some(&machine), &[0, 1, 2, 3], None, RequestedLines::Memory, None).unwrap();
        assert_eq!(found.copies, [2, 1, 3]);
    }

    #[test]
    fn copies_for_the_second_cache_share_it() {
        let machine = synthetic("l2:3 pu:2").unwrap();
        let found =
            places(Some(&machine), &[0, 2, 3, 4, 5], None, RequestedLines::L2, None).unwrap();
        assert_eq!(found, MeasurementPus { program: 2, copies: vec![3] });
        let (code, line) = told(places(Some(&machine), &[0, 2, 4], None, RequestedLines::L2, None));
        assert_eq!(
            (code, line.as_str()),
            (
                NO_CAPABILITY,
                "no two of the usable PUs 0,2,4 share a second cache, so copies cannot request lines of the program's: name PUs with --cpus to measure all the same, or use --level memory"
            )
        );
    }

    #[test]
    fn named_pus_are_taken_in_their_order() {
        let found =
            places(None, &[0, 1, 2, 3], Some(vec![3, 1, 0]), RequestedLines::L2, Some(2)).unwrap();
        assert_eq!(found, MeasurementPus { program: 3, copies: vec![1, 0] });
        let (code, line) =
            told(places(None, &[0, 1], Some(vec![0, 5, 6]), RequestedLines::Memory, None));
        assert_eq!(code, 2);
        assert!(line.starts_with("--cpus: 5-6 cannot be used: "), "{line}");
        let twice =
            told(places(None, &[0, 1, 2], Some(vec![0, 1, 2, 2]), RequestedLines::Memory, None));
        assert_eq!(twice, (2, "--cpus: PU 2 is named twice".to_owned()));
    }

    #[test]
    fn too_few_pus_are_one_line() {
        let line = "bench bandwidth needs a PU for the program and one for each of 1 copy, found only 4: widen \
                    the affinity mask or cpuset, or reduce their number with --copies";
        let found = told(places(None, &[4], None, RequestedLines::Memory, None));
        assert_eq!(found, (NO_CAPABILITY, line.to_owned()));
        let (_, line) = told(places(None, &[0, 1, 2], None, RequestedLines::Memory, Some(3)));
        assert!(line.contains("each of 3 copies, found only 0-2: "), "{line}");
    }

    /// 4 × 105 MiB are 764,586.7 rows; 4 × 8 MiB are fewer than the published ones.
    #[test]
    fn lines_for_memory_fit_in_no_cache() {
        let rows = |text: &str, level| rows(&synthetic(text).unwrap(), 0, level);
        let large = "l3:1(size=110100480) l2:2(size=2097152) l1d:1(size=49152) core:1 pu:1";
        assert_eq!(rows(large, RequestedLines::Memory), Some(764_587));
        let small = "l3:1(size=8388608) l2:2(size=262144) l1d:1(size=32768) core:1 pu:1";
        assert_eq!(rows(small, RequestedLines::Memory), Some(196_608));
        // 4 × 48 KiB of 2 MiB are 341.3 rows, and half of 256 KiB, which is 4 × 32 KiB, 227.6.
        assert_eq!(rows(large, RequestedLines::L2), Some(342));
        assert_eq!(rows(small, RequestedLines::L2), Some(228));
        // Half of 128 KiB is less than 4 × 32 KiB: 113.8.
        let tiny = "l2:2(size=131072) l1d:1(size=32768) core:1 pu:1";
        assert_eq!(rows(tiny, RequestedLines::L2), Some(114));
        assert_eq!(rows("core:2 pu:1", RequestedLines::Memory), None);
    }

    #[test]
    fn the_program_keeps_half_of_the_memory() {
        let meminfo = "MemTotal: 2000000 kB\nMemAvailable:    1179648 kB\n";
        // 576 MiB are half; 1,024 rows are 576 KiB.
        assert!(check_memory(meminfo, 1, 1_048_576).is_ok());
        let line = check_memory(meminfo, 2, 1_048_576).unwrap_err().to_string();
        assert_eq!(
            line,
            "2 copies with 1048576 rows need 1152 MiB: expected at most half of the 1152 MiB that are \
             available; reduce --copies or --rows"
        );
        assert!(check_memory("", 1_000, u32::MAX).is_ok(), "unknown is no reason to refuse");
    }
}
