//! `colocate calibrate` on nodes and SMT siblings. The values of an emulated machine mean nothing;
//! the cases check that values are measured, kept and shown.

use crate::evidence::printed;
use anyhow::{Context as _, ensure};
use colocate_machine::NodeNr;
use colocate_machine::calibrated::{Calibration, PuDistance, Quantity};
use colocate_machine::exact::Exact;

fn kept(json: &str) -> anyhow::Result<Calibration> {
    Exact::from_json(json)?.calibration.context("expected measurements, found none")
}

/// Figures for two nodes and two PUs of a core are measured, and `--show` prints the kept figures.
pub(super) fn measures_nodes_and_siblings() -> anyhow::Result<()> {
    let measured = kept(&printed(&["calibrate", "--repeat", "3", "--force", "--json"])?)?;
    let near = NodeNr(0);
    let far = NodeNr(1);
    let wanted = [
        Quantity::PageMove { from: near, to: far },
        Quantity::PageMove { from: far, to: near },
        Quantity::MemoryLatency { from: Some(near), to: Some(far) },
        Quantity::MemoryLatency { from: Some(far), to: Some(near) },
        Quantity::MemoryBandwidth { node: Some(far), pus: 1 },
        Quantity::WakeUp { pair: PuDistance::SamePu, busy: false },
        Quantity::RoundTrip { pair: PuDistance::Siblings, busy: true },
        Quantity::Beside { kernel: "fp-add".into(), beside: "branch".into() },
    ];
    for what in &wanted {
        let figure = measured.get(what).with_context(|| {
            format!("expected {what}, found none; absent: {:?}", measured.absent)
        })?;
        ensure!(figure.value > 0.0, "{what}: {figure:?}");
    }
    let shown = kept(&printed(&["calibrate", "--show", "--json"])?)?;
    ensure!(shown == measured, "expected what was measured, found {shown:?}");
    Ok(())
}
