//! Parallel regions as seen, with their places in the program's source.

use super::places::RegionLocations;
use super::report::RegionReport;
use colocate_model::threads::lost::Lost;
use colocate_model::threads::sections::Sections;
use colocate_omp::learn::ExecutionSums;
use colocate_omp::report::{Reported, word};
use std::collections::HashMap;

/// Regions of a program that learned their numbers of threads, the longest first.
pub fn of_one(reported: &[Reported], places: &RegionLocations) -> Vec<RegionReport> {
    sorted(reported.iter().map(|reported| region(places, reported, &reported.one)))
}

/// Regions of two runs, with all threads and with one thread, the longest first.
pub fn of_runs(all: &[Reported], one: &[Reported], places: &RegionLocations) -> Vec<RegionReport> {
    // An object may be loaded elsewhere in each run: the address in the object is the same.
    let place = |reported: &Reported| (reported.object.clone(), reported.address);
    let one: HashMap<_, _> = one.iter().map(|reported| (place(reported), reported)).collect();
    let regions = all.iter().map(|reported| {
        let sums = one.get(&place(reported)).map_or_else(ExecutionSums::default, |one| one.all);
        region(places, reported, &sums)
    });
    sorted(regions)
}

fn sorted(regions: impl Iterator<Item = RegionReport>) -> Vec<RegionReport> {
    let mut regions: Vec<RegionReport> = regions.collect();
    regions.sort_by_key(|region| std::cmp::Reverse(region.total_ns));
    regions
}

fn region(places: &RegionLocations, reported: &Reported, one: &ExecutionSums) -> RegionReport {
    let all = &reported.all;
    let executed = one.executed(1).zip(all.executed(reported.most));
    let sections = executed.and_then(|(one, all)| Sections::of(one, all));
    let lost = lost(reported.most, all, one);
    RegionReport {
        place: places.place(reported),
        explicit: reported.explicit,
        most: reported.most,
        threads: reported.threads,
        learnt: word(reported.learnt),
        windows: reported.windows,
        settled_ns: reported.settled_at,
        cause: lost.and_then(|lost| lost.cause()),
        model_threads: sections.as_ref().map(|sections| sections.advise(reported.most)),
        executions: all.count,
        mean_ns: all.mean(all.wall),
        executions_one: one.count,
        mean_one_ns: one.mean(one.wall),
        inside_share: sections.as_ref().map(Sections::share),
        sections_lost: lost.map(|lost| lost.sections),
        resource_lost: lost.and_then(|lost| lost.resource),
        idle_lost: lost.map(|lost| lost.idle),
        growth: growth(all, one),
        total_ns: reported.cost.0,
        learning_ns: reported.cost.1,
    }
}

/// Time of all threads that is not work; `None` if nothing was seen.
fn lost(most: u32, all: &ExecutionSums, one: &ExecutionSums) -> Option<Lost> {
    let wall = all.mean(all.wall)?;
    let waited = all.mean(all.waited)?;
    let lost = Lost::of(all.executed(most)?, wall, waited, one.executed(1))?;
    // Without growth nothing is known of a shared resource.
    Some(Lost { resource: lost.resource.filter(|_| growth(all, one).is_some()), ..lost })
}

/// Time of all threads together outside critical sections, over the time of a single thread;
/// `None` if that is nearly nothing.
fn growth(all: &ExecutionSums, one: &ExecutionSums) -> Option<f64> {
    let one = one.executed(1).filter(|one| one.outside >= NEARLY_NOTHING * one.inside)?;
    Some(all.executed(2)?.outside / one.outside)
}

/// Chosen: a hundredth, about the error of the times.
const NEARLY_NOTHING: f64 = 0.01;

#[cfg(test)]
pub mod tests {
    use super::*;
    use colocate_model::threads::lost::LossCause;
    use colocate_omp::learn::Learnt;

    /// A region of two threads.
    pub fn reported(said: Option<&str>) -> Reported {
        let all = ExecutionSums {
            count: 10,
            steps: 10,
            wall: 1_000,
            busy: 1_800,
            inside: 480,
            waited: 120,
        };
        Reported {
            object: None,
            address: 0x1270,
            said: said.map(str::to_owned),
            explicit: false,
            most: 2,
            threads: 2,
            learnt: Learnt::All,
            windows: false,
            settled_at: None,
            cost: (1_500, 40),
            all,
            one: ExecutionSums::default(),
        }
    }

    /// One thread: 76 outside, 24 inside in each of five executions. Ten with two threads: 48 inside in 180 busy, 12 waiting.
    #[test]
    fn two_runs_are_put_together() {
        let one = Reported {
            all: ExecutionSums { count: 5, steps: 5, wall: 500, busy: 500, inside: 120, waited: 0 },
            ..reported(None)
        };
        let places = RegionLocations::default();
        let region = of_runs(&[reported(None)], &[one], &places).remove(0);
        assert_eq!((region.mean_ns, region.mean_one_ns), (Some(100.0), Some(100.0)));
        assert!((region.inside_share.unwrap() - 0.24).abs() < 1e-9);
        // Each of ten executions takes two threads 200: 12 wait, 24 more inside than one thread; 120 outside instead of 76; 20 idle.
        assert!((region.sections_lost.unwrap() - 36.0 / 200.0).abs() < 1e-9);
        assert!((region.resource_lost.unwrap() - 44.0 / 200.0).abs() < 1e-9);
        assert!((region.idle_lost.unwrap() - 0.1).abs() < 1e-9);
        assert!((region.growth.unwrap() - 120.0 / 76.0).abs() < 1e-9);
        assert_eq!(region.cause, Some(LossCause::SharedResource));
        let region = of_one(&[reported(None)], &places).remove(0);
        assert_eq!(region.inside_share, None, "never with one thread");
    }
}
