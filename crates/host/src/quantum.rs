//! Length of quanta, by what they cost.

use colocate_linux::clock::now;
use colocate_machine::Nanos;

/// Shorter quanta are many, also where they are stretched: after one only those tasks are read that ran, and samples are not waited
/// for. Chosen: as often as all are polled.
pub(crate) const WHOLE: Nanos = Nanos::from_secs(1);

/// When a phase has ended the next quantum is no longer. Chosen: many times what it costs, and half of what a user wants a new phase to be
/// acted on within.
const AFTER_PHASE: Nanos = Nanos::from_millis(2);

/// Threads from which on quanta may be stretched. Chosen: so many cost half a percent of a PU in the shortest quanta of a front end,
/// 50 ms.
const MANY: usize = 250;
/// A quantum lasts at least so many times as long as deciding took: that is 1 % of a PU. Chosen: half of what 20,000 threads may
/// cost in all.
const TIMES_DECIDING: u64 = 100;
/// The same where nothing was placed for [`IDLE`]. Chosen: 0.1 % of a PU, half of what 1,000 threads may cost in all.
const TIMES_IDLE: u64 = 1_000;
/// Time without a placed task from which on quanta may be longer. Chosen: programs of many threads have begun by then, and a
/// trial places some in its turns.
const IDLE: Nanos = Nanos::from_secs(5);
/// To no more than this are they stretched by [`TIMES_IDLE`]. Chosen: programs of many threads run for minutes.
const LONGEST_IDLE: Nanos = Nanos::from_secs(2);
/// No quantum is stretched to more. Chosen: the ends of jobs and changes of the machine end it, and what threads do is rarely new
/// sooner where there are tens of thousands.
const LONGEST_QUANTUM: Nanos = Nanos::from_secs(10);

/// State from which the length of the next quantum follows.
#[derive(Debug)]
pub(crate) struct Quantum {
    /// CPU time of this thread when the last quantum ended.
    deciding_since: Nanos,
    /// Whether a phase has ended, so that the next quantum shall soon show what follows.
    ends_phase: bool,
    /// When the last quantum began whose plan places a task, or the first of all.
    placed: Nanos,
}

impl Quantum {
    /// Before the first quantum.
    pub fn new() -> Self {
        Self { deciding_since: own_time(), ends_phase: false, placed: now() }
    }

    /// Takes in that a phase of a program has ended.
    pub const fn end_phase(&mut self) {
        self.ends_phase = true;
    }

    /// Begins a quantum for which `asked` was asked, with `tasks` tasks; `places` says whether its plan places a task or jobs
    /// may wait. Returns its length.
    ///
    /// With very many threads the CPU time that passes between two quanta, to read each thread and to decide, is at most a
    /// share of a PU, unless that took more than [`LONGEST_QUANTUM`], and a smaller one while nothing is placed.
    pub fn begin(&mut self, asked: Nanos, tasks: usize, places: bool) -> Nanos {
        let mut quantum = asked;
        if places {
            self.placed = now();
        }
        if tasks >= MANY {
            let decided = own_time().saturating_sub(self.deciding_since);
            quantum = quantum.max(least(decided, now().saturating_sub(self.placed)));
        }
        // A quantum of no length shows nothing of the next phase.
        if quantum > Nanos::ZERO && std::mem::take(&mut self.ends_phase) {
            quantum = quantum.min(AFTER_PHASE);
        }
        quantum
    }

    /// Ends a quantum of this length.
    pub fn end(&mut self, quantum: Nanos) {
        // What is read and decided after a quantum of no length is part of what precedes the next one.
        if quantum > Nanos::ZERO {
            self.deciding_since = own_time();
        }
    }
}

/// Least length of a quantum after `decided` of CPU time, where no task was placed for the time `unplaced`.
fn least(decided: Nanos, unplaced: Nanos) -> Nanos {
    let always = Nanos(decided.0.saturating_mul(TIMES_DECIDING)).min(LONGEST_QUANTUM);
    let idle = Nanos(decided.0.saturating_mul(TIMES_IDLE)).min(LONGEST_IDLE);
    if unplaced < IDLE { always } else { always.max(idle) }
}

/// CPU time of the thread that calls this.
pub(crate) fn own_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let of = |part: i64| u64::try_from(part).unwrap_or(0);
    Nanos(of(time.tv_sec) * 1_000_000_000 + of(time.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deciding_costs_stretches_quanta() {
        let (us, ms) = (|us: u64| Nanos(us * 1_000), Nanos::from_millis);
        assert_eq!(least(us(1_500), ms(1_000)), ms(150));
        assert_eq!(least(us(1_500), ms(6_000)), ms(1_500), "nothing was placed");
        assert_eq!(least(ms(3), ms(6_000)), ms(2_000));
        assert_eq!(least(ms(30), ms(6_000)), ms(3_000), "never less than where some are placed");
    }
}
