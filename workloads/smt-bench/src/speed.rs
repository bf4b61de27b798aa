//! Speed of a PU: the time of a fixed piece of work.
//!
//! A [`Portion`] has a fixed number of iterations of four loops. A chain of dependent additions
//! shows the clock rate; loops bound by throughput show the work per cycle. Times of the same
//! portion on different PUs are comparable.
//!
//! Two clocks are read. By the wall clock, a PU with other load is slow, as it is for every thread
//! there. The thread's CPU clock excludes the time of other threads. Loops alternate many times in
//! a visit, and the wall clock times only the whole: a PU that is taken away periodically would
//! otherwise affect one loop and spare another.

use crate::clock;
use crate::control::Control;
use crate::kernel::Kernel;
use crate::measure::sized;
use crate::runner::Runner;
use crate::thread::{ThreadError, cpu_ns, is_on, pin, side_by_side, wall_ns};
use std::time::Duration;

/// Loops bound by throughput: integer units, floating-point units, and the front end with branch
/// prediction. All run within the first-level cache, so memory has no effect.
const KERNELS: [Kernel; 3] = [Kernel::IntAdd, Kernel::FpMul, Kernel::Branch];

/// CPU time of each loop of a portion on the PU that sized it, in nanoseconds. Chosen: a thousand
/// times the cost of reading the two clocks (0.3 µs), so a portion takes a millisecond and a visit
/// has many.
const LOOP_NS: u64 = 250_000;

/// A fixed piece of work: about a millisecond on the PU that sized it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Rounds of the chain of additions.
    chain: u64,
    /// Iterations of each of [`KERNELS`].
    kernels: [u64; KERNELS.len()],
}

/// Result of one visit to a PU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Portions done. Never 0.
    pub portions: u64,
    /// Wall time of the portions, in nanoseconds. Never 0.
    pub wall_ns: u64,
    /// CPU time of the portions, in nanoseconds. Never 0. Includes time taken by a hypervisor,
    /// unless reported as stolen.
    pub cpu_ns: u64,
    /// Additions of the chain, one cycle each.
    pub additions: u64,
    /// CPU time of the additions, in nanoseconds. Never 0.
    pub additions_cpu_ns: u64,
}

/// Length of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitLength {
    /// Untimed work at the beginning, in which the core wakes up and its clock rate rises.
    pub warm_up: Duration,
    /// Least timed work; the last portion is finished.
    pub timed: Duration,
}

/// Sizes a portion on PU `cpu`, for use on all PUs.
///
/// # Errors
/// [`ThreadError`] if the PU cannot be used or no thread can be created.
pub fn portion(cpu: u32) -> Result<Portion, ThreadError> {
    on(cpu, || {
        let chain = sized(LOOP_NS, |rounds| _ = clock::chain(rounds));
        let kernels = KERNELS.map(|kernel| sized(LOOP_NS, Runner::new(kernel.into()).repeated()));
        Portion { chain, kernels }
    })
}

/// Runs portions on PU `cpu` for `length`, in a new thread. The mask of the calling thread stays.
///
/// # Errors
/// [`ThreadError`] if the PU cannot be used or goes offline meanwhile, or no thread can be created.
pub fn visit(cpu: u32, portion: Portion, length: VisitLength) -> Result<Visit, ThreadError> {
    on(cpu, || {
        let runners = KERNELS.map(|kernel| Runner::new(kernel.into()));
        let mut work = PreparedLoops { portion, runners, control: Control::new() };
        work.until(length.warm_up);
        work.until(length.timed)
    })
}

/// Runs `what` in a new thread on `cpu`. Fails if the thread is elsewhere at the end, as its result
/// would be meaningless.
pub(crate) fn on<T: Send>(cpu: u32, what: impl Fn() -> T + Sync) -> Result<T, ThreadError> {
    let mut done = side_by_side(
        1,
        |_| pin(cpu),
        |_, ()| {
            let done = what();
            is_on(cpu).map(|()| done)
        },
        || (),
    )?;
    done.remove(0)
}

/// Prepared loops of a portion.
struct PreparedLoops {
    portion: Portion,
    runners: [Runner; KERNELS.len()],
    control: Control,
}

impl PreparedLoops {
    /// Runs portions for `length`, at least one.
    fn until(&mut self, length: Duration) -> Visit {
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let wall = wall_ns();
        let cpu = cpu_ns();
        let mut visit = Visit::default();
        while visit.wall_ns < length_ns || visit.portions == 0 {
            visit.additions_cpu_ns += self.once();
            visit.portions += 1;
            visit.additions += self.portion.chain * clock::IN_A_ROW;
            // Above 0, since rates divide by times.
            visit.wall_ns = (wall_ns() - wall).max(1);
        }
        visit.cpu_ns = (cpu_ns() - cpu).max(1);
        visit.additions_cpu_ns = visit.additions_cpu_ns.max(1);
        visit
    }

    /// Runs one portion, and returns the CPU time of its chain in nanoseconds.
    fn once(&mut self) -> u64 {
        let before = cpu_ns();
        clock::chain(self.portion.chain);
        let chain = cpu_ns() - before;
        for (runner, iterations) in self.runners.iter_mut().zip(self.portion.kernels) {
            runner.run(&self.control, iterations);
        }
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::usable;
    use colocate_testing::skip;

    const SHORT: VisitLength =
        VisitLength { warm_up: Duration::from_micros(100), timed: Duration::from_millis(3) };

    #[test]
    fn a_visit_does_whole_portions_for_as_long_as_asked() {
        let before = usable().unwrap();
        let portion = portion(before[0]).unwrap();
        assert!(portion.chain > 0 && portion.kernels.iter().all(|&iterations| iterations > 0));
        for &cpu in &before {
            let visit = visit(cpu, portion, SHORT).unwrap();
            assert!(visit.portions >= 1 && visit.wall_ns >= 3_000_000, "{visit:?}");
            assert_eq!(visit.additions, visit.portions * portion.chain * clock::IN_A_ROW);
            assert!(
                0 < visit.additions_cpu_ns && visit.additions_cpu_ns <= visit.cpu_ns,
                "{visit:?}"
            );
        }
        assert_eq!(usable().unwrap(), before, "the calling thread was moved");
    }

    /// A thread that moves itself represents one whose PU went offline.
    #[test]
    fn a_thread_that_was_moved_has_measured_nothing() {
        let cpus = usable().unwrap();
        let Some(&other) = cpus.get(1) else { skip!(TwoPus, "one PU") };
        let message = on(cpus[0], || pin(other).unwrap()).unwrap_err().to_string();
        let expected = format!("cannot run on PU {}: the mask read back is [{other}]", cpus[0]);
        assert_eq!(message, expected);
    }

    #[test]
    fn at_least_one_portion_is_done() {
        let portion = Portion { chain: 1, kernels: [1; KERNELS.len()] };
        let length = VisitLength { warm_up: Duration::ZERO, timed: Duration::ZERO };
        let visit = visit(usable().unwrap()[0], portion, length).unwrap();
        assert_eq!((visit.portions, visit.additions), (1, clock::IN_A_ROW));
    }

    #[test]
    fn an_absent_pu_is_named() {
        let message = portion(8_000).unwrap_err().to_string();
        assert!(message.starts_with("cannot run on PU 8000: "), "{message}");
    }

    #[test]
    fn sizes_are_in_proportion_to_the_target() {
        // A loop that spins for as many clock readings as asked.
        let spin = |iterations| assert!((0..iterations).map(|_| cpu_ns()).is_sorted());
        assert!(sized(1, spin) >= 1);
        assert!(sized(10_000_000, spin) > sized(10_000, spin));
    }
}
