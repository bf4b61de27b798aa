//! `colocate top`: the phases of running programs. Only reads.

mod forest;
mod kinds;
mod matrix;
mod picture;
mod process;
mod samples;
mod shown;
mod watch;

use crate::stop::stop_flag;
use crate::{args, output, timeline};
use anyhow::{Context, ensure};
use colocate_linux::clock::{now, process_time};
use colocate_linux::poll::wait_readable;
use colocate_linux::{Pid, SysError};
use colocate_machine::{Nanos, printable, read};
use colocate_observe::spin;
use forest::ProcessFilter;
use kinds::Kinds;
use samples::ProcessSamples;
use shown::Screen;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use watch::WatchedProcesses;

#[cfg(feature = "schema")]
pub use {matrix::MatrixRecord, watch::TopTable};

/// Time between two polls in longer intervals: the quantum of schedulers that use phases.
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// Range of intervals.
const INTERVALS: [Nanos; 2] = [Nanos::from_millis(10), Nanos::from_secs(3600)];
/// Rows of a table on anything but a terminal. Chosen: a screen.
const ROWS: usize = 20;

/// Shows which running programs are serial, parallel or asleep
///
/// A row is a process with all that it has created, but for processes that have rows of their own. Without -p, -u or
/// --name these are the processes that use most CPU time. Nothing is changed in any process, and no privilege is
/// needed where /proc shows other users' processes.
#[derive(clap::Args)]
pub struct Args {
    /// Processes to show, by number; ends when all of them have ended
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(i32).range(1..))]
    pid: Vec<i32>,
    /// Processes of this user to show, by name or number
    #[arg(short, long, conflicts_with = "pid")]
    user: Option<String>,
    /// Processes to show whose name (comm, at most 15 bytes) contains TEXT
    #[arg(long, value_name = "TEXT", conflicts_with = "pid")]
    name: Option<String>,
    /// Time between two tables in seconds, or with a unit such as 200ms or 1min, from 10ms to 1h; in each, processes are looked at at least every 100 ms
    #[arg(short = 'd', long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| args::time(text, &(INTERVALS[0]..=INTERVALS[1]), "a time from 10ms to 1h, such as 200ms or 1"))]
    interval: Nanos,
    /// Ends after N tables, from 1 [default: goes on]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Most rows of a table [default: as many as the terminal has, else 20]
    #[arg(long, value_name = "N", conflicts_with = "json")]
    rows: Option<usize>,
    /// Samples of each running thread that show whether it only waits for others in a loop, a second of its CPU time; 0
    /// takes none [range: 0-10000] (docs/reference/spinning.md)
    #[arg(long, value_name = "HZ", default_value_t = spin::DEFAULT_RATE_HZ, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    spin_rate: u32,
    /// Shows which threads of the processes of -p, -u or --name, and of what these have created, communicate, as a heat map: those that wake each other, and those that use the
    /// same memory (docs/reference/sharing.md)
    #[arg(long, conflicts_with_all = ["rows", "spin_rate"])]
    matrix: bool,
    /// Prints JSON, a line for each table (docs/schemas/top.json, top-matrix.json)
    #[arg(long)]
    json: bool,
}

/// Runs `colocate top`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let choice = choice(args)?;
    if args.matrix {
        return matrix::main(args, choice);
    }
    let stop = stop_flag()?;
    let machine =
        // Without a topology, tables lack only the kinds of cores.
        read::live().map_err(|why| output::remark(&format!("kinds of cores: {why}"))).ok();
    let watch = WatchedProcesses::begin(Path::new("/proc"), choice, samples(args.spin_rate));
    let mut watch = watch.context("cannot list processes")?;
    let mut screen = Screen::new(args.rows)?;
    let kinds = Kinds::of(machine.as_ref());
    let poll = |watch: &mut WatchedProcesses| {
        watch.poll();
        watch.is_over()
    };
    follow(args, stop, &mut watch, poll, |watch, _, _| {
        let table = watch.table(&kinds);
        table.denied.iter().for_each(|line| screen.remark(line));
        if args.json { output::print(&printable::json_line(&table)) } else { screen.show(&table) }
    })?;
    if !args.json && args.count != Some(1) {
        let phases = watch.phases();
        let phases = phases.iter().map(|(name, phases)| (&**name, *phases));
        output::print(&timeline::table(phases, false))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Polls `watched` and shows tables until `poll` says that all has ended, `show` that the reader has
/// gone away, a signal arrives, or there were enough tables. `show` gets the number of the table, and
/// whether it is the last one.
fn follow<W>(
    args: &Args,
    stop: &AtomicBool,
    watched: &mut W,
    poll: impl Fn(&mut W) -> bool,
    mut show: impl FnMut(&mut W, u64, bool) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let begun = now();
    let mut pace = PollSchedule::of(args.interval);
    for number in 1.. {
        let is_last = loop {
            sleep_until(begun + pace.due(), stop)?;
            let is_over = poll(watched) || stop.load(Ordering::Relaxed);
            // After the poll, so that polls that have become due during a slow one are left out.
            if pace.made(now().saturating_sub(begun)) || is_over {
                break is_over;
            }
        };
        let goes_on = show(watched, number, is_last)?;
        let is_last = is_last || stop.load(Ordering::Relaxed);
        if !goes_on || is_last || args.count.is_some_and(|count| number >= count) {
            break;
        }
    }
    Ok(())
}

/// Due times of polls and tables: counted from the beginning, without drift.
struct PollSchedule {
    interval: Nanos,
    /// Polls in an interval.
    looks: u64,
    /// Number of the next poll, from 1.
    next: u64,
}

impl PollSchedule {
    /// One table in each interval.
    fn of(interval: Nanos) -> Self {
        Self { interval, looks: interval.0.div_ceil(LOOK_EVERY.0), next: 1 }
    }

    /// Due time of the next poll, since the beginning.
    const fn due(&self) -> Nanos {
        let tables = self.next / self.looks;
        let looks = self.next % self.looks;
        // Whole intervals apart, so that rounding never adds up.
        Nanos(tables * self.interval.0 + self.interval.0 * looks / self.looks)
    }

    /// Records a poll at time `at` since the beginning. Returns whether a table is due.
    ///
    /// The poll counts as the one due nearest to `at`: after a pause, missed polls are left out.
    /// Repeated at once, each would see next to nothing.
    fn made(&mut self, at: Nanos) -> bool {
        // Nanoseconds times polls may exceed 64 bits.
        let at = u128::from(at.0);
        let interval = u128::from(self.interval.0);
        // Rounded to the nearest, in whole numbers.
        let nearest = (2 * at * u128::from(self.looks) + interval) / (2 * interval);
        let first = self.next;
        // Below the maximum, so that the next number does not overflow.
        let last = u64::try_from(nearest).unwrap_or(u64::MAX - 1).max(self.next);
        self.next = last + 1;
        last / self.looks > (first - 1) / self.looks
    }
}

/// Samples of running threads, if requested and permitted.
fn samples(rate_hz: u32) -> Option<ProcessSamples> {
    let samples = (rate_hz > 0).then(|| ProcessSamples::new(rate_hz))?;
    let samples = samples.map_err(|why| {
        output::remark(&format!(
            "cannot report which threads only wait for others in a loop, because {why}; they count as runnable; \
             `colocate doctor` names the remedy"
        ));
    });
    samples.ok()
}

/// Sleeps until `due`, or until a signal that ends the program.
fn sleep_until(due: Nanos, stop: &AtomicBool) -> Result<(), SysError> {
    while !stop.load(Ordering::Relaxed) {
        let left = due.saturating_sub(now());
        if left == Nanos::ZERO {
            break;
        }
        // A signal just before the sleep does not interrupt it, so the sleep is cut into short
        // pieces.
        wait_readable(&[], Some(Duration::from(left.min(LOOK_EVERY))))?;
    }
    Ok(())
}

/// The processes with rows.
fn choice(args: &Args) -> anyhow::Result<ProcessFilter> {
    let pids: Vec<Pid> = args.pid.iter().copied().map(Pid).collect();
    for pid in &pids {
        ensure!(
            process_time(*pid).is_some(),
            "no process {pid}: expected the number of one that runs"
        );
        ensure!(
            Path::new(&format!("/proc/{pid}/stat")).exists(),
            "process {pid} cannot be read: /proc shows it only to its user and to root (hidepid, proc(5))"
        );
    }
    let user = args.user.as_deref().map(user).transpose()?;
    Ok(ProcessFilter { pids, user, name: args.name.clone() })
}

/// Number of a user. The user may have no line in /etc/passwd: `id` uses the name services.
fn user(name: &str) -> anyhow::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let asked = std::process::Command::new("id").args(["-u", "--", name]).output();
    let asked = asked.context("cannot run `id` to look a user up")?;
    // `id` prints nothing for an unknown user.
    let number = String::from_utf8_lossy(&asked.stdout).trim().parse();
    number.map_err(|_| anyhow::anyhow!("no user {name:?}: expected a name or a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table each second, a look each 100 ms: when in milliseconds looks are made, whether a table is due, and when
    /// the next look is.
    #[test]
    fn what_a_pause_misses_is_left_out() {
        let mut pace = PollSchedule::of(Nanos::from_secs(1));
        let mut made = |at| (pace.made(Nanos::from_millis(at)), pace.due().0 / 1_000_000);
        assert_eq!(made(100), (false, 200));
        assert_eq!(made(249), (false, 300), "a bit late");
        assert_eq!(made(351), (false, 500), "the next one is closer than this one should be");
        for at in [500, 600, 700, 800, 900] {
            assert_eq!(made(at), (false, at + 100));
        }
        assert_eq!(made(1_000), (true, 1_100));
        // An hour passes before the next one.
        assert_eq!(made(3_601_140), (true, 3_601_200));
        assert_eq!(made(3_601_200), (false, 3_601_300));
        assert_eq!(made(3_601_960), (true, 3_602_100), "as good as the last one");
        // One that a signal has hurried.
        assert_eq!(made(3_601_970), (false, 3_602_200));
    }

    /// With one look for each table; times do not overflow.
    #[test]
    fn short_and_long_intervals() {
        let mut pace = PollSchedule::of(Nanos::from_millis(30));
        let mut made = |at| (pace.made(Nanos::from_millis(at)), pace.due().0 / 1_000_000);
        assert_eq!([made(30), made(60), made(200)], [(true, 60), (true, 90), (true, 240)]);
        assert_eq!(PollSchedule::of(Nanos::from_millis(190)).due(), Nanos::from_millis(95));
        let mut pace = PollSchedule::of(INTERVALS[1]);
        let year = Nanos::from_secs(365 * 24 * 3_600);
        assert!(pace.made(year));
        assert_eq!(pace.due(), year + LOOK_EVERY);
    }

    #[test]
    fn users() {
        assert_eq!(user("0").unwrap(), 0);
        assert_eq!(user("root").unwrap(), 0);
        assert!(user("nobody is called so").unwrap_err().to_string().starts_with("no user"));
    }
}
