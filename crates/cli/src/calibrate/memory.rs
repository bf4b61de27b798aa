//! Costs of pages and lines of memory, as lines of text for programs compiled by `colocate cc`.

use colocate_machine::calibrated::{Figure, Quantity};
use colocate_machine::{CacheKind, Machine, PuIdx};

/// Name of the file, in the folder of kept measurements.
pub const FILE: &str = "memory";

/// Lines in flight in a loop of reads: by Little's law each takes a tenth of the latency. Assumed.
const AT_A_TIME: f64 = 10.0;

/// Mean value of the chosen figures; `None` without any.
fn mean(figures: &[Figure], is_chosen: impl Fn(&Quantity) -> bool) -> Option<f64> {
    let chosen = figures.iter().filter(|figure| is_chosen(&figure.what));
    let values: Vec<f64> = chosen.map(|figure| figure.value).collect();
    let count = values.len() as f64;
    (count > 0.0).then(|| values.iter().sum::<f64>() / count)
}

/// Costs on a machine with several nodes: `page_move_ns`, `remote_line_ps`, `cache_bytes` and
/// `path_bytes`, a line each. `None` if page moves or latencies were not measured.
pub fn costs(machine: &Machine, figures: &[Figure]) -> Option<String> {
    let page = mean(figures, |what| matches!(what, Quantity::PageMove { .. }))?;
    let local =
        mean(figures, |what| matches!(what, Quantity::MemoryLatency { from, to } if from == to))?;
    let remote =
        mean(figures, |what| matches!(what, Quantity::MemoryLatency { from, to } if from != to))?;
    // In picoseconds. By noise alone the remote node may seem nearer.
    let line_ps = (remote - local).max(0.0) * 1000.0 / AT_A_TIME;
    // All PUs are taken to have caches as PU 0 has.
    let path = machine.caches.iter().filter(|cache| {
        matches!(cache.kind, CacheKind::Data | CacheKind::Unified) && cache.pus.contains(&PuIdx(0))
    });
    let path: Vec<(u64, u64)> =
        path.filter_map(|cache| Some((cache.size?.0, cache.pus.len().max(1) as u64))).collect();
    let all: u64 = path.iter().map(|(size, _)| size).sum();
    let share: u64 = path.iter().map(|(size, pus)| size / pus).sum();
    Some(format!(
        "page_move_ns {page:.0}\nremote_line_ps {line_ps:.0}\ncache_bytes {share}\npath_bytes {all}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_machine::NodeNr;

    #[test]
    fn costs_by_hand() {
        let machine = colocate_machine::read::open("synthetic:numa:2 core:2 pu:1").unwrap();
        let (near, far) = (NodeNr(0), NodeNr(1));
        let latency = |from, to| Quantity::MemoryLatency { from: Some(from), to: Some(to) };
        let figures = [
            (Quantity::PageMove { from: near, to: far }, 900.0),
            (Quantity::PageMove { from: far, to: near }, 1_100.0),
            (latency(near, near), 80.0),
            (latency(far, near), 130.0),
            (latency(near, far), 150.0),
        ];
        let figures = figures.map(|(what, value)| {
            let (unit, source) = (what.unit(), String::new());
            Figure { what, unit, value, low: value, high: value, unix_s: 0, source }
        });
        // 60 ns more, ten at a time. A synthetic machine has no caches.
        let text = "page_move_ns 1000\nremote_line_ps 6000\ncache_bytes 0\npath_bytes 0\n";
        assert_eq!(costs(&machine, &figures).unwrap(), text);
        assert_eq!(costs(&machine, &figures[1..3]), None);
    }
}
