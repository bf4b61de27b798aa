//! What the tests of these modules share.

use colocate_machine::{Machine, Performance, described};

/// A described machine by name.
pub fn machine(name: &str) -> (Machine, Performance) {
    let text = described::MACHINES.iter().find(|(found, _)| *found == name).unwrap().1;
    let machine = described::from_toml(text).unwrap().machine;
    (machine, described::performance(text).unwrap().unwrap())
}
