//! Described machines as files.

use colocate_machine::exact::Exact;
use colocate_machine::read;
use serde_json::Value;

/// A described machine in the form that `--machine` reads.
pub fn machine(name: &str) -> Value {
    let seen = read::load(name).unwrap();
    let exact = Exact { performance: seen.performance, ..Exact::new(seen.machine, None) };
    serde_json::from_str(&exact.to_json()).unwrap()
}
