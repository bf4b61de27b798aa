//! `generate`: installed files that are generated from the definition of the arguments.

mod completions;
mod pages;

use crate::{output, policies};
use clap::CommandFactory;
use colocate_files::{Dir, FileMode};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use pages::Examples;

/// Writes the manual pages and the shells' completions, for packagers
#[derive(clap::Args)]
pub struct Args {
    /// Folder to write to, as PREFIX/share has it: man/man1, bash-completion, zsh, fish; made if missing
    #[arg(value_name = "FOLDER", required_unless_present = "policies")]
    folder: Option<PathBuf>,

    /// Print the table of policies that docs/reference/policies.md has
    #[arg(long, conflicts_with = "folder")]
    policies: bool,
}

/// Runs `generate` for the program with the command line `C`; `examples` are by page.
pub fn main<C: CommandFactory>(args: &Args, examples: &Examples) -> anyhow::Result<ExitCode> {
    let Some(to) = &args.folder else {
        output::write(None, &policies::markdown())?;
        return Ok(ExitCode::SUCCESS);
    };
    let pages = pages::all(C::command(), examples)?;
    let pages = pages.into_iter().map(|(name, text)| (format!("man/man1/{name}"), text));
    for (path, text) in pages.chain(completions::all(C::command)) {
        write(to, &path, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the file at `path` in `folder`, which is created if missing.
fn write(folder: &Path, path: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(path);
    let folder = path.parent().unwrap_or(folder);
    let name = path.file_name().unwrap_or_default();
    Dir::open_or_make(folder, 0o777)?.write(name, text.as_bytes(), FileMode::ByUmask)?;
    Ok(())
}
