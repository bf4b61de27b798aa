//! Pinned threads and their clocks.

use std::fmt::Display;
use std::io;
use std::sync::mpsc::channel;
use std::thread::Builder;

/// Failure to set up a thread, in a line: the kernel rejects its mask, or does not return it, the
/// mask is another one than requested, or no thread or memory is available.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ThreadError(pub(crate) String);

impl ThreadError {
    /// The thread could not be created.
    pub(crate) fn spawn(error: impl Display) -> Self {
        Self(format!("cannot start a thread: {error}"))
    }
}

/// PUs of a mask. The kernel's own limit is 8,192 (`NR_CPUS` on x86-64).
const MASK_BITS: usize = 8192;
/// PUs of one word of a mask.
const WORD_BITS: usize = u64::BITS as usize;
type Mask = [u64; MASK_BITS / WORD_BITS];

/// Pins the calling thread to PU `cpu`, and reads the mask back.
///
/// Needs no privilege inside the inherited cpuset.
///
/// # Errors
/// [`ThreadError`] if `cpu` is offline, absent or not allowed, or as of [`is_on`].
pub fn pin(cpu: u32) -> Result<(), ThreadError> {
    set_mask(cpu).map_err(|source| {
        ThreadError(format!("cannot run on PU {cpu}: sched_setaffinity: {source}"))
    })?;
    is_on(cpu)
}

/// Checks that the calling thread may run on PU `cpu` only. The kernel widens the mask of a thread
/// when its PU goes offline.
///
/// # Errors
/// [`ThreadError`] if the mask has other PUs, or cannot be read.
pub fn is_on(cpu: u32) -> Result<(), ThreadError> {
    match usable()? {
        found if found == [cpu] => Ok(()),
        found => {
            Err(ThreadError(format!("cannot run on PU {cpu}: the mask read back is {found:?}")))
        }
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

/// PUs usable by the calling thread, in ascending order: online, in its affinity mask and in its
/// cpuset.
///
/// # Errors
/// [`ThreadError`] if the mask cannot be read.
pub fn usable() -> Result<Vec<u32>, ThreadError> {
    let mut mask: Mask = [0; MASK_BITS / WORD_BITS];
    // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes to `mask`.
    let ret = unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if ret < 0 {
        let error = io::Error::last_os_error();
        return Err(ThreadError(format!(
            "cannot read the affinity mask: sched_getaffinity: {error}"
        )));
    }
    #[allow(clippy::cast_possible_truncation)] // a constant that fits
    let all = 0..MASK_BITS as u32;
    let set = all.filter(|pu| {
        let bit = *pu as usize;
        mask[bit / WORD_BITS] >> (bit % WORD_BITS) & 1 == 1
    });
    Ok(set.collect())
}

/// Runs `count` threads, and returns the results of `work` in their order.
///
/// Every thread first calls `prepare`. When all are ready, all begin `work`, and `meanwhile` runs
/// in the calling thread.
///
/// # Errors
/// [`ThreadError`] if a thread cannot be created, or the first error of `prepare`. No thread has
/// called `work` then.
pub fn side_by_side<P, T: Send>(
    count: usize,
    prepare: impl Fn(usize) -> Result<P, ThreadError> + Sync,
    work: impl Fn(usize, P) -> T + Sync,
    meanwhile: impl FnOnce(),
) -> Result<Vec<T>, ThreadError> {
    let (ready, prepared) = channel();
    let prepare = &prepare;
    let work = &work;
    std::thread::scope(|scope| {
        // A thread whose `go` is dropped ends at once, so every return from here ends all of them.
        let mut started = Vec::new();
        for number in 0..count {
            let ready = ready.clone();
            let (go, wait) = channel();
            let thread =
                Builder::new().name(format!("smt-bench {number}")).spawn_scoped(scope, move || {
                    let (outcome, mine) = match prepare(number) {
                        Ok(mine) => (Ok(()), Some(mine)),
                        Err(error) => (Err(error), None),
                    };
                    // There is no receiver if another thread failed before.
                    let _ = ready.send(outcome);
                    wait.recv().ok().zip(mine).map(|((), mine)| work(number, mine))
                });
            started.push((go, thread.map_err(ThreadError::spawn)?));
        }
        prepared.iter().take(count).collect::<Result<Vec<()>, _>>()?;
        let (go, threads): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        for go in &go {
            // All are ready, so each has a receiver.
            let _ = go.send(());
        }
        meanwhile();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        Ok(joined.flatten().collect())
    })
}

/// Wall time in nanoseconds since an arbitrary moment (`CLOCK_MONOTONIC`).
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
