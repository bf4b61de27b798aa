//! Wake-ups of threads that take turns. Threads at barriers are not woken by a thread.

use super::known;
use crate::parts::Parts;
use colocate_evidence::{Provider, Refusal};

pub(super) fn answer(parts: &Parts<'_>) -> Result<Provider, Refusal> {
    parts.takes_turns().then(known).ok_or_else(|| Refusal {
        why: "threads of this scenario do not wake each other".to_owned(),
        remedy: "let threads take turns",
    })
}
