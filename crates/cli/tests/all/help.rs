//! Every character of the help. `UPDATE_EXPECT=1` accepts what changed; read the difference.

use expect_test::expect_file;
use std::process::Command;

/// Every subcommand; `every_command_is_here` holds the list to what the binary says.
const COMMANDS: [&[&str]; 29] = [
    &[],
    &["topo"],
    &["profile"],
    &["trace"],
    &["doctor"],
    &["plan"],
    &["run"],
    &["attach"],
    &["schedule"],
    &["top"],
    &["restore"],
    &["pages"],
    &["move"],
    &["bench"],
    &["bench", "smt"],
    &["bench", "bandwidth"],
    &["bench", "cores"],
    &["calibrate"],
    &["compare"],
    &["simulate"],
    &["replay"],
    &["map"],
    &["cc"],
    &["c++"],
    &["fc"],
    &["study"],
    &["train"],
    &["train", "cpi-model"],
    &["advise-threads"],
];

fn help(command: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_colocate"))
        .args(command)
        .arg("--help")
        // The width of whoever runs the tests.
        .env_remove("COLUMNS")
        .output()
        .unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_is_as_it_was_read() {
    for command in COMMANDS {
        let name = [&["colocate"], command].concat().join("-");
        expect_file![format!("../help/{name}.txt")].assert_eq(&help(command));
    }
}

/// The commands that a help text lists.
fn listed(text: &str) -> Vec<String> {
    let list = text.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next().map(str::to_owned));
    names.filter(|name| name != "help").collect()
}

#[test]
fn every_command_is_here() {
    let mut found: Vec<Vec<String>> = vec![vec![]];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].clone();
        let words: Vec<&str> = parent.iter().map(String::as_str).collect();
        found.extend(listed(&help(&words)).into_iter().map(|name| [&parent[..], &[name]].concat()));
        next += 1;
    }
    let mut expected: Vec<Vec<String>> =
        COMMANDS.iter().map(|words| words.iter().map(|&word| word.to_owned()).collect()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

/// Units and ranges belong into the help of whatever takes a number.
#[test]
fn every_option_has_a_text() {
    for command in COMMANDS {
        let text = help(command);
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[0].trim_start().starts_with("--")) {
            let described = pair[0].trim().contains("  ") || !pair[1].trim().is_empty();
            assert!(described, "{command:?}: {}", pair[0]);
        }
    }
}
