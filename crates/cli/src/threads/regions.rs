//! What was seen of parallel regions, with the place of each in the program's source.

use super::report::Region;
use colocate_model::threads::lost::Lost;
use colocate_model::threads::sections::Sections;
use colocate_omp::learn::Sums;
use colocate_omp::report::{Reported, word};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// Regions of a program whose numbers of threads were learnt, the longest first.
pub fn of_one(reported: &[Reported]) -> Vec<Region> {
    let regions = reported.iter().map(|reported| {
        let sections = sections(reported.most, &reported.all, &reported.one);
        region(reported, &reported.one, sections.as_ref())
    });
    sorted(regions.collect())
}

/// Regions of two runs, with all threads and with one, the longest first.
pub fn of_runs(all: &[Reported], one: &[Reported]) -> Vec<Region> {
    let place = |reported: &Reported| (reported.object.clone(), reported.address);
    let one: HashMap<_, _> = one.iter().map(|reported| (place(reported), reported)).collect();
    let regions = all.iter().map(|reported| {
        let sums = one.get(&place(reported)).map_or_else(Sums::default, |one| one.all);
        region(reported, &sums, sections(reported.most, &reported.all, &sums).as_ref())
    });
    sorted(regions.collect())
}

fn sorted(mut regions: Vec<Region>) -> Vec<Region> {
    regions.sort_by_key(|region| std::cmp::Reverse(region.total_ns));
    regions
}

fn sections(most: u32, all: &Sums, one: &Sums) -> Option<Sections> {
    Sections::of(one.executed(1)?, all.executed(most)?)
}

fn region(reported: &Reported, one: &Sums, sections: Option<&Sections>) -> Region {
    let all = &reported.all;
    let lost = lost(reported.most, all, one);
    let wall = |sums: &Sums| sums.mean(sums.wall);
    Region {
        place: place(reported),
        explicit: reported.explicit,
        most: reported.most,
        threads: reported.threads,
        learnt: word(reported.learnt),
        windows: reported.windows,
        settled_ns: reported.settled_at,
        cause: lost.and_then(|lost| lost.cause()),
        model_threads: sections.map(|sections| sections.advise(reported.most)),
        executions: all.count,
        mean_ns: wall(all),
        executions_one: one.count,
        mean_one_ns: wall(one),
        inside_share: sections.map(Sections::share),
        sections_lost: lost.map(|lost| lost.sections),
        resource_lost: lost.and_then(|lost| lost.resource),
        idle_lost: lost.map(|lost| lost.idle),
        growth: growth(all, one),
        total_ns: reported.cost.0,
        learning_ns: reported.cost.1,
    }
}

/// What the time of all threads goes to beside work; `None` if nothing was seen of it.
fn lost(most: u32, all: &Sums, one: &Sums) -> Option<Lost> {
    let (wall, waited) = (all.mean(all.wall)?, all.mean(all.waited)?);
    Lost::of(all.executed(most)?, wall, waited, one.executed(1))
}

/// How much more time outside of critical sections all threads take together than one does.
fn growth(all: &Sums, one: &Sums) -> Option<f64> {
    Some(all.executed(2)?.outside / one.executed(1)?.outside)
}

/// File and line where they are known, else file and address.
fn place(reported: &Reported) -> String {
    let said = reported.said.as_deref().and_then(|said| {
        let mut fields = said.split(';').skip(1);
        let (file, function, line) = (fields.next()?, fields.next()?, fields.next()?);
        let line: u32 = line.parse().ok().filter(|line| *line > 0)?;
        Some(format!("{file}:{line} ({function})"))
    });
    let object = reported.object.as_deref().filter(|object| Path::new(object).is_file());
    said.or_else(|| by_debug_information(object?, reported.address)).unwrap_or_else(|| {
        let object = reported.object.as_deref().unwrap_or("unknown");
        format!("{object}+{:#x}", reported.address)
    })
}

/// What `addr2line` of binutils says, where it is there and the program has its debug information.
fn by_debug_information(object: &str, address: u64) -> Option<String> {
    let mut command = Command::new("addr2line");
    command.args(["-e", object, &format!("{address:#x}")]);
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    // `FILE:LINE`, or question marks; a remark may follow.
    let found = text.split_whitespace().next().filter(|found| !found.starts_with('?'))?;
    let line = found.rsplit(':').next()?.parse::<u32>().ok().filter(|line| *line > 0)?;
    let file = Path::new(found.rsplit_once(':')?.0).file_name()?.to_string_lossy().into_owned();
    Some(format!("{file}:{line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_model::threads::lost::Cause;
    use colocate_omp::learn::Learnt;

    fn reported(said: Option<&str>) -> Reported {
        let all = Sums { count: 10, steps: 10, wall: 1_000, busy: 1_800, inside: 480, waited: 120 };
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
            one: Sums::default(),
        }
    }

    #[test]
    fn places_as_well_as_they_are_known() {
        assert_eq!(place(&reported(Some(";a.c;main;7;3;;"))), "a.c:7 (main)");
        for unknown in [None, Some(";unknown;unknown;0;0;;"), Some("strange")] {
            assert_eq!(place(&reported(unknown)), "unknown+0x1270");
        }
    }

    /// One thread: 76 outside, 24 inside in each of five executions. Ten with two threads: 48 inside in 180 busy, 12 waiting.
    #[test]
    fn two_runs_are_put_together() {
        let one = Reported {
            all: Sums { count: 5, steps: 5, wall: 500, busy: 500, inside: 120, waited: 0 },
            ..reported(None)
        };
        let region = of_runs(&[reported(None)], &[one]).remove(0);
        assert_eq!((region.mean_ns, region.mean_one_ns), (Some(100.0), Some(100.0)));
        assert!((region.inside_share.unwrap() - 0.24).abs() < 1e-9);
        // Each of ten executions takes two threads 200: 12 wait, 24 more inside than one thread; 120 outside instead of 76; 20 idle.
        assert!((region.sections_lost.unwrap() - 36.0 / 200.0).abs() < 1e-9);
        assert!((region.resource_lost.unwrap() - 44.0 / 200.0).abs() < 1e-9);
        assert!((region.idle_lost.unwrap() - 0.1).abs() < 1e-9);
        assert!((region.growth.unwrap() - 120.0 / 76.0).abs() < 1e-9);
        assert_eq!(region.cause, Some(Cause::SharedResource));
        assert_eq!(of_one(&[reported(None)])[0].inside_share, None, "never with one thread");
    }
}
