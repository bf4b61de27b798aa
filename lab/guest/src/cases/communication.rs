//! Known communication patterns are detected, partners are placed near each other, and masks are
//! restored at the end.

use crate::evidence::{eventually, list, text};
use crate::tasks::{LiveTask, untouched};
use anyhow::{Context as _, ensure};
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const THREADS: usize = 8;

/// Kind of communication: the program, and the policy that detects this kind.
#[derive(Clone, Copy)]
struct Means(&'static str, &'static str);

const WAKE_UPS: Means = Means("turns", "communication");
const MEMORY: Means = Means("shares", "communication:source=sharing");

/// Each pair has a core of its own.
pub(super) fn pairs_share_cores() -> anyhow::Result<()> {
    placed(WAKE_UPS, "pairs", are_pairs)
}

/// Each pair has a core of its own, if partners share memory without wake-ups.
pub(super) fn pairs_with_memory_share_cores() -> anyhow::Result<()> {
    placed(MEMORY, "pairs", are_pairs)
}

fn are_pairs(cores: &[Vec<usize>], _is_close: bool) -> bool {
    cores == [[0, 4], [1, 5], [2, 6], [3, 7]]
}

/// Neighbours of a ring share cores, and the ring uses as few packages as possible.
pub(super) fn a_ring_lies_close() -> anyhow::Result<()> {
    placed(WAKE_UPS, "ring", are_neighbours)
}

/// Neighbours of a ring share cores, if neighbours share memory without wake-ups.
pub(super) fn a_ring_with_memory_lies_close() -> anyhow::Result<()> {
    placed(MEMORY, "ring", are_neighbours)
}

fn are_neighbours(cores: &[Vec<usize>], is_close: bool) -> bool {
    is_close
        && cores.len() == THREADS / 2
        && cores
            .iter()
            .all(|core| matches!(core[..], [a, b] if b == a + 1 || (a, b) == (0, THREADS - 1)))
}

/// The centre of a star shares its core with a worker, and the star uses as few packages as
/// possible. All other cores of the packages are equally far from the centre.
pub(super) fn a_star_lies_close() -> anyhow::Result<()> {
    placed(WAKE_UPS, "star", |cores, is_close| is_close && matches!(cores[0][..], [0, _]))
}

/// All-to-all communication has no better placement, so no thread is placed.
pub(super) fn all_to_all_is_left_alone() -> anyhow::Result<()> {
    let mut program = CommunicatingProgram::start(WAKE_UPS, "all")?;
    let mut colocate = attach(WAKE_UPS, &program)?;
    std::thread::sleep(Duration::from_secs(5));
    let free = untouched()?.cpus;
    let placed: Vec<LiveTask> =
        program.threads().into_iter().filter(|task| task.bonds.cpus != free).collect();
    stop(&mut colocate)?;
    program.0.kill()?;
    program.0.wait()?;
    ensure!(placed.is_empty(), "expected no placement, found {placed:?}");
    Ok(())
}

/// Waits until `is_right` holds for the placement, and then checks that masks are restored.
///
/// `is_right` gets the threads of each core, and true if as few packages as possible are used.
fn placed(
    means: Means,
    pattern: &str,
    is_right: impl Fn(&[Vec<usize>], bool) -> bool,
) -> anyhow::Result<()> {
    let mut program = CommunicatingProgram::start(means, pattern)?;
    let mut colocate = attach(means, &program)?;
    let mut seen = Vec::new();
    let found = eventually("threads that communicate to be near each other", || {
        let threads = program.threads();
        let pus: Option<Vec<u32>> = threads.iter().map(LiveTask::only_pu).collect();
        // Incomplete placements are intermediate states.
        let Some(pus) = pus.filter(|pus| pus.len() == THREADS) else { return Ok(false) };
        let mut cores: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (thread, pu) in pus.iter().enumerate() {
            cores.entry(topology(*pu, "core_cpus_list")?).or_default().push(thread);
        }
        let mut packages: Vec<String> =
            pus.iter().map(|pu| topology(*pu, "package_cpus_list")).collect::<Result<_, _>>()?;
        packages.sort();
        packages.dedup();
        // All packages have equally many PUs.
        let room = list(&packages[0])?.len();
        seen = cores.into_values().collect();
        seen.sort();
        Ok(is_right(&seen, packages.len() == THREADS.div_ceil(room)))
    });
    stop(&mut colocate)?;
    let free = untouched()?.cpus;
    let restored = program.threads().iter().all(|task| task.bonds.cpus == free);
    program.0.kill()?;
    program.0.wait()?;
    found.with_context(|| format!("threads by core at last: {seen:?}"))?;
    ensure!(restored, "expected all masks to be restored");
    Ok(())
}

fn topology(pu: u32, file: &str) -> anyhow::Result<String> {
    text(format!("/sys/devices/system/cpu/cpu{pu}/topology/{file}"))
}

/// A program whose threads communicate.
struct CommunicatingProgram(Child);

impl CommunicatingProgram {
    fn start(Means(program, _): Means, pattern: &str) -> anyhow::Result<Self> {
        let mut command = Command::new("lab-guest");
        command.args(["--program", program, pattern, &THREADS.to_string()]);
        let program = Self(command.stdin(Stdio::null()).spawn()?);
        eventually("its threads", || Ok(program.threads().len() == THREADS))?;
        Ok(program)
    }

    /// All threads but the main thread, sorted by creation.
    fn threads(&self) -> Vec<LiveTask> {
        let pid = self.0.id().cast_signed();
        let tids = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let mut tids: Vec<i32> =
            tids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        // Thread IDs grow with creation.
        tids.sort_unstable();
        tids.into_iter()
            .filter(|tid| *tid != pid)
            .filter_map(|tid| LiveTask::read(pid, tid))
            .collect()
    }
}

fn attach(Means(_, policy): Means, program: &CommunicatingProgram) -> anyhow::Result<Child> {
    let mut command = Command::new("colocate");
    command.args(["attach", "--no-guard", "--policy", policy, "-q", "-p"]);
    Ok(command.arg(program.0.id().to_string()).stdin(Stdio::null()).spawn()?)
}

fn stop(colocate: &mut Child) -> anyhow::Result<()> {
    let pid = colocate.id().to_string();
    // SIGINT is the regular end of `attach`, with status 0.
    ensure!(Command::new("kill").args(["-INT", &pid]).status()?.success(), "kill failed");
    let status = colocate.wait()?;
    ensure!(status.success(), "colocate attach ended with {status}");
    Ok(())
}
