//! The diagnosis as text.

use super::{Capability, Diagnosis, FailureCause, Scope, Status, policies};
use colocate_machine::printable;
use std::fmt::Write;

/// Room for the longest name of a capability.
const NAME: usize = 16;

/// Whole text; with `quiet`, only capabilities that do not work fully.
pub fn of(diagnosis: &Diagnosis, quiet: bool) -> String {
    let mut text = String::new();
    put(&mut text, if diagnosis.works { WORKS } else { FAILS });
    policies::warning(&diagnosis.policies).into_iter().for_each(|line| put(&mut text, &line));
    if !quiet {
        text.push('\n');
        put(&mut text, "this place");
        for fact in &diagnosis.place {
            put(&mut text, &format!("        {:NAME$}{}", fact.name, fact.value));
        }
    }
    for section in &diagnosis.sections {
        let shown = section.capabilities.iter();
        let mut shown =
            shown.filter(|capability| !quiet || capability.status < Status::Yes).peekable();
        if shown.peek().is_some() {
            text.push('\n');
            put(&mut text, section.title);
        }
        shown.for_each(|capability| put_capability(&mut text, capability));
    }
    let lines = policies::lines(&diagnosis.policies, quiet);
    if !lines.is_empty() {
        text.push('\n');
        put(&mut text, "policies, by their evidence");
        lines.iter().for_each(|line| put(&mut text, line));
    }
    if !quiet && !diagnosis.next.is_empty() {
        text.push('\n');
        put(&mut text, &format!("beyond the tier {}", diagnosis.tier.name()));
        diagnosis.next.iter().for_each(|cause| put_cause(&mut text, cause));
    }
    text
}

const WORKS: &str = "colocate works here: tasks can be placed, programs can be watched";
const FAILS: &str = "colocate does not work here: see what says no under placing and evidence";

fn put_capability(text: &mut String, capability: &Capability) {
    let status = match capability.status {
        Status::Yes => "yes",
        Status::Partly => "partly",
        Status::No => "no",
    };
    let Capability { name, what, found, .. } = capability;
    put(text, &format!("{status:>6}  {name:NAME$}{what}: {found}"));
    if let Some(cause) = &capability.cause {
        put_cause(text, cause);
    }
}

fn put_cause(text: &mut String, cause: &FailureCause) {
    put(text, &format!("        {}", cause.why));
    for fix in &cause.fixes {
        let label = match fix.scope {
            Scope::Now => "now:",
            Scope::Always => "for good:",
            Scope::Instead => "or:",
        };
        // A comment, so that the whole line can be pasted.
        let note = fix.note.map_or(String::new(), |note| format!("  # {note}"));
        put(text, &format!("          {label:<10}{}{note}", fix.command));
    }
}

fn put(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", printable(line));
}
