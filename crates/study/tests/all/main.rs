//! The studies against arithmetic, and against the tables that are kept of them.
#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod fedorova;
mod feliu;
mod kept;
mod orders;
mod serpa;

use colocate_machine::{Machine, Performance, described};

/// A described machine by name.
fn machine(name: &str) -> (Machine, Performance) {
    let text = described::MACHINES.iter().find(|(own, _)| *own == name).unwrap().1;
    (described::from_toml(text).unwrap().machine, described::performance(text).unwrap().unwrap())
}
