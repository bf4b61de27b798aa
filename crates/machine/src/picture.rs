//! Text picture of a machine: a tree of shared parts, then a table each for caches, kinds and
//! nodes.
//!
//! ```text
//! package 0
//!   node 0  16 GiB
//!     L3 8 MiB  [0 32] [8 40]
//! ```
//!
//! A bracket is a core with the kernel's numbers of its PUs. Cores in braces share a cache below
//! the last level. PUs in parentheses may not be used. Cores are counted instead of drawn if a line
//! would be too long. If there are very many caches, equal caches are counted too.

mod tables;

use crate::cpulist::PuSet;
use crate::ids::{CacheIdx, CoreIdx, NodeIdx, PackageIdx, PuIdx};
use crate::machine::{Cache, CacheKind, Machine};
use crate::printable::printable;
use crate::units::Bytes;
use crate::usable::Usable;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Longest row of cores drawn, in characters; the rest of an 80-column line is for indentation and
/// a label.
const ROW_WIDTH: usize = 60;

/// Most rows of cores drawn for one cache; more cores are counted.
const ROWS: usize = 4;

/// Most last-level caches drawn separately.
const DOMAINS: usize = 32;

/// Draws a machine and, if given, its usable PUs and limits.
///
/// # Panics
/// If `machine` does not pass [`Machine::check`].
#[must_use]
pub fn picture(machine: &Machine, usable: Option<&Usable>) -> String {
    let drawing = Drawing::of(machine, usable);
    let mut text = tables::header(machine);
    text.push('\n');
    text.push_str(&drawing.tree());
    for table in [
        tables::caches(machine),
        tables::kinds(machine),
        tables::nodes(machine),
        tables::offline(machine),
        usable.map(|usable| tables::usable(machine, usable)).unwrap_or_default(),
    ] {
        if !table.is_empty() {
            text.push('\n');
            text.push_str(&table);
        }
    }
    text
}

/// `L1d`, `L1i`, `L2`, …
fn cache_name(cache: &Cache) -> String {
    let suffix = match cache.kind {
        CacheKind::Data => "d",
        CacheKind::Instruction => "i",
        CacheKind::Unified => "",
    };
    format!("L{}{suffix}", cache.level)
}

/// Size, or `size unknown`.
fn size_or_unknown(size: Option<Bytes>) -> String {
    size.map_or_else(|| "size unknown".into(), |size| size.to_string())
}

/// `1 core`, `2 cores`.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Kernel numbers of PUs, as a list.
fn list(machine: &Machine, pus: &[PuIdx]) -> String {
    pus.iter().map(|pu| machine.pus[pu.idx()].os).collect::<PuSet>().to_string()
}

/// Neighbouring cores with the same package, node and last-level cache.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Domain {
    package: PackageIdx,
    node: Option<NodeIdx>,
    last_level: Option<CacheIdx>,
    cores: Vec<CoreIdx>,
}

impl Domain {
    /// True if a core with these parts belongs to the domain.
    fn takes(&self, other: &Self) -> bool {
        (self.package, self.node, self.last_level) == (other.package, other.node, other.last_level)
    }
}

struct Drawing<'a> {
    machine: &'a Machine,
    /// PUs that may not be used.
    barred: BTreeSet<PuIdx>,
    /// All domains, in logical order.
    domains: Vec<Domain>,
    /// Cache below the last level that each core shares with neighbours.
    cluster: Vec<Option<CacheIdx>>,
}

impl<'a> Drawing<'a> {
    fn of(machine: &'a Machine, usable: Option<&Usable>) -> Self {
        let mut barred = BTreeSet::new();
        if let Some(usable) = usable {
            barred.extend(machine.all_pus());
            barred.retain(|pu| usable.pus.binary_search(pu).is_err());
        }
        Self { machine, barred, domains: domains(machine), cluster: clusters(machine) }
    }

    fn tree(&self) -> String {
        let mut text = String::new();
        let merged = self.merged();
        let groups = merged.chunk_by(|a, b| (a.0.package, a.0.node) == (b.0.package, b.0.node));
        let mut package = None;
        for group in groups {
            let (domain, _) = &group[0];
            let alone = self.one_node(domain.package);
            if package != Some(domain.package) {
                package = Some(domain.package);
                let node = if alone { self.node_label(domain.node, ", ") } else { String::new() };
                // Writing to a string cannot fail, here and below.
                let _ = writeln!(text, "package {}{node}", domain.package.0);
            }
            if !alone && domain.node.is_some() {
                let _ = writeln!(text, "  {}", self.node_label(domain.node, ""));
            }
            let indent = if alone { 2 } else { 4 };
            self.draw_group(&mut text, group, indent);
        }
        text.push_str(&self.legend(&text));
        text
    }

    /// True if all cores of a package have the same node, or none has a node.
    fn one_node(&self, package: PackageIdx) -> bool {
        let cores = &self.machine.packages[package.idx()].cores;
        let mut nodes = cores.iter().map(|core| self.machine.cores[core.idx()].node);
        let first = nodes.next();
        nodes.all(|node| Some(node) == first)
    }

    /// Name of the node, with its memory unless several packages share the node.
    fn node_label(&self, node: Option<NodeIdx>, comma: &str) -> String {
        let Some(node) = node.map(|node| &self.machine.nodes[node.idx()]) else {
            return String::new();
        };
        let cores = node.pus.iter().map(|pu| &self.machine.cores[self.machine.core_of(*pu).idx()]);
        let packages: BTreeSet<PackageIdx> = cores.map(|core| core.package).collect();
        let whole = packages.len() <= 1;
        let memory = if whole { tables::memory(node) } else { "shared by packages".into() };
        format!("{comma}node {}  {memory}", node.os.0).trim_end().into()
    }

    /// Domains to draw, each with the number of equal domains joined.
    fn merged(&self) -> Vec<(Domain, usize)> {
        let mut merged: Vec<(Domain, usize)> = Vec::new();
        let many = self.domains.len() > DOMAINS;
        for domain in &self.domains {
            match merged.last_mut() {
                Some((last, times)) if many && self.alike(last, *times, domain) => {
                    last.cores.extend(&domain.cores);
                    *times += 1;
                }
                _ => merged.push((domain.clone(), 1)),
            }
        }
        merged
    }

    /// True if `domain` is equal to each of the `times` domains joined in `joined`.
    fn alike(&self, joined: &Domain, times: usize, domain: &Domain) -> bool {
        (joined.package, joined.node) == (domain.package, domain.node)
            && self.last_level_shape(joined) == self.last_level_shape(domain)
            && joined.cores.len() == domain.cores.len() * times
    }

    /// Level, kind, size and number of PUs of a domain's last-level cache.
    fn last_level_shape(&self, domain: &Domain) -> Option<(u8, CacheKind, Option<Bytes>, usize)> {
        let cache = &self.machine.caches[domain.last_level?.idx()];
        Some((cache.level, cache.kind, cache.size, cache.pus.len()))
    }

    fn draw_group(&self, text: &mut String, group: &[(Domain, usize)], indent: usize) {
        let labels: Vec<String> = group.iter().map(|(domain, n)| self.label(domain, *n)).collect();
        let width = labels.iter().map(String::len).max().unwrap_or(0);
        for ((domain, times), label) in group.iter().zip(&labels) {
            let rows = self.rows(domain, *times);
            for (index, row) in rows.iter().enumerate() {
                let label = if index == 0 { label.as_str() } else { "" };
                let _ = writeln!(text, "{:indent$}{label:width$}  {row}", "");
            }
        }
    }

    /// Label of a domain: its last-level cache, and the number of domains joined.
    fn label(&self, domain: &Domain, times: usize) -> String {
        let cache = domain.last_level.map(|cache| &self.machine.caches[cache.idx()]);
        let mut label = cache.map_or_else(
            || "no shared cache".into(),
            |cache| format!("{} {}", cache_name(cache), size_or_unknown(cache.size)),
        );
        if times > 1 {
            label = format!("{times} x {label}");
        }
        label
    }

    /// Cores of a domain, drawn or counted, one entry a row.
    fn rows(&self, domain: &Domain, times: usize) -> Vec<String> {
        let mut rows = vec![String::new()];
        let clusters = domain.cores.chunk_by(|a, b| {
            self.cluster[a.idx()].is_some() && self.cluster[a.idx()] == self.cluster[b.idx()]
        });
        let mut kind = None;
        for cores in clusters {
            let boxes = cores.iter().map(|core| self.core(*core)).collect::<Vec<_>>().join(" ");
            let braces = self.cluster[cores[0].idx()].is_some();
            let mut drawn = if braces { format!("{{{boxes}}}") } else { boxes };
            // On a heterogeneous machine, the first core of each run of one kind has the kind's
            // name.
            let here = self.machine.cores[cores[0].idx()].kind;
            if kind.replace(here) != Some(here) && self.machine.kinds.len() > 1 {
                drawn = format!("{} {drawn}", printable(&self.machine.kinds[here.idx()].name));
            }
            let row = rows.last_mut().expect("begins with one row");
            if row.is_empty() {
                *row = drawn;
            } else if row.len() + 1 + drawn.len() <= ROW_WIDTH {
                *row = format!("{row} {drawn}");
            } else {
                rows.push(drawn);
            }
        }
        // A cluster that is never split over rows may exceed a row's width.
        let drawable = rows.len() <= ROWS && rows.iter().all(|row| row.len() <= 2 * ROW_WIDTH);
        if times > 1 || !drawable { vec![self.counted(domain, times)] } else { rows }
    }

    /// `[0 32]`, with parentheses around PUs that may not be used.
    fn core(&self, core: CoreIdx) -> String {
        let pus = self.machine.cores[core.idx()].pus.iter().map(|pu| {
            let number = self.machine.pus[pu.idx()].os.0;
            if self.barred.contains(pu) { format!("({number})") } else { number.to_string() }
        });
        let pus: Vec<String> = pus.collect();
        format!("[{}]", pus.join(" "))
    }

    /// `64 cores, PUs 0-63,512-575, siblings 512 apart`.
    fn counted(&self, domain: &Domain, times: usize) -> String {
        let cores = &domain.cores;
        let pus: Vec<PuIdx> =
            cores.iter().flat_map(|core| self.machine.cores[core.idx()].pus.clone()).collect();
        let each = match times {
            1 => count(cores.len(), "core"),
            _ => format!("each {}", count(cores.len() / times, "core")),
        };
        let apart = self.sibling_distance(cores);
        let apart = apart.map_or(String::new(), |apart| format!(", siblings {apart} apart"));
        format!("{each}, PUs {}{apart}", list(self.machine, &pus))
    }

    /// Difference between the numbers of neighbouring siblings; `None` if the difference varies.
    fn sibling_distance(&self, cores: &[CoreIdx]) -> Option<u32> {
        let mut steps = cores.iter().flat_map(|core| {
            let pus = &self.machine.cores[core.idx()].pus;
            pus.windows(2).map(|pair| {
                let [a, b] = [pair[0], pair[1]].map(|pu| self.machine.pus[pu.idx()].os.0);
                // The kernel may number siblings downwards, which is no distance.
                b.checked_sub(a)
            })
        });
        let first = steps.next()??;
        steps.all(|step| step == Some(first)).then_some(first)
    }

    /// Legend of the signs in `drawn`.
    fn legend(&self, drawn: &str) -> String {
        let mut signs = Vec::new();
        if drawn.contains('[') {
            signs.push("[a b] a core with its PUs".to_owned());
        }
        if drawn.contains('{') {
            let caches: BTreeSet<_> = self.cluster.iter().flatten().collect();
            let caches = caches.iter().map(|cache| &self.machine.caches[cache.idx()]);
            let names: BTreeSet<String> = caches.map(cache_name).collect();
            let names: Vec<String> = names.into_iter().collect();
            signs.push(format!("{{...}} cores that share an {}", names.join(" or an ")));
        }
        if drawn.contains('(') {
            signs.push("(n) a PU that may not be used".into());
        }
        if signs.is_empty() { String::new() } else { format!("  {}\n", signs.join("; ")) }
    }
}

/// Divides the cores into domains, in logical order.
fn domains(machine: &Machine) -> Vec<Domain> {
    let mut domains: Vec<Domain> = Vec::new();
    for (index, core) in machine.cores.iter().enumerate() {
        let one = Domain {
            package: core.package,
            node: core.node,
            last_level: machine.last_level_cache(core.pus[0]).filter(|cache| {
                // A cache of a single core groups nothing, and is shown only for a machine of one
                // core.
                machine.cores.len() == 1 || machine.caches[cache.idx()].pus.len() > core.pus.len()
            }),
            cores: vec![CoreIdx::new(index)],
        };
        match domains.last_mut().filter(|last| last.takes(&one)) {
            Some(last) => last.cores.extend(one.cores),
            None => domains.push(one),
        }
    }
    domains
}

/// For each core, the highest cache below the last level that other cores share.
fn clusters(machine: &Machine) -> Vec<Option<CacheIdx>> {
    let mut clusters = vec![None; machine.cores.len()];
    for (index, cache) in machine.caches.iter().enumerate() {
        let cores: BTreeSet<CoreIdx> = cache.pus.iter().map(|&pu| machine.core_of(pu)).collect();
        let last = machine.last_level_cache(cache.pus[0]);
        let below = last.is_some_and(|last| machine.caches[last.idx()].level > cache.level);
        // Caches are listed from the nearest level on, so a higher level replaces a lower one.
        if cores.len() > 1 && below {
            for core in cores {
                clusters[core.idx()] = Some(CacheIdx::new(index));
            }
        }
    }
    clusters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::described::{MACHINES, from_toml};
    use crate::speeds;

    /// Everything that a file can name, drawn.
    fn drawn(name: impl Fn(&str) -> String) -> String {
        let text = MACHINES.iter().find(|(found, _)| *found == "amp-4x12").expect("there").1;
        let exact = from_toml(text).expect("described");
        let (mut machine, mut performance) = (exact.machine, exact.performance.expect("described"));
        machine.name = name("m");
        machine.processor = Some(name("p"));
        machine.kinds.iter_mut().for_each(|kind| kind.name = name("k"));
        for core in &mut performance.kinds {
            core.llvm_cpu = Some(name("l"));
            core.ports.iter_mut().for_each(|port| *port = name(port));
        }
        picture(&machine, None) + &speeds(&machine, &performance)
    }

    /// Kinds of cores are a column that others follow; Rust pads to at most 65,535 characters, and panics beyond.
    #[test]
    fn long_names_of_kinds_are_cut() {
        let text = drawn(|name| name.repeat(70_000));
        assert!(text.contains(&format!("  {}…  capacity", "k".repeat(239))));
    }

    #[test]
    fn names_neither_drive_a_terminal_nor_add_lines() {
        let hostile = drawn(|name| format!("{name}\u{1b}[2J\n\u{9b}x"));
        assert!(!hostile.contains(|letter: char| letter.is_control() && letter != '\n'));
        assert_eq!(hostile, drawn(|name| format!(r"{name}\x1b[2J\x0a\x9bx")));
    }
}
