//! Experiments in the simulator: each prints figures for a page of docs.
//!
//! `cargo run --release -p colocate-benches --bin experiments -- NAME [SCHEDULER…]`; without a name it lists them.
#![allow(clippy::print_stdout)] // figures are what it is run for
#![allow(clippy::unwrap_used)] // an experiment that cannot go on has failed

#[path = "../../../../crates/sim/tests/all/common/mod.rs"]
mod common;
mod estimates;
mod feliu;
mod guard;
mod layouts;
mod one_fast_one_slow;
mod stacks;

use anyhow::bail;
use colocate_machine::{Machine, Performance, described};

/// The names, and what each experiment prints.
const NAMES: &str = "\
estimates           settings of estimated progress (a minute)
feliu-1, feliu-3    schedulers on the mixes of these studies
communicating       auto on a thousand random workloads of threads that wake each other (more than ten minutes)
guard               a thousand random workloads with and without the guard (an hour)
guard-losses        where the time goes that guarded schedulers lose (minutes)
guard-memory        far memory and the rhythm of quanta in one workload
layouts             fast cores in either layout
limits              limits of perf-fair (a minute)
one-fast-one-slow   the share of the best gain on one fast and one slow core
stacks              what CPI stacks of recorded programs can say of slowdowns";

/// A described machine by name.
fn machine(name: &str) -> (Machine, Performance) {
    let text = described::MACHINES.iter().find(|(own, _)| *own == name).unwrap().1;
    (described::from_toml(text).unwrap().machine, described::performance(text).unwrap().unwrap())
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some((&name, kinds)) = arguments.split_first() else { bail!("expected one of\n{NAMES}") };
    match name {
        "estimates" => estimates::table_of_estimates(),
        "feliu-1" | "feliu-3" => feliu::table(name, kinds),
        "communicating" => guard::thousand_communicating(),
        "guard" => guard::thousand_workloads(),
        "guard-losses" => guard::where_it_is_lost(),
        "guard-memory" => guard::memory_and_rhythm(),
        "layouts" => layouts::fast_cores_in_either_layout(),
        "limits" => estimates::table_of_limits(),
        "one-fast-one-slow" => one_fast_one_slow::table(kinds),
        "stacks" => stacks::what_stacks_of_recorded_programs_hold(),
        _ => bail!("found {name}, expected one of\n{NAMES}"),
    }
    Ok(())
}
