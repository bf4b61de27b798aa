//! Shell completions: PIDs where an option takes one, files only where an option takes one.

use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

/// A shell, the path of its completions below `share`, and the replacement that completes PIDs: the
/// placeholder hint, its generated text, and the text in its place.
struct ShellCompletion {
    shell: Shell,
    file: fn(&str) -> String,
    hint: ValueHint,
    hinted: &'static str,
    pids: &'static str,
}

const KINDS: [ShellCompletion; 3] = [
    ShellCompletion {
        shell: Shell::Bash,
        file: |name| format!("bash-completion/completions/{name}.bash"),
        hint: ValueHint::DirPath,
        hinted: "COMPREPLY=()\n                    if [[ \"${BASH_VERSINFO[0]}\" -ge 4 ]]; then\n                        compopt -o plusdirs\n                    fi",
        pids: "COMPREPLY=($(compgen -W \"$(ps -eo pid=)\" -- \"${cur}\"))",
    },
    ShellCompletion {
        shell: Shell::Zsh,
        file: |name| format!("zsh/site-functions/_{name}"),
        hint: ValueHint::Username,
        hinted: ":_users",
        pids: ":_pids",
    },
    ShellCompletion {
        shell: Shell::Fish,
        file: |name| format!("fish/vendor_completions.d/{name}.fish"),
        hint: ValueHint::Username,
        hinted: "(__fish_complete_users)",
        pids: "(__fish_complete_pids)",
    },
];

/// Files of completions, as path below `share` and text.
pub fn all(command: fn() -> Command) -> Vec<(String, String)> {
    let name = command().get_name().to_owned();
    let files = KINDS.iter().map(|kind| {
        let mut command = with_hints(command(), kind.hint);
        let mut text = Vec::new();
        clap_complete::generate(kind.shell, &mut command, &name, &mut text);
        let text = String::from_utf8_lossy(&text).replace(kind.hinted, kind.pids);
        ((kind.file)(&name), text)
    });
    files.collect()
}

/// The command with `hint` on options of PIDs, and without hints on options that take no file.
fn with_hints(command: Command, hint: ValueHint) -> Command {
    let is_pid =
        |arg: &Arg| arg.get_value_names().is_some_and(|names| names.iter().any(|it| it == "PID"));
    let command = command.mut_args(move |arg| {
        if is_pid(&arg) {
            arg.value_hint(hint)
        } else if takes_file(&arg) {
            arg
        } else {
            arg.value_hint(ValueHint::Other)
        }
    });
    command.mut_subcommands(move |command| with_hints(command, hint))
}

/// Whether an argument may be a file name: text, no number or time. Flags count, without a value.
fn takes_file(arg: &Arg) -> bool {
    let of = arg.get_value_parser().type_id();
    let texts = [TypeId::of::<PathBuf>(), TypeId::of::<OsString>(), TypeId::of::<String>()];
    !arg.get_action().takes_values() || texts.into_iter().any(|text| of == text)
}
