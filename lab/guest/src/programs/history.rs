//! `history SEED FOLDER [MASK GENERATION]`: threads that act at random: create threads and
//! processes, execute this program again, pin themselves to two PUs, unpin themselves, and end.
//!
//! As soon as `FOLDER/check` exists, each living thread writes the mask that was set by the thread
//! itself or inherited, to `FOLDER/TID`: `-` if no mask was set.

#![allow(unsafe_code)] // fork(2) and sched_setaffinity(2), which the standard library does not have

use super::{lives, own_tid};
use crate::evidence::list;
use crate::groups::Offline;
use crate::random::Random;
use anyhow::Context as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Most threads of one process.
const MOST_THREADS: usize = 5;
/// Generations of processes.
const GENERATIONS: u32 = 2;
/// Longest time between two actions of a thread. Chosen: an emulated machine of 16 PUs has time
/// left beside forty threads.
const LONGEST: Duration = Duration::from_millis(200);

/// State of a thread, inherited by its children.
#[derive(Clone)]
struct Member {
    random: Random,
    folder: PathBuf,
    /// PUs that the thread, or an ancestor, has set last. `None`: none set, or all PUs.
    bound: Option<Vec<u32>>,
    generation: u32,
    threads: Arc<AtomicUsize>,
    is_first: bool,
}

/// Acts until the check begins.
///
/// # Errors
/// If an argument is missing, or a thread or process cannot be created.
pub fn main(arguments: &[String]) -> anyhow::Result<()> {
    let seed = arguments.first().and_then(|word| word.parse().ok()).context("expected a seed")?;
    let folder = arguments.get(1).context("expected a folder")?.into();
    let bound = arguments.get(2).filter(|mask| *mask != "-").map(|mask| list(mask)).transpose()?;
    let generation = arguments.get(3).map_or(Ok(1), |word| word.parse())?;
    let threads = Arc::new(AtomicUsize::new(1));
    Member { random: Random::new(seed), folder, bound, generation, threads, is_first: true }.acts()
}

impl Member {
    fn acts(mut self) -> anyhow::Result<()> {
        let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
        while !self.folder.join("check").exists() {
            match self.random.below(20) {
                0..6 => self.creates_a_thread()?,
                6 | 7 => self.forks()?,
                8 => return self.executes(),
                9..12 => self.binds_itself(),
                12 => self.frees_itself(),
                13 | 14 if !self.is_first => {
                    self.threads.fetch_sub(1, Ordering::Relaxed);
                    return Ok(());
                }
                _ => {}
            }
            std::thread::sleep(Duration::from_micros(self.random.below(longest)));
        }
        let bound = self.bound.as_ref().map_or("-".into(), |pus| text(pus));
        std::fs::write(self.folder.join(own_tid()?.to_string()), bound)?;
        lives()
    }

    /// A copy with its own random numbers.
    fn next(&mut self) -> Self {
        Self { random: Random::new(self.random.next()), ..self.clone() }
    }

    fn creates_a_thread(&mut self) -> anyhow::Result<()> {
        if self.threads.load(Ordering::Relaxed) < MOST_THREADS {
            self.threads.fetch_add(1, Ordering::Relaxed);
            let next = Self { is_first: false, ..self.next() };
            std::thread::Builder::new().spawn(|| next.acts())?;
        }
        Ok(())
    }

    fn forks(&mut self) -> anyhow::Result<()> {
        if self.generation > GENERATIONS {
            return Ok(());
        }
        let threads = Arc::new(AtomicUsize::new(1));
        let next = Self { generation: self.generation + 1, threads, is_first: true, ..self.next() };
        // Bounds the number of forks of a process.
        self.generation += 1;
        // SAFETY: no other thread holds a lock of the standard library for long, and a child that
        // waits for a lock for ever is just another process for the case.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).context("fork"),
            0 => {
                let done = next.acts();
                // SAFETY: takes no pointer and does not return.
                unsafe { libc::_exit(i32::from(done.is_err())) }
            }
            _ => Ok(()),
        }
    }

    /// Executes this program again, which ends all other threads of the process.
    fn executes(mut self) -> anyhow::Result<()> {
        let bound = self.bound.as_ref().map_or("-".into(), |pus| text(pus));
        let seed = self.random.next().to_string();
        let why = Command::new("lab-guest")
            .args(["--program", "history", &seed])
            .arg(&self.folder)
            .args([bound, self.generation.to_string()])
            .exec();
        Err(why).context("exec")
    }

    /// Pins the thread to two PUs: colocate's own masks have one PU.
    fn binds_itself(&mut self) {
        let Ok(all) = pus(Path::new("/sys/devices/system/cpu/online")) else { return };
        let first = self.random.pick(&all);
        let second = self.random.pick(&all);
        if first != second && set(&[first, second]) {
            self.bound = Some(vec![first.min(second), first.max(second)]);
        }
    }

    fn frees_itself(&mut self) {
        let all = pus(Path::new("/sys/devices/system/cpu/possible"));
        if all.is_ok_and(|all| set(&all)) {
            self.bound = None;
        }
    }
}

/// Mask of a thread that set all PUs while `pu` was offline, read after the PU is online again.
///
/// # Errors
/// If the PU cannot be taken offline, or the mask cannot be set or read.
pub fn mask_set_without(pu: u32) -> anyhow::Result<String> {
    let thread = std::thread::spawn(move || {
        let offline = Offline::take(pu)?;
        let all = pus(Path::new("/sys/devices/system/cpu/possible"))?;
        anyhow::ensure!(set(&all), "a mask of all PUs was refused");
        drop(offline);
        let status = crate::evidence::text("/proc/thread-self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Ok(line.context("the kernel reports no mask")?.trim().to_owned())
    });
    thread.join().map_err(|_| anyhow::anyhow!("the thread has panicked"))?
}

fn pus(path: &Path) -> anyhow::Result<Vec<u32>> {
    list(&crate::evidence::text(path)?)
}

/// One or two PUs, in the kernel's list format.
fn text(pus: &[u32]) -> String {
    match pus {
        [first, second] if first + 1 == *second => format!("{first}-{second}"),
        pus => pus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}

/// Pins the calling thread. False if its cpuset has none of the PUs.
fn set(pus: &[u32]) -> bool {
    let mut mask = [0_u64; 16];
    for pu in pus.iter().filter(|pu| **pu < 1024) {
        mask[*pu as usize / 64] |= 1 << (pu % 64);
    }
    // SAFETY: the kernel reads `mask` up to its stated size.
    unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) == 0 }
}
