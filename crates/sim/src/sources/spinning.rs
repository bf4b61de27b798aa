//! Spinning: time of tasks that wait for others in a loop.

use super::known;
use crate::parts::Parts;
use crate::task::TaskNo;
use colocate_evidence::{Provider, Refusal, SeenTask};

pub(super) fn answer(is_hidden: bool) -> Result<Provider, Refusal> {
    let hidden =
        Refusal { why: "the scenario hides it".to_owned(), remedy: "let the scenario show it" };
    if is_hidden { Err(hidden) } else { Ok(known()) }
}

pub(super) fn report(parts: &Parts<'_>, task: TaskNo, seen: &mut SeenTask) {
    seen.spun = Some(parts.spun(task));
}
