//! Whole runs of a program with several numbers of threads.

use super::advice::{ThreadCountRuns, advise, cut_after, next};
use super::command::prepared;
use super::library::Library;
use super::places::RegionLocations;
use super::regions;
use super::report::ThreadsReport;
use crate::children::{self, ChildEnd, POLL};
use crate::{exit, output};
use colocate_linux::Pid;
use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Time between SIGTERM and SIGKILL. Chosen.
const GRACE: Duration = Duration::from_secs(2);

/// End of a run.
enum Ended {
    /// The program ended, after this many seconds.
    Done(f64),
    /// Ended after this many seconds, certainly slower than others.
    Cut(f64),
    /// The time for all runs was over.
    Late,
}

/// Compares runs until the best number of threads is decided, or the time is over.
pub fn study(
    command: &[OsString],
    limit_s: f64,
    report: &mut ThreadsReport,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let most = report.allowed.most.threads;
    let begin = Instant::now();
    let left = || limit_s - begin.elapsed().as_secs_f64();
    let mut tried: Vec<ThreadCountRuns> = Vec::new();
    let mut complete = true;
    // The first run fills the page cache for the later ones, so it does not count.
    let first = whole(prepared(command, most), None, left(), stop, most)?;
    let Ended::Done(usual) = first else { return Err(too_long(limit_s)) };
    while let Some(threads) = next(&tried, most) {
        let ended =
            whole(prepared(command, threads), cut_after(&tried, threads), left(), stop, threads)?;
        let known = tried.iter().position(|tried| tried.threads == threads);
        let place = known.unwrap_or_else(|| {
            tried.push(ThreadCountRuns { threads, seconds: Vec::new(), cut_s: None });
            tried.len() - 1
        });
        match ended {
            Ended::Done(seconds) => tried[place].seconds.push(seconds),
            Ended::Cut(seconds) => tried[place].cut_s = Some(seconds),
            Ended::Late => {
                complete = false;
                break;
            }
        }
    }
    // The last number may have no run within the limit.
    tried.retain(|tried| !tried.seconds.is_empty() || tried.cut_s.is_some());
    report.advice = Some(advise(&tried, most).ok_or_else(|| too_long(limit_s))?);
    report.complete = Some(complete);
    report.limit_s = Some(limit_s);
    let alone = tried.iter().find(|tried| tried.threads == 1);
    let alone = alone.and_then(|tried| tried.seconds.last().copied());
    // The time of one thread is not waited for if its run was ended before.
    let needed = alone.map_or(usual, |alone| if most > 1 { usual + alone } else { usual });
    // Twice, since watched runs take longer.
    if left() > 2.0 * needed {
        let numbers: &[u32] = if alone.is_some() && most > 1 { &[most, 1] } else { &[most] };
        watched(command, numbers, left(), report, stop)?;
    }
    report.reason = report.found_reason();
    report.took_s = begin.elapsed().as_secs_f64();
    Ok(())
}

fn too_long(limit_s: f64) -> anyhow::Error {
    anyhow::anyhow!(
        "expected several whole runs within {limit_s} s, found none that counts: raise --limit-s, or give the program less to do"
    )
}

/// Makes further runs with reports by OpenMP on its regions, with all threads and then with one
/// thread. These runs show reasons and do not count as measurements: watching takes time.
fn watched(
    command: &[OsString],
    numbers: &[u32],
    left: f64,
    report: &mut ThreadsReport,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let library = match Library::find() {
        Ok(library) => library,
        Err(why) => {
            report.notes.push(format!("regions were not watched: {why:#}"));
            return Ok(());
        }
    };
    let begin = Instant::now();
    let mut seen = Vec::new();
    for &threads in numbers {
        let mut command = prepared(command, threads);
        library.preload(&mut command, threads, false);
        let left = left - begin.elapsed().as_secs_f64();
        let ended = whole(command, None, left, stop, threads)?;
        let reports = library.reports(&|| stop.load(Ordering::Relaxed));
        report.notes.extend(reports.note());
        let none = reports.regions.is_empty();
        seen.push(reports.regions);
        if !matches!(ended, Ended::Done(_)) {
            report.notes.push("regions were not watched to the end: the time was over".to_owned());
        }
        // A program without regions has none with one thread, either.
        if none {
            break;
        }
    }
    let mut seen = seen.into_iter();
    let all = seen.next().unwrap_or_default();
    let one = seen.next().unwrap_or_default();
    let places = RegionLocations::of(&all, &|| stop.load(Ordering::Relaxed));
    report.notes.extend(places.note());
    report.regions = regions::of_runs(&all, &one, &places);
    Ok(())
}

/// Makes one run, of at most `cut` and `left` seconds, and ends its process group.
fn whole(
    mut command: Command,
    cut: Option<f64>,
    left: f64,
    stop: &AtomicBool,
    threads: u32,
) -> anyhow::Result<Ended> {
    if left <= 0.0 {
        return Ok(Ended::Late);
    }
    let begin = Instant::now();
    let pid = children::start(&mut command)
        .map_err(|why| exit::cannot_start(command.get_program(), &why))?;
    let until = cut.map_or(left, |cut| cut.min(left));
    let patience = Duration::try_from_secs_f64(until).unwrap_or(Duration::MAX);
    let ended = wait(pid, begin, patience, stop);
    // Processes that the run left behind would disturb the next run.
    children::kill_group(pid);
    let (ChildEnd { at, waited, .. }, asked) = ended?;
    let seconds = at.duration_since(begin).as_secs_f64();
    match asked {
        Some(true) => Err(exit::stopped("stopped before anything was measured".to_owned())),
        // The time for all runs ended before that of this run.
        Some(false) if until >= left => Ok(Ended::Late),
        Some(false) => Ok(Ended::Cut(until)),
        None if waited.status == 0 => Ok(Ended::Done(seconds)),
        None => anyhow::bail!(
            "the program ended with status {} with {threads} threads: expected 0",
            waited.status
        ),
    }
}

/// Waits for the end of a program. Sends SIGTERM when the time is over or a signal arrives, and
/// SIGKILL after [`GRACE`]. Returns whether it was a signal, if the program was asked to end.
fn wait(
    pid: Pid,
    begin: Instant,
    patience: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<(ChildEnd, Option<bool>)> {
    let ends = children::ends(&[pid]);
    let mut asked: Option<(bool, Instant)> = None;
    loop {
        // At least a millisecond: the loop must not spin once the time is over.
        let rest = patience.saturating_sub(begin.elapsed()).clamp(Duration::from_millis(1), POLL);
        match ends.recv_timeout(rest) {
            Ok(end) => return Ok((end?, asked.map(|(by_signal, _)| by_signal))),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("cannot wait for the program"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        match asked {
            Some((_, since)) if since.elapsed() > GRACE => children::kill_group(pid),
            Some(_) => {}
            None => {
                let by_signal = stop.load(Ordering::Relaxed);
                if by_signal {
                    output::remark("sending the program SIGTERM");
                }
                if by_signal || begin.elapsed() >= patience {
                    asked = Some((by_signal, Instant::now()));
                    children::terminate_group(pid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell that ends by itself, and one that heeds SIGTERM where what it has started does not.
    #[test]
    fn nothing_of_a_run_runs_on() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("left");
        let whole_of = |script: &str, cut: Option<f64>| {
            let after = if cut.is_some() { "wait" } else { "" };
            let script = format!("{script} echo $! > {}; {after}", left.display());
            let words = ["sh", "-c", &script].map(OsString::from);
            whole(prepared(&words, 1), cut, 60.0, &AtomicBool::new(false), 1).unwrap()
        };
        let deaf = "trap 'exit 0' TERM; (trap '' TERM; exec sleep 600) &";
        for (script, cut) in [("sleep 600 &", None), (deaf, Some(0.5))] {
            let ended = whole_of(script, cut);
            assert!(matches!(ended, Ended::Done(_)) == cut.is_none());
            let pid = std::fs::read_to_string(&left).unwrap();
            let begin = Instant::now();
            while lives(pid.trim()) {
                assert!(begin.elapsed() < Duration::from_secs(10), "{script} runs on");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Whether a process lives; one whose status was not read yet does not.
    fn lives(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.starts_with(['Z', 'X']) && !rest.is_empty())
    }
}
