//! The boots that show that `colocate run` puts threads where the plan has them, that programs take turns under
//! `colocate schedule`, and that nothing of it remains.

use super::{Boot, Size};
use crate::guest::Guest;
use std::time::Duration;

/// 2 packages with a node each, 4 cores, 2 PUs.
const TWO_SOCKETS: &str = "synthetic:pack:2 node:1 l3:1 core:4 pu:2";

const RUN: &[&str] = &[
    "run-follows-os",
    "run-follows-round-robin",
    "run-follows-scatter",
    "run-follows-compact",
    "run-follows-random",
    "run-follows-instruction",
    "run-follows-mix",
    "run-watches-then-places",
    "run-places-newborns",
    "run-places-forks-and-execs",
    "run-places-static-programs",
    "run-follows-within-a-cpuset",
    "run-follows-a-cpuset-that-changes",
    "run-follows-a-pu-that-goes-and-returns",
    "run-follows-a-pu-that-comes",
    "run-stays-within-a-quota",
    "run-leaves-what-it-may-not-touch",
];
const PROGRAMS: &[&str] = &["setpriv", "taskset", "threads-static"];

const UNDO: &[&str] = &[
    "undo-after-the-end",
    "undo-after-the-programs-are-killed",
    "undo-after-sigterm",
    "undo-after-2-kills",
    "undo-restored-2-times",
];
const UNDO_FOLLOWS: &[&str] = &["undo-follows-a-cpuset-that-grows", "undo-follows-a-pu-that-comes"];
/// Again on the other kernel, and more often.
const UNDO_OFTEN: &[&str] = &[
    "undo-after-the-end",
    "undo-after-the-programs-are-killed",
    "undo-after-sigterm",
    "undo-after-200-kills",
    "undo-restored-50-times",
    "undo-follows-a-cpuset-that-grows",
    "undo-follows-a-pu-that-comes",
];

const SCHEDULE: &[&str] =
    &["schedule-follows-a-pu-that-goes-and-returns", "schedule-undone-after-2-kills"];
const SCHEDULE_FOLLOWS: &[&str] = &["schedule-follows-a-cpuset-that-changes"];
/// Again on the other kernel, and more often.
const SCHEDULE_OFTEN: &[&str] = &[
    "schedule-follows-a-pu-that-goes-and-returns",
    "schedule-follows-a-cpuset-that-changes",
    "schedule-undone-after-100-kills",
];

/// A boot with its cases and its limit in seconds.
const fn boot(
    name: &'static str,
    machine: &'static str,
    guest: Guest,
    size: Size,
    cases: &'static [&'static str],
    limit: u64,
) -> Boot {
    let limit = Duration::from_secs(limit);
    Boot { name, machine, guest, icount: false, size, programs: PROGRAMS, cases, limit }
}

pub const BOOTS: &[Boot] = &[
    boot("run", TWO_SOCKETS, Guest::X86Linux6_12, Size::Quick, RUN, 900),
    boot("run-6.1", TWO_SOCKETS, Guest::X86Linux6_1, Size::Full, RUN, 900),
    boot("run-epyc", "epyc-7301", Guest::X86Linux6_12, Size::Full, RUN, 900),
    boot("schedule", TWO_SOCKETS, Guest::X86Linux6_12, Size::Quick, SCHEDULE, 900),
    boot("schedule-follows", TWO_SOCKETS, Guest::X86Linux6_12, Size::Full, SCHEDULE_FOLLOWS, 900),
    boot("schedule-often", TWO_SOCKETS, Guest::X86Linux6_1, Size::Full, SCHEDULE_OFTEN, 3600),
    boot("undo", TWO_SOCKETS, Guest::X86Linux6_1, Size::Quick, UNDO, 900),
    boot("undo-follows", TWO_SOCKETS, Guest::X86Linux6_1, Size::Full, UNDO_FOLLOWS, 900),
    boot("undo-often", TWO_SOCKETS, Guest::X86Linux6_12, Size::Full, UNDO_OFTEN, 1800),
    boot(
        "undo-for-hours",
        TWO_SOCKETS,
        Guest::X86Linux6_12,
        Size::Soak,
        &["undo-after-5000-kills"],
        36_000,
    ),
];
