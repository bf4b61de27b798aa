//! Events by which a processor samples accesses to memory with their addresses: Intel's PEBS and AMD's IBS.
//!
//! Found as the perf tool finds them: `/sys/bus/event_source/devices` lists the events and where each of their terms is in the
//! configuration. Not run on a processor that has them: tested on what such machines list, and on samples made by hand. Left out are Intel's
//! processors whose loads need a second event beside them (`mem-loads-aux`), and Arm's SPE, which writes a trace of its own.

use crate::perf::Attr;
use colocate_files::kernel;
use std::path::Path;

/// Loads that take fewer cycles are not sampled. Chosen: the perf tool's default, more than a hit in the second cache takes.
const LEAST_CYCLES: u64 = 30;

/// Count operations and not cycles (`cnt_ctl`, AMD's Processor Programming Reference).
const OPERATIONS: &str = "cnt_ctl=1";

/// What a processor samples accesses with.
#[derive(Debug)]
pub(super) struct MemoryEvents {
    /// What it is, for messages.
    pub name: &'static str,
    /// What is to be opened.
    pub attrs: Vec<Attr>,
}

/// The events under `sys` (usually `/sys`), so often a second; `None` if it lists none.
pub(super) fn find(sys: &Path, rate_hz: u32) -> Option<MemoryEvents> {
    let devices = sys.join("bus/event_source/devices");
    intel(&devices.join("cpu"), rate_hz).or_else(|| amd(&devices.join("ibs_op"), rate_hz))
}

fn intel(device: &Path, rate_hz: u32) -> Option<MemoryEvents> {
    let event = |name: &str| kernel::read_text(&device.join("events").join(name)).ok();
    if event("mem-loads-aux").is_some() {
        return None;
    }
    let attr = |name: &str, precise| {
        let mut config = configuration(device, event(name)?.trim())?;
        if config[1] != 0 {
            config[1] = LEAST_CYCLES;
        }
        Some(Attr::memory(kind(device)?, config, precise, rate_hz))
    };
    let attrs = vec![attr("mem-loads", 2)?, attr("mem-stores", 2)?];
    Some(MemoryEvents { name: "perf events: loads and stores, by PEBS", attrs })
}

fn amd(device: &Path, rate_hz: u32) -> Option<MemoryEvents> {
    let config = configuration(device, OPERATIONS)?;
    let attrs = vec![Attr::memory(kind(device)?, config, 0, rate_hz)];
    Some(MemoryEvents { name: "perf events: operations, by IBS", attrs })
}

/// The number that perf knows a PMU by.
fn kind(device: &Path) -> Option<u32> {
    kernel::read_text(&device.join("type")).ok()?.trim().parse().ok()
}

/// `config` and `config1` by terms such as `event=0xcd,umask=0x1,ldlat=3`.
fn configuration(device: &Path, terms: &str) -> Option<[u64; 2]> {
    let mut words = [0; 2];
    for term in terms.split(',') {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let value = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => value.parse().ok()?,
        };
        let format = kernel::read_text(&device.join("format").join(name)).ok()?;
        let (word, bits) = format.trim().split_once(':')?;
        let word = ["config", "config1"].iter().position(|known| *known == word)?;
        words[word] |= placed(value, bits)?;
    }
    Some(words)
}

/// A value at the bits that it has, such as `0-7,32-35`: its lowest at the first.
fn placed(mut value: u64, bits: &str) -> Option<u64> {
    let mut word = 0;
    for range in bits.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        for bit in first..=last.min(u64::BITS - 1) {
            word |= (value & 1) << bit;
            value >>= 1;
        }
    }
    (value == 0).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Files of a PMU in a tree.
    fn device(name: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (file, content) in files {
            let path = tree.path().join("bus/event_source/devices").join(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{content}\n")).unwrap();
        }
        tree
    }

    const INTEL: &[(&str, &str)] = &[
        ("type", "4"),
        ("format/event", "config:0-7"),
        ("format/umask", "config:8-15"),
        ("format/ldlat", "config1:0-15"),
        ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
        ("events/mem-stores", "event=0xd0,umask=0x82"),
    ];
    const AMD: &[(&str, &str)] = &[("type", "11"), ("format/cnt_ctl", "config:19")];

    fn found(tree: &tempfile::TempDir) -> Option<(&'static str, usize)> {
        find(tree.path(), 250).map(|events| (events.name, events.attrs.len()))
    }

    #[test]
    fn what_processors_list() {
        assert_eq!(
            found(&device("cpu", INTEL)),
            Some(("perf events: loads and stores, by PEBS", 2))
        );
        assert_eq!(found(&device("ibs_op", AMD)), Some(("perf events: operations, by IBS", 1)));
        let sapphire_rapids =
            [INTEL, &[("events/mem-loads-aux", "event=0x03,umask=0x82")]].concat();
        assert_eq!(found(&device("cpu", &sapphire_rapids)), None);
        assert_eq!(found(&device("cpu", &INTEL[..4])), None);
        assert_eq!(found(&device("software", &[("type", "1")])), None);
    }

    #[test]
    fn terms_are_put_where_the_kernel_says() {
        let tree = device("cpu", INTEL);
        let cpu = tree.path().join("bus/event_source/devices/cpu");
        assert_eq!(configuration(&cpu, "event=0xcd,umask=0x1,ldlat=3"), Some([0x1cd, 3]));
        assert_eq!(configuration(&cpu, "event=0x1ff"), None);
        assert_eq!(configuration(&cpu, "unknown=1"), None);
        assert_eq!(placed(0x1ff, "0-7,32-35"), Some(0x1_0000_00ff));
        assert_eq!(placed(0x1000, "0-7,32-35"), None);
        assert_eq!(placed(1, "19"), Some(1 << 19));
    }
}
