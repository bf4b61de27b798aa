//! Processor events that sample memory accesses with their addresses: Intel's PEBS and AMD's IBS.
//!
//! Found as the perf tool finds them: `/sys/bus/event_source/devices` lists the events, and the
//! position of each term in the configuration. Not run on such a processor; tested on the lists of
//! such machines, and on samples made by hand. Left out are Intel's processors whose loads need an
//! auxiliary event (`mem-loads-aux`), and Arm's SPE, which writes its own trace format.

use crate::perf::Attr;
use colocate_files::kernel;
use std::path::Path;

/// Least latency of sampled loads, in cycles. Chosen: perf's default, above a second-level hit.
const LEAST_CYCLES: u64 = 30;

/// Counts operations, not cycles (`cnt_ctl`, AMD's Processor Programming Reference).
const OPERATIONS: &str = "cnt_ctl=1";

/// Memory-access sampling events of a processor.
#[derive(Debug)]
pub(super) struct MemoryEvents {
    /// Name for messages.
    pub name: &'static str,
    /// Events to open.
    pub attrs: Vec<Attr>,
}

/// Events under `sys` (usually `/sys`), at `rate_hz` samples per second; `None` without any.
pub(super) fn find(sys: &Path, rate_hz: u32) -> Option<MemoryEvents> {
    let devices = sys.join("bus/event_source/devices");
    intel(&devices.join("cpu"), rate_hz).or_else(|| amd(&devices.join("ibs_op"), rate_hz))
}

fn intel(device: &Path, rate_hz: u32) -> Option<MemoryEvents> {
    // Loads of these processors need `mem-loads-aux` in the same group, which is not built here.
    if terms(device, "mem-loads-aux").is_some() {
        return None;
    }
    let loads = intel_attr(device, "mem-loads", rate_hz)?;
    let attrs = vec![loads, intel_attr(device, "mem-stores", rate_hz)?];
    Some(MemoryEvents { name: "perf events: loads and stores, by PEBS", attrs })
}
/// Event `name` of an Intel core PMU.
fn intel_attr(device: &Path, name: &str, rate_hz: u32) -> Option<Attr> {
    let mut config = configuration(device, terms(device, name)?.trim())?;
    // The kernel's event lists a latency threshold (`ldlat`) only for loads.
    if config[1] != 0 {
        config[1] = LEAST_CYCLES;
    }
    // 2 requests addresses without skid (perf_event_open(2)).
    Some(Attr::memory(kind(device)?, config, 2, rate_hz))
}

/// Terms of a PMU's event `name`, as sysfs lists them.
fn terms(device: &Path, name: &str) -> Option<String> {
    kernel::read_text(&device.join("events").join(name)).ok()
}

fn amd(device: &Path, rate_hz: u32) -> Option<MemoryEvents> {
    let config = configuration(device, OPERATIONS)?;
    let attrs = vec![Attr::memory(kind(device)?, config, 0, rate_hz)];
    Some(MemoryEvents { name: "perf events: operations, by IBS", attrs })
}

/// PMU type number, for `perf_event_attr::type`.
fn kind(device: &Path) -> Option<u32> {
    kernel::read_text(&device.join("type")).ok()?.trim().parse().ok()
}

/// `config` and `config1` from terms such as `event=0xcd,umask=0x1,ldlat=3`.
fn configuration(device: &Path, terms: &str) -> Option<[u64; 2]> {
    let mut words = [0; 2];
    for term in terms.split(',') {
        // A term without a value is a flag (perf's `parse-events`).
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

/// Spreads `value` over bit ranges such as `0-7,32-35`, lowest first; `None` on overflow.
fn placed(mut value: u64, bits: &str) -> Option<u64> {
    let mut word = 0;
    for range in bits.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: u32 = first.parse().ok()?;
        let last: u32 = last.parse().ok()?;
        // A malformed range must not shift beyond the word.
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
