//! `colocate pages move`: moves memory of a running process to other nodes.

use super::process;
use crate::exit::{Failure, OURS};
use crate::{args, children, output};
use anyhow::bail;
use colocate_act::pages::live::{
    self, Drift, HugeMoves, MovableProcess, MoveEnd, MoveRequest, Moved,
};
use colocate_act::pages::nodes::{TargetWord, list, target};
use colocate_act::pages::status::PageCounts;
use colocate_act::pages::work::{Batched, PageTarget};
use colocate_act::pages::{AddressSpan, pace};
use colocate_linux::{Pid, sys};
use colocate_machine::{Bytes, Nanos, NodeNr, printable};
use serde::Serialize;
use std::fmt::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

/// Version of the JSON format.
const VERSION: u32 = 1;

/// Moves memory of a running process to another node
///
/// Pages are moved in batches of 20 ms at most, huge pages whole, and each page's place is read back.
/// Memory policies stay as they are. Ctrl-C ends it between two batches. Exit status: 0 if every page
/// was looked at, whatever the counts say; 128 + N if signal N ended it; 125 if the process ended in
/// the middle, or a node ran out of memory.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["range", "all"])))]
pub struct Args {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,

    /// Addresses whose pages to move, in hex as in /proc/PID/maps; can be given several times
    #[arg(long, value_name = "START-END")]
    range: Vec<AddressSpan>,

    /// Move all of its memory
    #[arg(long)]
    all: bool,

    /// Node to move to, or "interleave": in turn to every node that the process may use
    #[arg(long, value_name = "NODE|interleave")]
    to: TargetWord,

    /// Move also pages that other processes have mapped; needs CAP_SYS_NICE
    #[arg(long)]
    shared: bool,

    /// Say what would be moved, and move nothing
    #[arg(long)]
    dry_run: bool,

    /// Seconds to watch whether kernel.numa_balancing moves pages away again, if it is on; ends
    /// early once it is clear [range: 0-3600]
    #[arg(long, value_name = "S", default_value_t = 5,
        value_parser = |text: &str| args::whole_seconds(text, 0..=3600))]
    watch: u32,

    /// Print JSON (docs/schemas/move.json)
    #[arg(long)]
    json: bool,
}

/// Results of moving a process's memory. Pages are counted in small pages, also within huge pages.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
pub struct PageMoveReport {
    /// Format version, [`VERSION`].
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    version: u32,
    /// The process.
    pid: Pid,
    /// Name of its program.
    name: String,
    /// Target nodes of pages.
    to_nodes: Vec<NodeNr>,
    /// Whether nothing was moved; pages that would be moved count as moved.
    dry_run: bool,
    /// Reason for the end.
    end: MoveEnd,
    /// First address that was not processed, if the move ended early.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[0-9a-f]+$")))]
    reached: Option<String>,
    /// Size of a small page.
    page_bytes: u64,
    /// Pages by result.
    pages: PageCounts,
    /// The batches.
    batches: Batches,
    /// Huge pages.
    huge: Huge,
    /// Locations of moved pages a while later; `None` unless automatic NUMA balancing is on and pages were moved.
    drift: Option<Drift>,
}

/// Batches of pages that were moved together.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct Batches {
    /// Time limit of a batch.
    limit_ns: Nanos,
    /// Time of the longest batch; `None` without a batch.
    longest_ns: Option<Nanos>,
    /// Number of batches above the limit.
    over_limit: usize,
    /// The batches, in order.
    each: Vec<Batched>,
}

/// Transparent huge pages of the moved mappings, and their moves.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Serialize)]
struct Huge {
    /// Memory in huge pages before the move.
    before_bytes: Bytes,
    /// The same after the move; `None` if the process has ended.
    after_bytes: Option<Bytes>,
    /// Huge pages moved whole meanwhile, of all processes (`thp_migration_success`); `None` before Linux 5.9.
    moved_whole: Option<u64>,
    /// Huge pages that failed to move (`thp_migration_fail`); `None` before Linux 5.9.
    failed: Option<u64>,
    /// Huge pages split for the move (`thp_migration_split`); `None` before Linux 5.9.
    split: Option<u64>,
}

/// Runs `colocate pages move`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut process, nodes) = process::find(args.pid, args.shared)?;
    let allowed = process.allowed().map_err(process::failure)?;
    let target = target(args.to, &nodes, &allowed)?;
    let name = process::name(process.pid());
    let spans = if args.all { vec![AddressSpan::ALL] } else { args.range.clone() };
    let order = MoveRequest { spans, target, dry: args.dry_run, budget: None };
    let mut interrupt = Interrupt::new()?;
    let before = HugeMoves::read(Path::new("/proc"));
    let moved = live::move_spans(&mut process, &order, &mut || interrupt.came())
        .map_err(process::failure)?;
    let after = HugeMoves::read(Path::new("/proc"));
    let counted = after.zip(before).map(|(after, before)| after.since(before));
    let drift = watched(args, &mut process, &moved, &mut interrupt);
    let report = PageMoveReport {
        version: VERSION,
        pid: process.pid(),
        name,
        to_nodes: match order.target {
            PageTarget::Node(node) => vec![node],
            PageTarget::Interleave(nodes) => nodes,
        },
        dry_run: args.dry_run,
        end: moved.end,
        reached: moved.reached.map(|at| at.to_string()),
        page_bytes: process.page_b,
        pages: moved.counts,
        batches: Batches {
            limit_ns: pace::LIMIT,
            longest_ns: moved.batches.iter().map(|batch| batch.took).max(),
            over_limit: moved.batches.iter().filter(|batch| batch.took > pace::LIMIT).count(),
            each: moved.batches,
        },
        huge: Huge {
            before_bytes: moved.huge_before,
            after_bytes: moved.huge_after,
            moved_whole: counted.map(|counted| counted.whole),
            failed: counted.map(|counted| counted.failed),
            split: counted.map(|counted| counted.split),
        },
        drift,
    };
    output::write(None, &if args.json { printable::json(&report) } else { text(&report) })?;
    status(&report, &interrupt)
}

/// Signals that end the move. Each is taken between two batches: no batch is cut short.
struct Interrupt {
    fd: OwnedFd,
    signal: Option<i32>,
}

impl Interrupt {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { fd: children::take_signals()?, signal: None })
    }

    fn came(&mut self) -> bool {
        // The first signal is the one of the exit status.
        self.signal = self.signal.or_else(|| Some(sys::next_signal(self.fd.as_fd())?.signal));
        self.signal.is_some()
    }
}

/// Watches whether the kernel moves pages away again, if automatic NUMA balancing is on.
fn watched(
    args: &Args,
    process: &mut MovableProcess,
    moved: &Moved,
    interrupt: &mut Interrupt,
) -> Option<Drift> {
    let balances = live::balances(Path::new("/proc")) == Some(true);
    let is_moved = moved.end == MoveEnd::Done && moved.counts.moved > 0;
    (balances && args.watch > 0 && is_moved && !args.dry_run).then(|| {
        let time = Nanos::from_secs(args.watch.into());
        live::watch(process, &moved.sample, time, &mut || interrupt.came())
    })
}

/// Exit status of the command.
fn status(report: &PageMoveReport, interrupt: &Interrupt) -> anyhow::Result<ExitCode> {
    let size = |pages: u64| Bytes(pages * report.page_bytes);
    let reached = report.reached.as_deref().unwrap_or_default();
    if report.end == MoveEnd::ProcessEnded {
        bail!(
            "the process ended in the middle: {} were moved, and nothing is known from {reached} on",
            size(report.pages.moved)
        );
    }
    if let (Some(signal), MoveEnd::Stopped) = (interrupt.signal, report.end) {
        // At most 128 + 64: the fallback is never used.
        let code = u8::try_from(128 + signal).unwrap_or(OURS);
        let moved = size(report.pages.moved);
        let message = format!(
            "stopped by signal {signal}: {moved} were moved; not everything from {reached} on was \
             looked at; the same command goes on from there"
        );
        return Err(Failure { code, message }.into());
    }
    if report.pages.no_memory > 0 {
        let nodes = process::nodes_named(&list(&report.to_nodes));
        let left = size(report.pages.no_memory);
        bail!("expected room on {nodes}, found too little: {left} stay where they were");
    }
    Ok(ExitCode::SUCCESS)
}

fn text(report: &PageMoveReport) -> String {
    let nodes = process::nodes_named(&list(&report.to_nodes));
    let name = printable(&report.name);
    let dry = if report.dry_run { "; nothing is moved" } else { "" };
    let mut text = format!("memory of process {} ({name}) to {nodes}{dry}\n", report.pid);
    counts(report, &mut text);
    if report.dry_run {
        return text;
    }
    let Batches { limit_ns, longest_ns, over_limit, each } = &report.batches;
    if let Some(longest) = longest_ns {
        let count = each.len();
        let _ = writeln!(
            text,
            "batches        {count}, the longest {longest}; {over_limit} above {limit_ns}"
        );
    }
    huge_pages(&report.huge, &mut text);
    drift(report, &mut text);
    text
}

fn counts(report: &PageMoveReport, text: &mut String) {
    let pages = &report.pages;
    let moved = if report.dry_run { "would move" } else { "moved" };
    let lines = [
        (moved, pages.moved, ""),
        ("already there", pages.already_there, ""),
        ("not in memory", pages.not_present, "never touched, or in swap"),
        ("busy", pages.busy, "held by a transfer, a pin or a lock each time they were tried"),
        ("shared", pages.shared, "mapped by other processes, too: --shared, with CAP_SYS_NICE"),
        ("no room", pages.no_memory, "the node has no memory left"),
        ("unmovable", pages.unmovable, "a device's, the kernel's own, or zeros"),
        ("not reached", pages.not_reached, "ended before"),
    ];
    // Requested pages always have a line, other outcomes only if they occurred.
    for (what, pages, why) in lines.iter().filter(|line| line.1 > 0 || line.0 == moved) {
        let size = Bytes(pages * report.page_bytes).to_string();
        let _ = writeln!(text, "{}", format!("{what:<14} {size:>10}  {why}").trim_end());
    }
}

fn huge_pages(huge: &Huge, text: &mut String) {
    if huge.before_bytes.0 == 0 {
        return;
    }
    let after = huge.after_bytes.map_or("unknown".into(), |after| after.to_string());
    let _ = write!(text, "huge pages     {} before, {after} after", huge.before_bytes);
    if let (Some(whole), Some(split)) = (huge.moved_whole, huge.split) {
        let _ = write!(text, "; the kernel moved {whole} whole and split {split}");
        if split > 0 {
            let _ = write!(
                text,
                ":\n               the node had no free memory in one piece; as root: echo 1 > \
                 /sys/devices/system/node/nodeN/compact"
            );
        }
    }
    text.push('\n');
}

fn drift(report: &PageMoveReport, text: &mut String) {
    let Some(Drift { watched, looked_at, drifted }) = &report.drift else { return };
    let _ = if *drifted == 0 {
        writeln!(text, "balancing      on; of {looked_at} pages none moved away within {watched}")
    } else {
        writeln!(
            text,
            "balancing      {drifted} of {looked_at} pages moved away again within {watched}:\n               \
             kernel.numa_balancing moves them to the threads that use them; run those threads on {},\n               \
             or switch it off: sudo sysctl -w kernel.numa_balancing=0",
            process::nodes_named(&list(&report.to_nodes))
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn everything() -> PageMoveReport {
        PageMoveReport {
            version: VERSION,
            pid: Pid(7),
            name: "stream".into(),
            to_nodes: vec![NodeNr(1)],
            dry_run: false,
            end: MoveEnd::Done,
            reached: None,
            page_bytes: 4096,
            pages: PageCounts {
                moved: 16384,
                already_there: 512,
                not_present: 1,
                busy: 2,
                shared: 3,
                no_memory: 4,
                unmovable: 5,
                not_reached: 6,
            },
            batches: Batches {
                limit_ns: pace::LIMIT,
                longest_ns: Some(Nanos(21_500_000)),
                over_limit: 1,
                each: vec![Batched { pages: 64, took: Nanos(21_500_000), next: 44, whole: false }],
            },
            huge: Huge {
                before_bytes: Bytes(32 << 20),
                after_bytes: Some(Bytes(24 << 20)),
                moved_whole: Some(12),
                failed: Some(4),
                split: Some(4),
            },
            drift: Some(Drift { watched: Nanos::from_secs(2), looked_at: 4096, drifted: 300 }),
        }
    }

    #[test]
    fn every_line_there_can_be() {
        expect![[r#"
            memory of process 7 (stream) to node 1
            moved              64 MiB
            already there       2 MiB
            not in memory       4 KiB  never touched, or in swap
            busy                8 KiB  held by a transfer, a pin or a lock each time they were tried
            shared             12 KiB  mapped by other processes, too: --shared, with CAP_SYS_NICE
            no room            16 KiB  the node has no memory left
            unmovable          20 KiB  a device's, the kernel's own, or zeros
            not reached        24 KiB  ended before
            batches        1, the longest 21.5 ms; 1 above 20.0 ms
            huge pages     32 MiB before, 24 MiB after; the kernel moved 12 whole and split 4:
                           the node had no free memory in one piece; as root: echo 1 > /sys/devices/system/node/nodeN/compact
            balancing      300 of 4096 pages moved away again within 2.00 s:
                           kernel.numa_balancing moves them to the threads that use them; run those threads on node 1,
                           or switch it off: sudo sysctl -w kernel.numa_balancing=0
        "#]].assert_eq(&text(&everything()));
    }

    #[test]
    fn a_dry_run_speaks_of_what_would_be() {
        let mut report = everything();
        report.dry_run = true;
        report.to_nodes = [0, 1, 3].map(NodeNr).to_vec();
        report.pages = PageCounts { moved: 256, ..PageCounts::default() };
        expect![[r#"
            memory of process 7 (stream) to nodes 0-1,3; nothing is moved
            would move          1 MiB
        "#]]
        .assert_eq(&text(&report));
    }

    #[test]
    fn what_stays_is_said_to_stay() {
        let mut report = everything();
        report.pages = PageCounts { moved: 256, ..PageCounts::default() };
        report.huge.before_bytes = Bytes(0);
        report.drift = Some(Drift { watched: Nanos::from_secs(5), looked_at: 256, drifted: 0 });
        expect![[r#"
            memory of process 7 (stream) to node 1
            moved               1 MiB
            batches        1, the longest 21.5 ms; 1 above 20.0 ms
            balancing      on; of 256 pages none moved away within 5.00 s
        "#]]
        .assert_eq(&text(&report));
    }
}
