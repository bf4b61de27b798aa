//! Speeds of a machine's parts as text: the table below the [picture](crate::picture()).

use crate::machine::Machine;
use crate::performance::{
    CachePerformance, CorePerformance, ExecutionUnit, Inclusion, LinkPerformance,
    MemoryPerformance, Performance, PortSet, Replacement, WorkKind,
};
use crate::printable::printable;
use crate::units::Cycles;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Formats the speeds of `machine` as a table, 80 columns wide unless names of ports are longer.
///
/// # Panics
/// If the speeds do not pass [`Performance::check`].
#[must_use]
pub fn speeds(machine: &Machine, performance: &Performance) -> String {
    let mut text = String::from("speeds\n");
    for (kind, core) in machine.kinds.iter().zip(&performance.kinds) {
        core_lines(&mut text, &printable(&kind.name), core);
    }
    line(&mut text, "caches", performance.caches.iter().map(cache));
    line(&mut text, "memory", counted(performance.memory.iter().map(memory)));
    let hops = performance.hops.iter().flatten().filter(|hop| hop.0 > 0);
    let hops: BTreeSet<_> = hops.collect();
    line(&mut text, "detours", hops.iter().map(|hop| hop.to_string()));
    line(&mut text, "links", counted(performance.links.iter().map(link)));
    text
}

fn core_lines(text: &mut String, name: &str, core: &CorePerformance) {
    let facts = [
        core.clock.to_string(),
        format!("{} slots a cycle", core.width),
        format!("branch miss {}", core.branch_miss),
        if core.divided { "divided window" } else { "" }.into(),
        if core.thread_sets > 1 {
            format!("{} thread sets", core.thread_sets)
        } else {
            String::new()
        },
        core.llvm_cpu.as_deref().map(printable).unwrap_or_default().into_owned(),
    ];
    line(text, name, facts.into_iter().filter(|fact| !fact.is_empty()));
    for work in WorkKind::ALL {
        let units = core.units.iter().filter(|unit| unit.kind == work);
        let units: Vec<String> = units.map(|unit| unit_text(core, unit)).collect();
        if !units.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {work:<10} {}", units.join(" and "));
        }
    }
}

/// `one of p0 p1`, `div for 20 cycles`.
fn unit_text(core: &CorePerformance, unit: &ExecutionUnit) -> String {
    let mut text = if unit.ports.len() > 1 { "one of ".to_owned() } else { String::new() };
    text.push_str(&ports(core, unit.ports));
    if unit.occupancy != Cycles(1.0) {
        let _ = write!(text, " for {}", unit.occupancy);
    }
    text
}

fn ports(core: &CorePerformance, set: PortSet) -> String {
    let named = core.ports.iter().enumerate().filter(|(bit, _)| set.0 >> bit & 1 == 1);
    named.map(|(_, name)| printable(name)).collect::<Vec<_>>().join(" ")
}

fn cache(cache: &CachePerformance) -> String {
    let inclusion = match cache.inclusion {
        Inclusion::Inclusive => " inclusive",
        Inclusion::Exclusive => " exclusive",
        Inclusion::Neither => "",
    };
    let replacement = match cache.replacement {
        // Unknown values are left out, like unknown bandwidths.
        Replacement::Lru | Replacement::Unknown => "",
        Replacement::Random => " random",
        Replacement::Adaptive => " adaptive",
    };
    let bandwidth = cache.bandwidth.map(|bytes| format!(" {bytes}")).unwrap_or_default();
    format!("L{} {}{inclusion}{replacement}{bandwidth}", cache.level, cache.latency)
}

fn memory(memory: &MemoryPerformance) -> String {
    format!("{}, {}, lines of {}", memory.latency, memory.bandwidth, memory.line)
}

fn link(link: &LinkPerformance) -> String {
    link.bandwidth.to_string()
}

/// Joins equal items, with their number if above 1.
fn counted(items: impl Iterator<Item = String>) -> impl Iterator<Item = String> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for item in items {
        match found.iter_mut().find(|(like, _)| *like == item) {
            Some((_, count)) => *count += 1,
            None => found.push((item, 1)),
        }
    }
    found.into_iter().map(|(item, count)| match count {
        1 => item,
        _ => format!("{count} of {item}"),
    })
}

/// Appends a name and facts, unless there are no facts.
fn line(text: &mut String, name: &str, facts: impl Iterator<Item = String>) {
    let facts: Vec<String> = facts.collect();
    if !facts.is_empty() {
        let _ = writeln!(text, "  {name:<8} {}", facts.join(" · "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::described::{MACHINES, from_toml};
    use expect_test::{Expect, expect};

    fn check(name: &str, expected: &Expect) {
        let text = MACHINES.iter().find(|(found, _)| *found == name).expect(name).1;
        let exact = from_toml(text).expect(name);
        expected.assert_eq(&speeds(&exact.machine, &exact.performance.expect(name)));
    }

    #[test]
    fn one_kind_and_eight_nodes() {
        check(
            "epyc-7301",
            &expect![[r#"
                speeds
                  core     2.70 GHz · 5 slots a cycle · branch miss 18 cycles · divided window · znver1
                    branch     one of ZnALU0 ZnALU3
                    int        one of ZnALU0 ZnALU1 ZnALU2 ZnALU3
                    int-mul    ZnALU1 and ZnMultiplier
                    int-div    ZnALU2 and ZnDivider for 41 cycles
                    float-add  one of ZnFPU2 ZnFPU3
                    float-mul  one of ZnFPU0 ZnFPU1
                    float-div  ZnFPU3 for 5 cycles
                    load       one of ZnAGU0 ZnAGU1
                    store      one of ZnAGU0 ZnAGU1 and ZnStore
                  caches   L1 4 cycles · L2 17 cycles inclusive 64.00 GB/s · L3 40 cycles exclusive 108.00 GB/s
                  memory   8 of 90 ns, 17.50 GB/s, lines of 64 B
                  detours  50 ns · 130 ns
                  links    24 of 21.30 GB/s · 8 of 18.90 GB/s
            "#]],
        );
    }

    #[test]
    fn two_kinds_without_nodes() {
        check(
            "amp-4x12",
            &expect![[r#"
                speeds
                  slow     1.15 GHz · 3 slots a cycle · branch miss 12 cycles
                    branch     one of ieu0 ieu1 ieu2
                    int        one of ieu0 ieu1 ieu2
                    int-mul    ieu0
                    int-div    ieu0 and div for 30 cycles
                    float-add  fadd
                    float-mul  fmul
                    float-div  fmul for 17 cycles
                    load       one of agu0 agu1 agu2 and one of load0 load1
                    store      one of agu0 agu1 agu2 and one of load0 load1
                  fast     2.30 GHz · 3 slots a cycle · branch miss 12 cycles
                    branch     one of ieu0 ieu1 ieu2
                    int        one of ieu0 ieu1 ieu2
                    int-mul    ieu0
                    int-div    ieu0 and div for 30 cycles
                    float-add  fadd
                    float-mul  fmul
                    float-div  fmul for 17 cycles
                    load       one of agu0 agu1 agu2 and one of load0 load1
                    store      one of agu0 agu1 agu2 and one of load0 load1
                  caches   L1 3 cycles · L2 16 cycles exclusive 36.00 GB/s · L3 48 cycles exclusive 36.00 GB/s
                  memory   115 ns, 28.00 GB/s, lines of 64 B
            "#]],
        );
    }
}
