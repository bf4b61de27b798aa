//! A scheduler that is loaded by sched_ext decides in the kernel's stead when and where threads run.
//!
//! It has to keep to the masks of threads, and many get worse by masks of one PU or refuse them (scx issues 1202, 1489): a
//! thread is placed on the PUs of a core or cache then. Where one is loaded after threads were placed on single PUs, which
//! its user has not counted on, every mask is restored.

use colocate_files::kernel;
use std::path::Path;

const FOLDER: &str = "/sys/kernel/sched_ext";

/// Presence of a sched_ext scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtScheduler {
    /// Not loaded.
    Absent,
    /// Loaded when this run began.
    Before,
    /// Loaded during this run.
    Since,
}

/// Name of the scheduler loaded according to `folder`; `None` if none is.
fn loaded(folder: &Path) -> Option<String> {
    let word = |name: &str| Some(kernel::read_text(&folder.join(name)).ok()?.trim().to_owned());
    let is_loaded = matches!(&*word("state")?, "enabled" | "enabling");
    is_loaded.then(|| word("root/ops").unwrap_or_default())
}

impl ExtScheduler {
    /// Presence after `self` in a run, and a line on the change; `None` without a change.
    pub fn next(self, is_launched: bool) -> Option<(Self, String)> {
        Some(match (self, loaded(Path::new(FOLDER))) {
            (Self::Absent, Some(name)) if is_launched => (
                Self::Since,
                format!(
                    "the sched_ext scheduler {name} was loaded: every thread has its own mask again"
                ),
            ),
            (Self::Absent, Some(name)) => (
                Self::Before,
                format!(
                    "the sched_ext scheduler {name} is loaded: threads are placed on the PUs of a core or cache, not on one \
                     PU, and where these are all PUs they are left to it"
                ),
            ),
            (Self::Before | Self::Since, None) => (
                Self::Absent,
                "the sched_ext scheduler is gone: threads are placed on single PUs".to_owned(),
            ),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_loaded_if_its_state_says_so() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("root")).unwrap();
        let state = |text: &str| {
            std::fs::write(folder.path().join("state"), text).unwrap();
            loaded(folder.path())
        };
        assert_eq!(loaded(folder.path()), None, "a kernel without it");
        assert_eq!(state("disabled\n"), None);
        assert_eq!(state("enabled\n").as_deref(), Some(""));
        std::fs::write(folder.path().join("root/ops"), "lavd\n").unwrap();
        assert_eq!(state("enabled\n").as_deref(), Some("lavd"));
    }
}
