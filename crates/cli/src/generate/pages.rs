//! Manual pages: the output of clap_mangen, followed by examples, files and exit status.

use clap::Command;
use clap_mangen::Man;
use std::fmt::Write;
use std::io;

/// Examples: page, purpose and command line.
pub type Examples = [(&'static str, &'static str, &'static str)];

/// Files common to several commands.
const FILES: [(&str, &str); 5] = [
    (
        "$XDG_CACHE_HOME/colocate/profiles, ~/.cache/colocate/profiles",
        "Profiles of programs that run has watched.",
    ),
    (
        "$XDG_STATE_HOME/colocate, ~/.local/state/colocate, /var/lib/colocate",
        "Measurements that calibrate has made.",
    ),
    (
        "$XDG_RUNTIME_DIR/colocate, /run/colocate, /tmp/colocate-UID",
        "Journals, by which restore undoes what a killed colocate has left.",
    ),
    ("PREFIX/share/doc/colocate/docs", "Documents on each command, on policies and on files."),
    ("PREFIX/share/doc/colocate/docs/schemas", "JSON schemas of what is read and written."),
];

/// Exit status, as in the module `exit`.
const STATUS: [(&str, &str); 6] = [
    ("N", "run, profile: the program's own; 128 + S if signal S killed it. Else 0."),
    ("2", "Wrong usage."),
    ("3", "A capability that was requested by name is missing here; doctor names the remedy."),
    ("125", "colocate itself failed."),
    ("126", "A program was found but cannot be executed."),
    ("127", "A program was not found."),
];

/// Pages of a command and its subcommands, as file name and text.
pub fn all(command: Command, examples: &Examples) -> io::Result<Vec<(String, String)>> {
    // `help` would get pages, too: one more for every command.
    let mut command = command.disable_help_subcommand(true);
    // Needed for the usage lines of subcommands.
    command.build();
    let mut pages = Vec::new();
    add(&command, examples, &mut pages)?;
    Ok(pages)
}

fn add(
    command: &Command,
    examples: &Examples,
    pages: &mut Vec<(String, String)>,
) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        add(inner, examples, pages)?;
    }
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    let name = man.get_filename();
    let page = String::from_utf8_lossy(&page);
    let text = with_usage(&page, &mut command.clone()) + &sections(&name, examples);
    pages.push((name, text));
    Ok(())
}

/// The page with the usage line of `--help` as its synopsis: clap_mangen's synopsis lists every
/// option and omits values and `--`.
fn with_usage(page: &str, command: &mut Command) -> String {
    let Some((before, rest)) = page.split_once(".SH SYNOPSIS\n") else { return page.to_owned() };
    let after = rest.find("\n.SH ").map_or("", |at| &rest[at + 1..]);
    let usage = command.render_usage().to_string();
    let lines = usage.trim_start_matches("Usage:").lines().map(str::trim);
    let lines: Vec<String> = lines.filter(|line| !line.is_empty()).map(escaped).collect();
    format!("{before}.SH SYNOPSIS\n{}\n{after}", lines.join("\n.br\n"))
}

/// Sections beside those generated from arguments.
fn sections(page: &str, examples: &Examples) -> String {
    let examples = examples.iter().filter(|(name, ..)| page.strip_suffix(".1") == Some(name));
    let examples: Vec<_> = examples.map(|(_, purpose, line)| (*purpose, *line)).collect();
    let mut text = String::new();
    for (heading, list) in
        [("EXAMPLES", &examples[..]), ("FILES", &FILES), ("EXIT STATUS", &STATUS)]
    {
        if list.is_empty() {
            continue;
        }
        let _ = writeln!(text, ".SH \"{heading}\"");
        for (first, second) in list {
            let _ = writeln!(text, ".TP\n{}\n{}", escaped(first), escaped(second));
        }
    }
    text
}

/// Text escaped for roff(7). No line may begin with a control character.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('-', "\\-")
}
