//! Demand vectors of the planned programs: from files (`--demand`) and from their profiles.

use super::PlannedProgram;
use crate::demand::phases_or_reason;
use crate::exit::usage;
use anyhow::{Context, anyhow};
use colocate_machine::Performance;
use colocate_model::Phase;
use colocate_model::phase::Guesses;
use std::path::{Path, PathBuf};

/// Demand vectors from a file: one for all threads of a program, or one for each.
#[derive(Clone)]
pub struct Given {
    pub file: PathBuf,
    phases: Vec<Phase>,
}

impl Given {
    fn of(&self, order: usize) -> Phase {
        let place = if self.phases.len() == 1 { 0 } else { order };
        self.phases.get(place).cloned().unwrap_or_default()
    }
}

/// Reads the files of `options`, each `[JOB=]FILE`, into their programs.
pub fn give(
    options: &[String],
    programs: &mut [PlannedProgram],
    profiles: usize,
    speeds: Option<&Performance>,
) -> anyhow::Result<()> {
    for option in options {
        let (job, path) = parse(option);
        let wrong = |expected: String, found: &str| {
            usage(format!("--demand {option}: expected {expected}, found {found}"))
        };
        // `--profile` is required, so there is a program.
        let last = programs.len() - 1;
        let of: Vec<usize> = match job {
            Some(job) => match job.parse().ok().filter(|job| *job <= last) {
                Some(job) => vec![job],
                None => return Err(wrong(format!("a job from 0 to {last}"), job)),
            },
            None if profiles == 1 => (0..=last).collect(),
            None => return Err(wrong("JOB=FILE with several profiles".into(), "no job")),
        };
        let phases =
            read(path, speeds).with_context(|| format!("cannot use demand {}", path.display()))?;
        for job in of {
            let program = &mut programs[job];
            let threads = program.profile.threads.len();
            if phases.len() != 1 && phases.len() != threads {
                return Err(anyhow!(
                    "cannot use demand {}: expected 1 demand vector, or one for each of the {threads} \
                     threads of {}, found {}",
                    path.display(),
                    program.name,
                    phases.len()
                ));
            }
            let given = Given { file: path.to_owned(), phases: phases.clone() };
            if program.given.replace(given).is_some() {
                return Err(wrong(format!("one file of job {job}"), "two"));
            }
        }
    }
    Ok(())
}

/// The job, if given, and the file. A job is a number: a file name may also contain `=`.
fn parse(option: &str) -> (Option<&str>, &Path) {
    match option.split_once('=') {
        Some((job, file)) if !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_digit()) => {
            (Some(job), Path::new(file))
        }
        _ => (None, Path::new(option)),
    }
}

fn read(path: &Path, speeds: Option<&Performance>) -> anyhow::Result<Vec<Phase>> {
    let phases = phases_or_reason(path)?;
    for (place, phase) in (1..).zip(&phases) {
        for kind in speeds.iter().flat_map(|speeds| &speeds.kinds) {
            // Only a check: the policy may choose a core of any kind.
            let on = phase.on(kind, &Guesses::default());
            on.with_context(|| format!("demand vector {place}, {:?}", phase.name))?;
        }
    }
    Ok(phases)
}

/// Demand of each thread of `program` beside its mix: the given vectors, and its rate where
/// counted. Empty if none of it is known.
pub fn known(program: &PlannedProgram) -> Vec<Phase> {
    let threads = program.profile.threads.iter().enumerate();
    let phases = threads.map(|(order, thread)| {
        let profiled = Phase::of_thread(thread, &program.profile);
        let given = program.given.as_ref().map(|given| given.of(order)).unwrap_or_default();
        given.or(profiled)
    });
    let phases: Vec<Phase> = phases.collect();
    let more = program.given.is_some() || phases.iter().any(|p| p.cycles.get().is_some());
    if more { phases } else { Vec::new() }
}

/// A note, after a semicolon, on `phases` with a rate known on `processor` or elsewhere; or empty.
pub fn rates<'a>(phases: impl Iterator<Item = &'a Phase>, processor: Option<&str>) -> String {
    let mut here = 0_usize;
    let mut elsewhere = None;
    for phase in phases {
        match (phase.cycles_on(processor), phase.cycles.get()) {
            (Some(_), _) => here += 1,
            (None, Some(measured)) => elsewhere = Some(&measured.processor),
            (None, None) => {}
        }
    }
    let mut note = String::new();
    if here > 0 {
        note += &format!("; rates of {here} known");
    }
    if let Some(elsewhere) = elsewhere {
        note += &format!("; rates counted on another processor, {elsewhere}, not used");
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_numbers() {
        let of = |option| parse(option);
        assert_eq!(of("1=a.toml"), (Some("1"), Path::new("a.toml")));
        assert_eq!(of("1=a=b"), (Some("1"), Path::new("a=b")));
        assert_eq!(of("a=b"), (None, Path::new("a=b")));
        assert_eq!(of("=b"), (None, Path::new("=b")));
        assert_eq!(of("a"), (None, Path::new("a")));
    }
}
