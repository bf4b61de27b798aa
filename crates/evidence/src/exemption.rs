//! Exemptions: reasons why a thread must not be pinned to one PU.

/// Reason why a thread must not be pinned to one PU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exemption {
    /// Second thread of a Go program: the runtime counts PUs on it.
    GoMonitor,
    /// Second thread of a Java program: it runs `main`.
    JavaMain,
    /// A process that the thread created has executed a program.
    StartsPrograms,
    /// The thread has created a process a short time ago.
    JustForked,
    /// The process of the thread creates threads faster than they can be followed.
    Storm,
    /// The creator of the thread's process ended before the process was seen: only the record of its creation shows its job.
    Orphan,
    /// A sched_ext scheduler is loaded, under which threads are not pinned to one PU, and no smaller part of the machine has several
    /// PUs.
    ExtScheduler,
    /// The program has set the mask of the thread to all PUs again.
    MaskReset,
}

impl Exemption {
    /// Reason in reports.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::GoMonitor => "the Go runtime counts PUs on it",
            Self::JavaMain => "Java code counts PUs on it",
            Self::StartsPrograms => "it starts programs, which would see only its PU",
            Self::JustForked => "it has just created a process, which would have only its PU",
            Self::Storm => "its process creates threads faster than they are followed",
            Self::Orphan => "its creator had ended before it was seen",
            Self::ExtScheduler => {
                "a sched_ext scheduler is loaded, so threads go to a core or cache, and here each of these has all PUs or one"
            }
            Self::MaskReset => "its program has set all PUs again",
        }
    }
}
