//! `colocate calibrate` where there are nodes and siblings. What is measured here says nothing about any machine; that it is
//! measured, kept and shown does.

use crate::evidence::printed;
use anyhow::{Context as _, ensure};
use colocate_machine::NodeNr;
use colocate_machine::calibrated::{Calibration, Pair, What};
use colocate_machine::exact::Exact;

fn kept(json: &str) -> anyhow::Result<Calibration> {
    Exact::from_json(json)?.calibration.context("expected measurements, found none")
}

/// Figures that need two nodes and two PUs on a core are there, and `--show` prints what was kept.
pub(super) fn measures_nodes_and_siblings() -> anyhow::Result<()> {
    let measured = kept(&printed(&["calibrate", "--repeat", "3", "--force", "--json"])?)?;
    let (near, far) = (NodeNr(0), NodeNr(1));
    let wanted = [
        What::PageMove { from: near, to: far },
        What::PageMove { from: far, to: near },
        What::MemoryLatency { from: Some(near), to: Some(far) },
        What::MemoryLatency { from: Some(far), to: Some(near) },
        What::MemoryBandwidth { node: Some(far), pus: 1 },
        What::WakeUp { pair: Pair::SamePu, busy: false },
        What::RoundTrip { pair: Pair::Siblings, busy: true },
        What::Beside { kernel: "fp-add".into(), beside: "branch".into() },
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
