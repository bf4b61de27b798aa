//! Threads on PUs, and their clocks.

use std::io;
use std::sync::mpsc::channel;
use std::thread::Builder;

/// Why a thread cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The kernel refused: the PU is offline, absent or outside the cpuset.
    #[error("cannot run on PU {cpu}: sched_setaffinity: {source}")]
    Refused {
        /// The requested PU, by the kernel's number.
        cpu: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// The mask that is in force is another.
    #[error("cannot run on PU {cpu}: the mask read back is {found:?}")]
    Elsewhere {
        /// The requested PU, by the kernel's number.
        cpu: u32,
        /// The PUs that the thread may really use.
        found: Vec<u32>,
    },
    /// The mask cannot be read.
    #[error("cannot read the affinity mask: sched_getaffinity: {0}")]
    Unreadable(io::Error),
    /// It could not be created.
    #[error("cannot start a thread: {0}")]
    Spawn(io::Error),
    /// There is no memory for its matrix.
    #[error("cannot have {rows} rows of 576 bytes: mmap: {source}")]
    Memory {
        /// Requested rows.
        rows: u32,
        /// The kernel's error.
        source: io::Error,
    },
}

/// PUs that a mask can name. The kernel's own limit is 8,192 (`NR_CPUS` on x86-64).
const MASK_BITS: usize = 8192;
const WORD_BITS: usize = u64::BITS as usize;
type Mask = [u64; MASK_BITS / WORD_BITS];

/// Lets the calling thread run on PU `cpu` only, and makes sure that it does.
///
/// Needs no privilege inside the inherited cpuset.
///
/// # Errors
/// - [`ThreadError::Refused`] if `cpu` is offline, absent or not allowed.
/// - [`ThreadError::Elsewhere`] if the mask read back is not that PU alone.
/// - [`ThreadError::Unreadable`] if the mask cannot be read back.
pub fn pin(cpu: u32) -> Result<(), ThreadError> {
    set_mask(cpu).map_err(|source| ThreadError::Refused { cpu, source })?;
    is_on(cpu)
}

/// Makes sure that the calling thread may run on PU `cpu` only. The kernel widens the mask of a thread whose PU goes
/// offline.
///
/// # Errors
/// - [`ThreadError::Elsewhere`] if its mask is not that PU alone.
/// - [`ThreadError::Unreadable`] if its mask cannot be read.
pub fn is_on(cpu: u32) -> Result<(), ThreadError> {
    match usable()? {
        found if found == [cpu] => Ok(()),
        found => Err(ThreadError::Elsewhere { cpu, found }),
    }
}

fn set_mask(cpu: u32) -> io::Result<()> {
    let mut mask: Mask = [0; MASK_BITS / WORD_BITS];
    let bit = cpu as usize;
    let word = mask.get_mut(bit / WORD_BITS).ok_or(io::ErrorKind::InvalidInput)?;
    *word |= 1 << (bit % WORD_BITS);
    // SAFETY: the kernel reads `size_of_val(&mask)` bytes from `mask`.
    let ret = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    if ret < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The PUs that the calling thread may use, in ascending order: online, in its affinity mask and
/// in its cpuset.
///
/// # Errors
/// [`ThreadError::Unreadable`].
pub fn usable() -> Result<Vec<u32>, ThreadError> {
    let mut mask: Mask = [0; MASK_BITS / WORD_BITS];
    // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes to `mask`.
    let ret = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if ret < 0 {
        return Err(ThreadError::Unreadable(io::Error::last_os_error()));
    }
    let set = |bit: &u32| mask[*bit as usize / WORD_BITS] >> (*bit as usize % WORD_BITS) & 1 == 1;
    #[allow(clippy::cast_possible_truncation)] // a constant that fits
    Ok((0..MASK_BITS as u32).filter(set).collect())
}

/// Runs `count` threads, and returns what `work` returned in each.
///
/// Each first prepares itself. When all are ready they begin to work, and `meanwhile` runs in the calling thread.
///
/// # Errors
/// - [`ThreadError::Spawn`] if a thread cannot be created.
/// - The first error of `prepare`. No thread has worked then.
pub fn side_by_side<P, T: Send>(
    count: usize,
    prepare: impl Fn(usize) -> Result<P, ThreadError> + Sync,
    work: impl Fn(usize, P) -> T + Sync,
    meanwhile: impl FnOnce(),
) -> Result<Vec<T>, ThreadError> {
    let (ready, prepared) = channel();
    let (prepare, work) = (&prepare, &work);
    std::thread::scope(|scope| {
        // A thread whose `go` is dropped ends at once, so every return from here ends all of them.
        let start = |number| {
            let (ready, (go, wait)) = (ready.clone(), channel());
            let body = move || {
                let (outcome, mine) = match prepare(number) {
                    Ok(mine) => (Ok(()), Some(mine)),
                    Err(error) => (Err(error), None),
                };
                // There is no receiver if another thread failed before.
                let _ = ready.send(outcome);
                wait.recv().ok().zip(mine).map(|((), mine)| work(number, mine))
            };
            let name = format!("smt-bench {number}");
            let thread = Builder::new().name(name).spawn_scoped(scope, body);
            Ok((go, thread.map_err(ThreadError::Spawn)?))
        };
        let started = (0..count).map(start).collect::<Result<Vec<_>, ThreadError>>()?;
        prepared.iter().take(count).collect::<Result<Vec<()>, _>>()?;
        let (go, threads): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        for go in &go {
            // All are ready, so each has a receiver.
            let _ = go.send(());
        }
        meanwhile();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Option<T>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(threads.into_iter().filter_map(join).collect())
    })
}

/// Wall time in nanoseconds since some moment (`CLOCK_MONOTONIC`).
#[must_use]
pub fn wall_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread in nanoseconds (`CLOCK_THREAD_CPUTIME_ID`). Stops while
/// the thread waits for its PU.
#[must_use]
pub fn cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[allow(clippy::cast_sign_loss)] // neither clock is ever negative
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` to `now`. Both clocks exist on every Linux that Rust
    // runs on, so the call cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_where_it_should_be() {
        for cpu in usable().unwrap() {
            let seen = std::thread::spawn(move || {
                pin(cpu).unwrap();
                (usable().unwrap(), is_on(cpu).is_ok(), is_on(cpu + 1).is_ok())
            });
            assert_eq!(seen.join().unwrap(), (vec![cpu], true, false));
        }
    }

    #[test]
    fn an_absent_pu_is_refused_by_name() {
        for cpu in [8_191, 8_192, u32::MAX] {
            let message = pin(cpu).unwrap_err().to_string();
            let expected = format!("cannot run on PU {cpu}: sched_setaffinity: ");
            assert!(message.starts_with(&expected), "{message}");
        }
    }

    #[test]
    fn clocks_go_forward_and_a_sleeper_uses_no_cpu_time() {
        let (wall, cpu) = (wall_ns(), cpu_ns());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (waited, used) = (wall_ns() - wall, cpu_ns() - cpu);
        assert!(waited >= 20_000_000 && used < waited, "{waited} {used}");
    }
}
