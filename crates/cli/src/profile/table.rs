//! A profile as a table.

use colocate_machine::printable;
use colocate_model::{Class, Profile, ThreadProfile};
use std::fmt::Write;

/// Most rows; further threads are summed up in one line. Chosen to fit a screen.
const MOST_ROWS: usize = 40;

/// The profile as text, a line for each thread; of many threads, only the busiest by CPU time.
pub fn of(profile: &Profile) -> String {
    let mut text = String::new();
    let command = std::iter::once(&profile.program.path).chain(&profile.program.args);
    let command = command.map(|word| printable(word)).collect::<Vec<_>>().join(" ");
    let state = if profile.complete { "to its end" } else { "not to its end" };
    let watched = profile.watched_ns;
    let backend = profile.backend.name();
    let _ = writeln!(text, "{command}\nbackend {backend}, watched for {watched}, {state}\n");
    let _ = writeln!(text, "{HEAD}");
    for thread in busiest(profile) {
        let _ = writeln!(text, "{}", row(thread));
    }
    if profile.threads.len() > MOST_ROWS {
        let more = profile.threads.len() - MOST_ROWS;
        let _ = writeln!(text, "… and {more} threads with less CPU time");
    }
    if profile.threads.iter().any(|thread| sum(thread) > 1.0) {
        let _ = writeln!(
            text,
            "an instruction counts in each of its classes: one that adds a number from memory is int and load"
        );
    }
    for note in &profile.notes {
        let _ = writeln!(text, "note: {}", printable(note));
    }
    text
}

const HEAD: &str = "thread process name             cpu time       ipc  samples  branch   float     int    load   store";

/// Threads with the most CPU time, in the order of creation.
fn busiest(profile: &Profile) -> Vec<&ThreadProfile> {
    let mut threads: Vec<&ThreadProfile> = profile.threads.iter().collect();
    // `None` is the least: threads of unknown time come last.
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.cpu_time_ns));
    threads.truncate(MOST_ROWS);
    threads.sort_by_key(|thread| thread.order);
    threads
}

/// Sum of the shares of all classes.
fn sum(thread: &ThreadProfile) -> f64 {
    Class::ALL.iter().filter_map(|class| Some(thread.mix.get(*class)?.get())).sum()
}

/// A figure as text, `-` if unknown.
fn known(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".into())
}

fn row(thread: &ThreadProfile) -> String {
    let time = known(thread.cpu_time_ns.map(|time| time.to_string()));
    let ipc = known(thread.ipc().map(|ipc| format!("{ipc:.2}")));
    let samples = known(thread.samples.map(|samples| samples.to_string()));
    let mut row = format!(
        "{:>6} {:>7} {:<16} {time:>9} {ipc:>9} {samples:>8}",
        thread.order,
        thread.process,
        printable(&thread.name)
    );
    for class in Class::ALL {
        let share = known(thread.mix.get(class).map(|share| share.to_string()));
        let _ = write!(row, " {share:>7}");
    }
    row
}
