//! Conversion of a PMU's events to perf's form, and trials of them.

use super::cpu::Cpu;
use super::events::{EventKind, PmuEvent};
use super::open::{OpenGroup, Spec, Start};
use super::pfm::Pfm;
use super::sysfs::CorePmu;
use colocate_linux::{SysError, Tid};
use perf_event_open_sys::bindings as c;
use std::time::{Duration, Instant};

/// `PERF_COUNT_HW_INSTRUCTIONS`.
pub(super) const INSTRUCTIONS: u64 = c::PERF_COUNT_HW_INSTRUCTIONS as u64;

pub(super) fn specs(events: &[PmuEvent], pmu: &CorePmu, alone: bool) -> Vec<Spec> {
    events.iter().map(|event| spec(event.source, Some(pmu), alone)).collect()
}

pub(super) fn spec(source: EventKind, pmu: Option<&CorePmu>, alone: bool) -> Spec {
    match (source, pmu) {
        (EventKind::Generic(number), Some(pmu)) => generic(pmu, alone, number),
        (EventKind::Generic(number), None) => Spec { kind: c::PERF_TYPE_HARDWARE, config: number },
        (EventKind::Software(number), _) => Spec { kind: c::PERF_TYPE_SOFTWARE, config: number },
        (EventKind::Raw(code), pmu) => {
            let name = pmu.and_then(|pmu| pmu.family).map_or("", |family| &family.pfm);
            // libpfm4 may not know the processor or the event; the table has a code of its own.
            let config = Pfm::get().ok().filter(|_| !name.is_empty());
            let config = config.and_then(|pfm| pfm.code(name, code).ok()).unwrap_or(code.config);
            Spec { kind: pmu.map_or(c::PERF_TYPE_RAW, |pmu| pmu.kind), config }
        }
    }
}

/// perf's generic event `number` on `pmu`.
///
/// With several kinds of cores the event needs to name one. On Intel the PMU's number is in the
/// upper half of `config` (since Linux 5.13, `PERF_PMU_TYPE_SHIFT`). Arm's kernels support this
/// only since later, so Arm uses the architecture's own codes: INST_RETIRED, CPU_CYCLES,
/// BR_MIS_PRED, BR_RETIRED.
pub(super) fn generic(pmu: &CorePmu, alone: bool, number: u64) -> Spec {
    const PERF_PMU_TYPE_SHIFT: u32 = 32;
    const CYCLES: u64 = c::PERF_COUNT_HW_CPU_CYCLES as u64;
    const BRANCH_MISSES: u64 = c::PERF_COUNT_HW_BRANCH_MISSES as u64;
    if alone {
        return Spec { kind: c::PERF_TYPE_HARDWARE, config: number };
    }
    match (pmu.cpu, number) {
        (Cpu::Arm { .. }, INSTRUCTIONS) => Spec { kind: pmu.kind, config: 0x08 },
        (Cpu::Arm { .. }, CYCLES) => Spec { kind: pmu.kind, config: 0x11 },
        (Cpu::Arm { .. }, BRANCH_MISSES) => Spec { kind: pmu.kind, config: 0x10 },
        (Cpu::Arm { .. }, _) => Spec { kind: pmu.kind, config: 0x21 },
        _ => {
            let config = u64::from(pmu.kind) << PERF_PMU_TYPE_SHIFT | number;
            Spec { kind: c::PERF_TYPE_HARDWARE, config }
        }
    }
}

/// Time limit for a group to be scheduled on the processor. The kernel rotates groups every tick,
/// at most 10 ms apart (`HZ` is 100 to 1000).
const TURN: Duration = Duration::from_millis(20);

/// Counts `specs` together on the calling thread until they have counted.
///
/// The kernel accepts any group that fits an idle processor. A group whose counter is held by
/// another user, such as the NMI watchdog, is accepted too, but never runs.
///
/// # Errors
/// As [`OpenGroup::open`]; `EBUSY` if others held the counters all the time.
pub(crate) fn counts(specs: &[Spec]) -> Result<(), SysError> {
    let group = OpenGroup::open(specs, Tid(0), Start::Now)?;
    let begun = Instant::now();
    while group.read()?.running_ns == 0 {
        if begun.elapsed() >= TURN {
            return Err(busy());
        }
        // Busy: the group counts only while this thread runs.
        std::hint::spin_loop();
    }
    Ok(())
}

/// Error for counters in use; the kernel itself would let the event wait for ever.
pub(super) fn busy() -> SysError {
    SysError::of("perf_event_open", libc::EBUSY)
}
