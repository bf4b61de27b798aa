//! Which masks a journal's changes have left.

use super::{MaskFacts, MaskOwner, allowed, mask_and_cpuset};
use crate::journal::{Journal, JournalEntry};
use crate::workload::JournalWorkload;
use colocate_files::kernel;
use colocate_linux::Tid;
use colocate_linux::handle::ProcessHandle;
use colocate_machine::PuSet;
use std::path::Path;

/// Whether a thread has a given mask, whatever is known of its process.
pub(super) fn has_given_mask(
    workload: &JournalWorkload<'_>,
    process: &ProcessHandle,
    tid: Tid,
    entry: Option<&JournalEntry>,
) -> bool {
    let original = &workload.journal().original;
    let given = given(workload.journal(), entry);
    let Ok(shown) = allowed(process, tid) else { return false };
    // Most show a mask that says it all: to read the cpuset as well takes longer than some take to create others.
    if given.contains(&shown) || is_of_gone(workload.journal(), process, tid, &shown) {
        return true;
    }
    // A mask whose PUs are all shown is not hidden by the cpuset.
    if given.iter().all(|mask| mask.is_subset(&shown)) {
        return false;
    }
    let read = mask_and_cpuset(workload.cpusets(), process, tid);
    read.is_some_and(|(shown, cpuset)| {
        let cpuset = cpuset.or_else(online).unwrap_or_else(|| original.clone());
        let facts = MaskFacts {
            shown: &shown,
            cpuset: &cpuset,
            original,
            own: None,
            inherited: &given,
            programs: None,
        };
        MaskOwner::of(&facts).is_to_undo()
    })
}

/// Whether a first thread has a mask given to an ended thread of its process: the ended thread
/// may have executed a program and be the first thread since.
fn is_of_gone(journal: &Journal, process: &ProcessHandle, tid: Tid, shown: &PuSet) -> bool {
    let pid = process.pid();
    tid == pid.first_thread()
        && *shown != journal.original
        && journal.was_of_gone(pid, shown, |tid| process.stat_of(tid).is_some())
}

/// Masks that a thread may have been given according to the journal; all masks for an unknown
/// thread.
fn given(journal: &Journal, entry: Option<&JournalEntry>) -> Vec<PuSet> {
    let Some(entry) = entry else { return journal.given() };
    let marks = [entry.mark, entry.was].into_iter().filter(|mark| mark.is_put());
    let masks = marks.filter_map(|mark| journal.mask(mark));
    // With one PU in the original mask nothing has changed.
    masks.filter(|mask| *mask != journal.original).collect()
}

/// Online PUs.
fn online() -> Option<PuSet> {
    let list = kernel::read_text(Path::new("/sys/devices/system/cpu/online")).ok()?;
    PuSet::parse_list(list.trim()).ok()
}
