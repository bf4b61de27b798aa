//! The guard on random workloads and machines, under every scheduler with and without it. docs/reference/guard.md has the figures.
//!
//! The environment sets: `CASES`, so many workloads, from `FROM` on; `UNDER=bas,fair`, some schedulers only; of the study
//! `MINUTES`, after which no other workload is begun, `KEEP=FILE`, with which it goes on with what an earlier run has left in the
//! file, and `WAITING=fill`, with which waiting jobs fill idle PUs; `RUNS` of each workload where losses are counted.

use crate::common;

#[path = "../../../../../crates/sim/tests/all/guard/cases.rs"]
mod cases;
mod communicating;
mod far;
mod kept;
mod loss;
#[path = "../../../../../crates/sim/tests/all/guard/runs.rs"]
mod runs;
mod study;
#[path = "../../../../../crates/sim/tests/all/guard/under.rs"]
mod under;

use cases::any_case;
use colocate_engine::Meanwhile;
use colocate_engine::guard::Guarding;
use colocate_policy::{PolicySpec, table};
pub use communicating::table as thousand_communicating;
use std::sync::atomic::{AtomicU64, Ordering};
use under::Under;

/// All schedulers, but for those of fast and slow cores, which are as `os` where cores are alike.
fn all() -> Vec<Under> {
    let chooses = |kind: &PolicySpec| kind.waits() || kind.name() == "os";
    let ours = table::each_quantum().filter(chooses).map(|kind| Under::Kind(kind.name()));
    ours.chain([Under::OnePu, Under::StarvesOne]).collect()
}

/// Schedulers of a list of names, separated by commas.
fn named(names: &str) -> Vec<Under> {
    let mut all = all();
    all.retain(|under| names.split(',').any(|name| name == under.name()));
    all
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The whole study.
pub fn thousand_workloads() {
    let keep = std::env::var_os("KEEP").map(std::path::PathBuf::from);
    let from = number("FROM", 0);
    let cases = from..from + number("CASES", 1000);
    let waiting = std::env::var("WAITING").map_or(Meanwhile::Stop, |text| text.parse().unwrap());
    let unders = std::env::var("UNDER").map_or_else(|_| all(), |names| named(&names));
    let (done, text) =
        study::study(&unders, waiting, cases, number("MINUTES", 600), keep.as_deref());
    assert!(done > 0, "no workload was begun");
    println!("{text}");
}

/// Where the time goes that guarded schedulers lose.
pub fn where_it_is_lost() {
    let text = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let number = |name: &str, default: &str| text(name, default).parse::<u64>().unwrap();
    let (cases, runs) = (number("CASES", "40"), number("RUNS", "6"));
    let from = number("FROM", "0");
    let names = text("UNDER", "random,mmas,fair,round-robin,symbiotic");
    let unders = named(&names);
    let next = AtomicU64::new(from);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + cases {
                break;
            }
            let case = any_case(seed);
            let alone = loss::Alone::new(&case, 2 * runs);
            for &under in &unders {
                let l = alone.losses(&case, under, Guarding::default(), runs);
                let [s, f, k, t] = l.parts;
                println!(
                    "{:12} {seed:4} {:+6.2} ±{:5.2} | {s:+6.2} {f:+6.2} {k:+6.2} {t:+6.2} | {:5.1} of {:5.1} | {} {} | {}",
                    under.name(),
                    l.all,
                    l.luck,
                    l.quanta.0,
                    l.quanta.1,
                    l.verdicts.0,
                    l.verdicts.1,
                    l.verdicts.2
                );
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
}

/// How much memory is far, and what that has to do with the rhythm of quanta, in the workload `FROM=741` under `UNDER=mmas`.
pub fn memory_and_rhythm() {
    let name = std::env::var("UNDER").unwrap_or("mmas".to_owned());
    let under = all().into_iter().find(|under| under.name() == name).unwrap();
    print!("{}", far::table(&any_case(number("FROM", 741)), under));
}
