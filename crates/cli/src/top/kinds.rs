//! Kinds of cores on which the processes of a row run.

use colocate_machine::{Machine, Nanos, PuNr};
use serde::Serialize;
use std::collections::BTreeMap;

/// The kind of core of each PU, where kinds differ.
#[derive(Default)]
pub struct Kinds(BTreeMap<PuNr, String>);

/// Share of CPU time on a kind of core.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
pub struct KindShare<'a> {
    /// Name of the kind.
    pub kind: &'a str,
    /// Share of the CPU time, 0 to 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub share: f64,
}

impl Kinds {
    /// Kinds of a machine's cores; empty if the machine is unknown or has one kind.
    pub fn of(machine: Option<&Machine>) -> Self {
        let Some(machine) = machine.filter(|machine| machine.kinds.len() > 1) else {
            return Self::default();
        };
        let kinds = machine.pus.iter().map(|pu| {
            let kind = machine.cores[pu.core.idx()].kind;
            (pu.os, machine.kinds[kind.idx()].name.clone())
        });
        Self(kinds.collect())
    }

    /// Share of the time on each kind, largest first; empty if all are alike or nothing ran.
    pub fn shares(&self, places: &BTreeMap<PuNr, Nanos>) -> Vec<KindShare<'_>> {
        let mut ran: BTreeMap<&str, Nanos> = BTreeMap::new();
        for (pu, time) in places {
            if let Some(kind) = self.0.get(pu) {
                *ran.entry(kind).or_default() += *time;
            }
        }
        let sum = ran.values().fold(Nanos::ZERO, |sum, time| sum + *time).as_secs_f64();
        let known = ran.into_iter().filter(|_| sum > 0.0);
        let shares = known.map(|(kind, time)| KindShare { kind, share: time.as_secs_f64() / sum });
        let mut shares: Vec<KindShare<'_>> = shares.collect();
        shares.sort_by(|one, other| other.share.total_cmp(&one.share));
        shares
    }
}
