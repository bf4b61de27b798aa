//! Wake-ups: simulated threads wait for each other at barriers only, and what wakes them there is not a thread.

use colocate_policy::Refusal;
use colocate_policy::source::Backend;

pub(super) fn answer() -> Result<Backend, Refusal> {
    Err(Refusal {
        why: "simulated threads do not wake each other".to_owned(),
        remedy: "run real programs",
    })
}
