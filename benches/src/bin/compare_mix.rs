//! Compares profiles of the same programs by two backends: what `scripts/sample-accuracy` prints.
//!
//! `compare_mix NAME SAMPLED.json COUNTED.json [NAME SAMPLED.json COUNTED.json …]`
//!
//! A row for each program: the share of each class as it was counted, and by how many percentage
//! points the sampled share differs. Threads are matched by the order of their creation and weighted
//! by the instructions that they ran. Ends with 1 if a program's mean error is above 2 or its worst
//! above 6 points.
#![allow(clippy::print_stdout)] // a program that prints a table

use colocate_model::mix::{Class, Share};
use colocate_model::profile::{Profile, ThreadProfile};
use std::process::ExitCode;

/// What is promised of each program, in percentage points.
const MOST_MEAN: f64 = 2.0;
const MOST_WORST: f64 = 6.0;

/// A thread as it was sampled, and as it was counted.
type Pair<'a> = (&'a ThreadProfile, &'a ThreadProfile);

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let programs = args.chunks_exact(3);
    if args.is_empty() || !programs.remainder().is_empty() {
        return Err("usage: compare_mix NAME SAMPLED.json COUNTED.json …".into());
    }
    println!(
        "| program | samples | branch | float | int | load | store | mean error | worst |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    let mut kept = true;
    for program in programs {
        let [name, sampled, counted] = program else { continue };
        kept &= print_row(name, &read(sampled)?, &read(counted)?)?;
    }
    Ok(ExitCode::from(u8::from(!kept)))
}

fn read(path: &str) -> Result<Profile, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(Profile::from_json(&text).map_err(|error| format!("{path}: {error}"))?)
}

/// Prints a program's row; whether its errors are within what is promised.
fn print_row(name: &str, sampled: &Profile, counted: &Profile) -> Result<bool, String> {
    let pairs = pairs(sampled, counted);
    if pairs.is_empty() {
        return Err(format!("{name}: no thread has both enough samples and counts"));
    }
    let mut cells = Vec::new();
    let mut errors = Vec::new();
    for class in Class::ALL {
        let (seen, exact) = points(&pairs, class);
        cells.push(format!("{exact:.1} ({:+.1})", seen - exact));
        errors.push((seen - exact).abs());
    }
    let mean = errors.iter().sum::<f64>() / 5.0;
    let worst = errors.iter().fold(0.0, |a: f64, b| a.max(*b));
    let samples: u64 = pairs.iter().filter_map(|pair| pair.0.samples).sum();
    println!("| {name} | {samples} | {} | {mean:.1} | {worst:.1} |", cells.join(" | "));
    Ok(mean <= MOST_MEAN && worst <= MOST_WORST)
}

/// The threads whose mix both know, matched by order.
fn pairs<'a>(sampled: &'a Profile, counted: &'a Profile) -> Vec<Pair<'a>> {
    let known = |thread: &ThreadProfile| Class::ALL.iter().all(|c| thread.mix.get(*c).is_some());
    let both = sampled.threads.iter().zip(&counted.threads);
    both.filter(|(seen, exact)| known(seen) && known(exact)).collect()
}

/// The share of `class` over all threads, in percent: sampled, and exact.
#[allow(clippy::cast_precision_loss)] // a share needs four digits
fn points(pairs: &[Pair<'_>], class: Class) -> (f64, f64) {
    let share = |thread: &ThreadProfile| thread.mix.get(class).map_or(0.0, Share::get);
    let (mut all, mut seen, mut exact) = (0.0, 0.0, 0.0);
    for (sampled, counted) in pairs {
        let weight = counted.instructions.unwrap_or(0) as f64;
        all += weight;
        seen += weight * share(sampled);
        exact += weight * share(counted);
    }
    (100.0 * seen / all, 100.0 * exact / all)
}
