//! Cases inside a guest: each runs `colocate` and checks the effect in `/proc` and `/sys`.
//!
//! `lab-guest CASE...` prints one line per case, and exits with 1 if a case failed. `lab-guest
//! --program NAME` is a program that cases observe. All of it runs as root, in a guest without
//! persistent state.
#![allow(clippy::print_stdout)]

mod cases;
mod evidence;
mod golden;
mod groups;
mod programs;
mod random;
mod session;
mod tasks;
mod traced;

use anyhow::Context as _;
use std::process::ExitCode;
use std::time::Instant;

/// A test in a guest; the error has the expected and the found state.
type Case = fn() -> anyhow::Result<()>;
/// A test with random numbers from a seed.
type Seeded = fn(u64) -> anyhow::Result<()>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--program") {
        return match programs::run(&words[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("lab-guest: {error:#}");
                ExitCode::from(125)
            }
        };
    }
    let mut failed = false;
    for name in words {
        let begin = Instant::now();
        let outcome = run(&name);
        // Cases after a failed case run too.
        failed |= outcome.is_err();
        match outcome {
            Ok(()) => println!("{name}: ok, {:.1} s", begin.elapsed().as_secs_f64()),
            Err(error) => println!("{name}: FAILED: {error:#}"),
        }
    }
    ExitCode::from(u8::from(failed))
}

/// Runs the case `NAME` or `NAME:SEED`.
fn run(word: &str) -> anyhow::Result<()> {
    let (name, seed) = word.split_once(':').map_or((word, None), |(name, seed)| (name, Some(seed)));
    if let Some((_, case)) = cases::ALL.iter().find(|(known, _)| *known == name) {
        return case();
    }
    let found = cases::SEEDED.iter().find(|(known, _)| *known == name);
    let (_, case) = found.with_context(|| format!("expected a case, found {word}"))?;
    let seed = seed.map_or_else(random::fresh, |seed| Ok(seed.parse()?))?;
    println!("{name}: seed {seed}; the same again: {name}:{seed}");
    case(seed)
}
