//! Run states: CPU time, and waits for a PU.

use crate::parts::Parts;
use crate::task::TaskNo;
use colocate_evidence::{Provider, Refusal, SeenTask};

pub(super) fn report(parts: &Parts<'_>, task: TaskNo, seen: &mut SeenTask) {
    seen.cpu_time = Some(parts.tasks[task].total.ran);
    seen.waited = Some(parts.waited(task));
}

pub(super) fn at_once() -> Result<Provider, Refusal> {
    Err(Refusal {
        why: "simulated quanta are as long as requested".to_owned(),
        remedy: "shorter quanta show it sooner",
    })
}
