//! Actuators: what is done to programs, read back, journalled and undone.
//!
//! An edge crate: it makes system calls, those of `colocate_linux`. It observes no programs and decides
//! nothing. Each kind of action is an actuator in a file of its own; those that change threads or cgroups implement one trait, `Actuator`:
//!
//! | actuator | apply | read back | journal | undo |
//! |---|---|---|---|---|
//! | [`affinity`], `MaskActuator` | `Actuators::pin` | in the same call, and `read_back` | a line a thread: PU now and before | the original mask |
//! | [`sched_class`], `ClassActuator` | `Actuators::lower`, `raise` | in the same call | the same line: policy before | the policy before |
//! | [`pause`], `Stop` | `Pauser::stop`, `resume` | `Pauser::poll` | the same line, and the head: signals | SIGCONT |
//! | [`pause`], `Freeze` | `Pauser::stop`, `resume` | `Pauser::poll` | the head: folder of the cgroups | thawed, then `freezer::dissolve` |
//! | [`pages`] | `live::move_spans` | each page, in the same call | none | none: no memory policy changes, and a page is always on one node |
//!
//! [`restore`] undoes what a [`journal`] says, at the end, by the [`guardian`] after a crash, or by `colocate restore`.

mod actuator;
pub mod actuators;
pub mod affinity;
pub mod attached;
pub mod boost;
mod check_sum;
pub mod fair;
pub mod guardian;
pub mod journal;
pub mod launch;
pub mod mask_owner;
pub mod original;
pub mod owner;
pub mod pages;
pub mod pause;
pub mod restore;
pub mod rundir;
pub mod sched_class;
pub mod signals;
pub mod thread;
mod workload;
