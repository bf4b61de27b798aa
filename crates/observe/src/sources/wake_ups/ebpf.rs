//! Wake-ups summed up in the kernel by [`colocate_ebpf`].

use super::{Pair, Ran};
use crate::task::Tid;
use colocate_ebpf::{EbpfError, OTHERS, PairCounts, Watch};
use colocate_machine::Nanos;
use colocate_policy::source::Backend;

/// What it is and costs.
pub(super) fn backend() -> Backend {
    Backend {
        name: "eBPF: sched_waking and sched_switch",
        cost: "a fraction of a microsecond for each wake-up and each switch to another thread"
            .to_owned(),
        limits: Vec::new(),
    }
}

/// What came together since this was last called.
pub(super) fn take(watch: &Watch) -> Result<Vec<Pair>, EbpfError> {
    let tid = |number: u32| Tid(number.cast_signed());
    let pair = |of: PairCounts| Pair {
        waker: (of.waker != OTHERS).then(|| tid(of.waker)),
        wakee: tid(of.wakee),
        count: of.count,
        ran: Some(Ran {
            same_pu: of.same_pu,
            waited: Nanos(of.waited_ns),
            both_ran: Nanos(of.both_ran_ns),
        }),
    };
    Ok(watch.take()?.into_iter().map(pair).collect())
}

/// A line about what found no room so far, if something has not.
pub(super) fn lost(watch: &Watch) -> Result<Option<String>, EbpfError> {
    let lost = watch.lost()?;
    Ok(((lost.tasks, lost.wake_ups) != (0, 0)).then(|| {
        format!(
            "wake-ups of more threads than there is room for: of {} threads and {} wake-ups nothing is known so far",
            lost.tasks, lost.wake_ups
        )
    }))
}
