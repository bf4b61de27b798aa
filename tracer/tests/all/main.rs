//! Parts of the plugin that need no QEMU. One binary: linking several takes longer than running.

#[path = "../../src/distances.rs"]
mod distances;
#[path = "../../src/predictor.rs"]
mod predictor;
#[path = "../../src/recency.rs"]
mod recency;
#[path = "../../src/slots.rs"]
mod slots;
#[path = "../../src/snapshot.rs"]
mod snapshot;
#[path = "../../src/stretches.rs"]
mod stretches;

mod of_distances;
mod of_predictor;
mod of_slots;
mod of_stretches;
