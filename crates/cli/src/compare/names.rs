//! Names of files and of words in commands.

use std::path::PathBuf;

/// Files of a run.
pub struct RunFiles {
    /// Output of the programs and of colocate.
    pub log: PathBuf,
    /// The report of `colocate run`.
    pub report: PathBuf,
}

/// `text` as a word of a shell's command.
pub fn word(text: &str) -> String {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c));
    if is_plain && !text.is_empty() {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// `name` as the name of a file: at most 80 characters, others than `/` and white space.
pub fn file_name(name: &str) -> String {
    name.chars().map(|c| if c == '/' || c.is_whitespace() { '-' } else { c }).take(80).collect()
}
