//! `colocate generate`: what belongs to an installation and is made from the arguments' definition.

use anyhow::Context as _;
use clap::CommandFactory;
use clap_complete::Shell;
use colocate_files::Dir;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes the manual pages and the shells' completions, for packagers
#[derive(clap::Args)]
pub struct Args {
    /// Folder to write to, as PREFIX/share has it: man/man1, bash-completion, zsh, fish; made if missing
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// The shells with the folder that each looks for completions in, below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Runs `colocate generate`.
///
/// # Errors
/// If a file cannot be written.
pub fn main<C: CommandFactory>(args: &Args) -> anyhow::Result<ExitCode> {
    let pages = made(&args.folder, "man/man1")?;
    clap_mangen::generate_to(C::command(), &pages).with_context(|| pages.display().to_string())?;
    for (shell, place) in SHELLS {
        let folder = made(&args.folder, place)?;
        clap_complete::generate_to(shell, &mut C::command(), "colocate", &folder)
            .with_context(|| folder.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn made(folder: &Path, below: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join(below);
    Dir::open_or_make(&path, 0o777)?;
    Ok(path)
}
