//! `colocate generate`: what belongs to an installation and is made from the arguments' definition.

use crate::{output, policies};
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
    #[arg(value_name = "FOLDER", required_unless_present = "policies")]
    folder: Option<PathBuf>,

    /// Print the table of policies as docs/schedule.md has it, and the list as README.md has it
    #[arg(long, conflicts_with = "folder")]
    policies: bool,
}

/// The shells with the folder that each looks for completions in, below `share`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions"),
    (Shell::Zsh, "zsh/site-functions"),
    (Shell::Fish, "fish/vendor_completions.d"),
];

/// Runs `colocate generate`.
pub fn main<C: CommandFactory>(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(to) = &args.folder else {
        output::write(None, &format!("{}\n{}", policies::markdown(), policies::list()))?;
        return Ok(ExitCode::SUCCESS);
    };
    let pages = made(to, "man/man1")?;
    clap_mangen::generate_to(C::command(), &pages).with_context(|| pages.display().to_string())?;
    for (shell, place) in SHELLS {
        let folder = made(to, place)?;
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
