//! Runs inside a guest of the lab: each case does something with `colocate` and then looks, in
//! `/proc` and `/sys` and with its own eyes, whether it is so.
//!
//! `lab-guest CASE...` prints one line a case and ends with 1 if one failed. `lab-guest --program NAME`
//! is a program that cases watch. Everything runs as root,
//! in a guest that is thrown away.
#![allow(clippy::print_stdout)]

mod cases;
mod evidence;
mod programs;

use std::process::ExitCode;
use std::time::Instant;

/// Something that is proved in a guest; the error says what was expected and what was found.
type Case = fn() -> anyhow::Result<()>;

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
        let outcome = match cases::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, case)) => case(),
            None => Err(anyhow::anyhow!("expected a case, found {name}")),
        };
        failed |= outcome.is_err();
        match outcome {
            Ok(()) => println!("{name}: ok, {:.1} s", begin.elapsed().as_secs_f64()),
            Err(error) => println!("{name}: FAILED: {error:#}"),
        }
    }
    ExitCode::from(u8::from(failed))
}
