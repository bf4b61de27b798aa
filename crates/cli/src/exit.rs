//! Exit codes, in one place.
//!
//! | code | meaning |
//! |---|---|
//! | the program's own | `run` and `profile`: as `env` and `timeout` do; 128 + N if signal N killed it |
//! | 2 | wrong usage |
//! | 3 | a capability that was asked for by name is missing here; `colocate doctor` says why, and itself ends so where nothing can be placed or watched |
//! | 125 | colocate itself failed |
//! | 126 | the program was found but could not be executed |
//! | 127 | the program was not found |

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use colocate_linux::privilege;
use colocate_machine::printable;
use colocate_policy::table::{self, PolicyRow};
use std::ffi::OsStr;
use std::process::ExitCode;
use std::{fmt, io};

/// Wrong usage.
pub const USAGE: u8 = 2;
/// A requested capability is missing here.
pub const NO_CAPABILITY: u8 = 3;
/// colocate itself failed.
pub const OURS: u8 = 125;
/// The program was found but could not be executed.
pub const CANNOT_EXECUTE: u8 = 126;
/// The program, or its interpreter, was not found.
pub const NOT_FOUND: u8 = 127;

/// The standard library's words for text that is no number, and what was expected.
const NO_NUMBER: [(&str, &str); 4] = [
    ("invalid digit found in string", "expected a whole number"),
    ("cannot parse integer from empty string", "expected a whole number"),
    ("number too large to fit in target type", "expected a smaller number"),
    ("invalid float literal", "expected a number"),
];

/// An error with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// A single line: found, expected, remedy.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Error for wrong usage.
pub fn usage(message: String) -> anyhow::Error {
    Failure { code: USAGE, message }.into()
}

/// Error for a requested capability that is missing here.
pub fn no_capability(message: String) -> anyhow::Error {
    Failure { code: NO_CAPABILITY, message }.into()
}

/// Error for an interrupted command, with the status that a shell reports after SIGINT.
pub fn stopped(message: String) -> anyhow::Error {
    Failure { code: 130, message }.into()
}

/// Error for a program that was found and cannot be started, as of a script without its interpreter.
pub fn cannot_start(program: &OsStr, why: &io::Error) -> anyhow::Error {
    let is_absent = why.kind() == io::ErrorKind::NotFound;
    let code = if is_absent { NOT_FOUND } else { CANNOT_EXECUTE };
    Failure { code, message: format!("{}: {why}", program.display()) }.into()
}

/// Arguments of this process, with the policies `more` beside colocate's own; or the exit code after
/// help or an error was printed. `moved` lists commands and options of earlier versions with their
/// present names.
///
/// First drops all privileges of the executable file, capabilities or set-user-ID, except those for
/// watching.
pub fn started<C: Parser>(
    more: &'static [&'static PolicyRow],
    moved: &[(&str, &str)],
) -> Result<C, ExitCode> {
    // Before any input is read that a caller could have prepared.
    privilege::give_up().map_err(|why| code_of(Err(why.into())))?;
    table::add(more);
    C::try_parse().map_err(|error| refused::<C>(error, moved))
}

/// Prints help or an error; returns the exit code.
fn refused<C: Parser>(error: clap::Error, moved: &[(&str, &str)]) -> ExitCode {
    if let Some(line) = new_place(&error, moved) {
        crate::output::remark(&line);
        return ExitCode::from(USAGE);
    }
    if !error.use_stderr() {
        // Help and version, in colour if enabled; they quote no argument.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // Arguments are quoted and may contain line breaks: they are shown escaped.
    let shown = std::env::args_os().map(|arg| printable(&arg.to_string_lossy()).into_owned());
    // Escaped arguments may be valid; then the error quotes the original ones.
    let error = C::try_parse_from(shown).err().unwrap_or(error);
    let rendered = error.render().to_string();
    let mut text = NO_NUMBER.iter().fold(rendered, |text, (from, to)| text.replace(from, to));
    if error.kind() == ErrorKind::UnknownArgument && text.contains("-- <CMD>") {
        text.push_str("\nWhat is to be run comes after `--`.\n");
    }
    crate::output::aside(&text);
    ExitCode::from(USAGE)
}

/// A line for a command or an option that has another name now.
fn new_place(error: &clap::Error, moved: &[(&str, &str)]) -> Option<String> {
    let words: Vec<String> = std::env::args().skip(1).skip_while(|word| word == "help").collect();
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => Some(option.as_str()),
        _ => None,
    };
    let (old, now) = moved.iter().find(|(old, _)| {
        // The first word is the program.
        let mut command = old.split(' ').skip(1).zip(1..).peekable();
        Some(*old) == option
            || command.peek().is_some()
                && command.all(|(word, count)| words.get(count - 1).is_some_and(|it| it == word))
    })?;
    let built = if now.starts_with("colocate-study") { " (`make study` builds it)" } else { "" };
    Some(format!("`{old}` is `{now}` now{built}"))
}

/// The exit code of `done`. Prints its error, if any, as one line on standard error.
pub fn code_of(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        crate::output::remark(&one_line(&error));
        ExitCode::from(error.downcast_ref::<Failure>().map_or(OURS, |failure| failure.code))
    })
}

/// `error` and its causes in a line. A cause contained in the error's text is not repeated.
pub fn one_line(error: &anyhow::Error) -> String {
    let causes = error.chain().map(ToString::to_string);
    let line = causes.fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        _ if said.ends_with(&cause) => said,
        _ => format!("{said}: {cause}"),
    });
    // Parsers of files report positions on several lines.
    printable(&line.replace('\n', " ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::one_line;
    use anyhow::anyhow;

    #[test]
    fn a_cause_is_said_once_and_all_in_one_line() {
        let repeated = anyhow!("no such file").context("read /sys: no such file");
        assert_eq!(one_line(&repeated), "read /sys: no such file");
        let added = anyhow!("no such file").context("cannot start");
        assert_eq!(one_line(&added), "cannot start: no such file");
        assert_eq!(one_line(&anyhow!("`sh -c a\nb` failed")), "`sh -c a b` failed");
    }
}
