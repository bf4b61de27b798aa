//! The commands of one call.

use crate::exit::{self, Failure};
use colocate_act::launch::{Command, LaunchError};
use colocate_model::{Profile, ProfiledProgram};
use std::ffi::{OsStr, OsString};

/// Word between two commands.
pub const SEPARATOR: &str = ":::";

/// A command and facts known about its program.
pub struct JobCommand {
    /// The program and its arguments.
    pub command: Command,
    /// The program's identity, or the reason why it is unknown.
    pub program: Result<ProfiledProgram, String>,
    /// Profile of an earlier run.
    pub profile: Option<Profile>,
}

impl JobCommand {
    /// A command whose program is not identified.
    pub fn new(command: Command) -> Self {
        Self { command, program: Err("its program was not identified".into()), profile: None }
    }

    /// Identifies the program; reads its whole file.
    pub fn identify(&mut self) {
        let command = &self.command;
        let identity = colocate_observe::identity::of_file(&command.path);
        let program = identity.map(|identity| ProfiledProgram {
            path: lossy(command.path.as_os_str()),
            args: command.argv.iter().skip(1).map(|arg| lossy(arg)).collect(),
            identity,
        });
        self.program = program.map_err(|why| format!("{}: {why}", command.path.display()));
    }
}

fn lossy(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// The commands in `words`, with their programs found.
pub fn commands(words: &[OsString]) -> anyhow::Result<Vec<Command>> {
    let parts = words.split(|word| word == SEPARATOR);
    let found = parts.map(|argv| {
        if argv.is_empty() {
            return Err(exit::usage(format!(
                "expected a command on each side of `{SEPARATOR}`, found none"
            )));
        }
        Ok(find(argv.to_vec())?)
    });
    found.collect()
}

/// The command of `argv`, with its program found in `PATH`.
pub fn find(argv: Vec<OsString>) -> Result<Command, Failure> {
    Command::find(argv, std::env::var_os("PATH").as_deref()).map_err(|why| failure(&why))
}

/// Failure to launch a program, with the exit code of env(1).
pub fn failure(why: &LaunchError) -> Failure {
    let code = u8::try_from(why.status()).unwrap_or(exit::OURS);
    Failure { code, message: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Result<Vec<String>, u8> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        match commands(&words) {
            Ok(found) => Ok(found.iter().map(Command::name).collect()),
            Err(why) => Err(why.downcast_ref::<Failure>().unwrap().code),
        }
    }

    #[test]
    fn commands_are_split() {
        assert_eq!(
            names(&["true", "a", ":::", "sh", "-c", ":"]),
            Ok(vec!["true".into(), "sh".into()])
        );
        assert_eq!(names(&["true", ":::a"]), Ok(vec!["true".into()]));
    }

    #[test]
    fn empty_commands_are_refused() {
        assert_eq!(names(&[":::", "true"]), Err(2));
        assert_eq!(names(&["true", ":::"]), Err(2));
        assert_eq!(names(&["true", ":::", ":::", "true"]), Err(2));
    }

    #[test]
    fn the_first_missing_program_decides() {
        assert_eq!(names(&["true", ":::", "no-such-program-at-all"]), Err(127));
    }
}
