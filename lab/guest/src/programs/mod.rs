//! Programs that the cases watch, and that set up what a program may find: `lab-guest --program NAME
//! ARGUMENTS`.

mod event;
mod family;
mod filtered;
pub mod history;
mod loops;
mod memory;
mod pair;
mod phases;
mod rooted;
mod shares;
mod shreds;
mod storm;
mod sudo;
mod team;
mod turns;

use anyhow::{Context as _, bail};
use std::time::Duration;

/// A program; it gets its arguments.
type Program = fn(&[String]) -> anyhow::Result<()>;

const ALL: &[(&str, Program)] = &[
    ("event", event::main),
    ("family", family::main),
    ("filtered", filtered::main),
    ("history", history::main),
    ("loops", loops::main),
    ("memory", memory::main),
    ("pair", pair::main),
    ("phases", phases::main),
    ("rooted", rooted::main),
    ("shares", shares::main),
    ("shreds", shreds::main),
    ("storm", storm::main),
    ("sudo", sudo::main),
    ("team", team::main),
    ("turns", turns::main),
];

/// Runs the program that the first word names.
///
/// # Errors
/// If there is none of that name, or it fails.
pub fn run(words: &[String]) -> anyhow::Result<()> {
    let (name, arguments) = words.split_first().context("expected a program, found none")?;
    match ALL.iter().find(|(known, _)| known == name) {
        Some((_, program)) => program(arguments),
        None => bail!("expected a program of ours, found {name}"),
    }
}

/// Lives on, awake now and then, so that `/proc` says where it would run.
fn lives() -> ! {
    loop {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The calling thread's number.
fn own_tid() -> anyhow::Result<i32> {
    let link = std::fs::read_link("/proc/thread-self")?;
    let number = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    number.with_context(|| format!("expected the number of a thread, found {}", link.display()))
}
