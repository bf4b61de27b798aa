//! Help texts of a program with subcommands.

use std::path::Path;
use std::process::Command;

/// The help of each command of a program below and with itself: its words and the text.
///
/// Commands are those that help lists below one of `headings`.
///
/// # Panics
/// If a command has no help.
#[must_use]
pub fn all(program: &str, headings: &[&str]) -> Vec<(Vec<String>, String)> {
    let mut found: Vec<(Vec<String>, String)> = Vec::new();
    let mut next = vec![Vec::new()];
    while let Some(words) = next.pop() {
        let text = help(program, &words);
        let below = listed(&text, headings).map(|name| [&words[..], &[name.to_owned()]].concat());
        next.extend(below);
        found.push((words, text));
    }
    found.sort();
    found
}

/// The page of the book with the help of each command of a program: a heading and a block for each of `texts`.
#[must_use]
pub fn page(program: &str, texts: &[(Vec<String>, String)]) -> String {
    let mut page = format!(
        "# Commands of `{program}`\n\n\
         A test writes this page from the arguments' definition (`help_is_as_it_was_read`, `UPDATE_EXPECT=1`).\n"
    );
    for (words, text) in texts {
        let name = [&[program.to_owned()], &words[..]].concat().join(" ");
        let text = text.trim_end();
        page += &format!("\n## {name}\n```text\n{text}\n```\n");
    }
    page
}

fn help(program: &str, words: &[String]) -> String {
    let mut command = Command::new(program);
    // The width is not that of whoever runs the tests.
    let output = command.args(words).arg("--help").env_remove("COLUMNS").output();
    let output = output.unwrap_or_else(|why| panic!("{program}: {why}"));
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The commands that a help text lists.
fn listed<'a>(text: &'a str, headings: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let sections = text.split("\n\n").filter(move |section| {
        section.lines().next().is_some_and(|heading| headings.contains(&heading))
    });
    let lines = sections.flat_map(|section| section.lines().skip(1));
    let names = lines.filter(|line| !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help")
}

/// The options that a help text gives without a description.
#[must_use]
pub fn undescribed(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let options = lines.windows(2).filter(|pair| pair[0].trim_start().starts_with("--"));
    let bare = options.filter(|pair| !pair[0].trim().contains("  ") && pair[1].trim().is_empty());
    bare.map(|pair| pair[0]).collect()
}

/// The names of the files in a folder, in order.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn files(folder: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
