//! A quiet machine: one comparison at a time, and the load of other programs.

use anyhow::anyhow;
use colocate_figures::state::Quiet;
use colocate_files::kernel::read_text as kernel_text;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Abstract socket name held by a running comparison. It is in no file system, is shared by all
/// users of a network namespace, and disappears with its process.
const NAME: &[u8] = b"colocate-compare";

/// Number of polls of the load, and the time between them. Chosen: long enough for the processes of
/// colocate's last run to end, short beside any run worth measuring.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(25);

/// Takes the lock of the only comparison on this machine, held until the result is dropped.
pub fn take_lock() -> anyhow::Result<UnixListener> {
    let bound =
        SocketAddr::from_abstract_name(NAME).and_then(|name| UnixListener::bind_addr(&name));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "another `colocate compare` is running on this machine, and both would disturb each \
             other: wait until it has ended, or say --not-alone"
        ),
        _ => anyhow!("cannot make sure that no other comparison is running: {error}"),
    })
}

/// Load of other programs: the least of several polls.
pub fn look(proc: &Path) -> Quiet {
    let mut least = Quiet::default();
    for _ in 0..LOOKS {
        // If the file cannot be read, the load is unknown.
        let now = parse_loadavg(&kernel_text(&proc.join("loadavg")).unwrap_or_default());
        let known = [least.others_runnable, now.others_runnable].into_iter().flatten();
        least = Quiet { others_runnable: known.min(), load_1min: now.load_1min };
        // No poll can find less.
        if least.others_runnable == Some(0) {
            break;
        }
        sleep(BETWEEN_LOOKS);
    }
    least
}

/// PUs kept busy by others while this process sleeps for `during`; `None` if not reported.
pub fn busy_pus(proc: &Path, during: Duration) -> Option<f64> {
    let before = ticks(proc)?;
    sleep(during);
    let (busy, all, pus) = ticks(proc)?;
    // Counters may go back, as iowait does (proc_stat(5)).
    let busy = busy.checked_sub(before.0)?;
    let all = all.checked_sub(before.1)?;
    (all > 0).then(|| busy as f64 / all as f64 * f64::from(pus))
}

fn ticks(proc: &Path) -> Option<(u64, u64, u32)> {
    parse_stat(&kernel_text(&proc.join("stat")).ok()?)
}

/// Reads `/proc/stat`: busy ticks of all PUs, stolen ones included, all ticks, and number of PUs.
fn parse_stat(text: &str) -> Option<(u64, u64, u32)> {
    let ticks = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // Fields: user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user and
    // nice.
    let ticks = ticks.split_whitespace().take(8).map(|it| it.parse().ok());
    let ticks: Vec<u64> = ticks.collect::<Option<_>>()?;
    let ticks: [u64; 8] = ticks.try_into().ok()?;
    let all: u64 = ticks.iter().sum();
    // All but idle and iowait.
    let busy = all - ticks[3] - ticks[4];
    // `cpu ` with a space is the sum of all PUs.
    let numbers = text.lines().filter_map(|line| line.strip_prefix("cpu"));
    let pus = numbers.filter(|number| !number.starts_with(' ')).count();
    Some((busy, all, u32::try_from(pus).ok()?))
}

/// A warning if further programs run.
pub fn warning(before: Quiet) -> Option<String> {
    let others = before.others_runnable.filter(|&others| others > 0)?;
    Some(format!(
        "{others} other tasks are running: the machine is not idle, and the figures will say so"
    ))
}

/// Reads `/proc/loadavg`, e.g. `0.20 0.18 0.12 3/80 11206`: load over a minute, and before the
/// slash the number of runnable tasks, including the reader.
fn parse_loadavg(text: &str) -> Quiet {
    let mut fields = text.split_whitespace();
    let load = fields.next().and_then(|load| load.parse().ok());
    // The averages over 5 and 15 minutes lie in between.
    let runnable = fields.nth(2).and_then(|field| field.split_once('/')?.0.parse::<u32>().ok());
    Quiet {
        // Without this process, which reads the file.
        others_runnable: runnable.map(|all| all.saturating_sub(1)),
        load_1min: load.filter(|load: &f64| load.is_finite()),
    }
}

/// Name and release of the kernel; `None` if `/proc` does not report them.
pub fn kernel(proc: &Path) -> Option<String> {
    let field = |name: &str| kernel_text(&proc.join("sys/kernel").join(name)).ok();
    Some(format!("{} {}", field("ostype")?.trim(), field("osrelease")?.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loadavg_counts_others_only() {
        let found = parse_loadavg("0.20 0.18 0.12 3/80 11206\n");
        assert_eq!(found, Quiet { others_runnable: Some(2), load_1min: Some(0.2) });
    }

    #[test]
    fn ticks_of_all_pus() {
        let text = "cpu  10 1 4 80 5 2 3 7 9 9\ncpu0 5 1 2 40 2 1 1 3 4 4\ncpu1 5 0 2 40 3 1 2 4 5 5\nintr 1\n";
        assert_eq!(parse_stat(text), Some((27, 112, 2)));
        for wrong in ["", "cpu  1 2\n", "cpu  a 1 1 1 1 1 1 1\n"] {
            assert_eq!(parse_stat(wrong), None, "{wrong}");
        }
        assert_eq!(busy_pus(Path::new("/nonexistent"), Duration::ZERO), None);
    }

    #[test]
    fn what_the_kernel_does_not_say_is_unknown() {
        for text in ["", "x", "nan 1 1 1 1", "0.2 0.1 0.1 /80"] {
            assert_eq!(parse_loadavg(text).others_runnable, None, "{text}");
        }
        let nowhere = Path::new("/nonexistent");
        assert_eq!((look(nowhere), kernel(nowhere)), (Quiet::default(), None));
    }
}
