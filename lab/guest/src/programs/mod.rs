//! Programs that cases observe, and programs that prepare the environment of others: `lab-guest
//! --program NAME ARGUMENTS`.

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

/// Main function of a program, called with its arguments.
type ProgramMain = fn(&[String]) -> anyhow::Result<()>;

const ALL: &[(&str, ProgramMain)] = &[
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

/// Runs the program named by the first word.
///
/// # Errors
/// If the name is unknown, or the program fails.
pub fn run(words: &[String]) -> anyhow::Result<()> {
    let (name, arguments) = words.split_first().context("expected a program, found none")?;
    match ALL.iter().find(|(known, _)| known == name) {
        Some((_, program)) => program(arguments),
        None => bail!("expected a program of ours, found {name}"),
    }
}

/// Sleeps for ever, with short wake-ups by which `/proc` shows a PU of the current mask.
fn lives() -> ! {
    loop {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// ID of the calling thread.
fn own_tid() -> anyhow::Result<i32> {
    let link = std::fs::read_link("/proc/thread-self")?;
    let number = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    number.with_context(|| format!("expected the number of a thread, found {}", link.display()))
}
