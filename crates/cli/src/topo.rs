//! `colocate topo`.

use crate::output;
use colocate_machine::exact::Exact;
use colocate_machine::{picture, read};
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows the machine: packages, nodes, caches, cores, PUs, and what is usable
#[derive(clap::Args)]
pub struct Args {
    /// Machine to show: live, a described one by name, or a .toml, .json or .xml file
    #[arg(long, value_name = "SPEC", default_value = "live")]
    machine: String,

    /// Machine that hwloc saved (lstopo FILE.xml), whatever the file is called
    #[arg(long, value_name = "FILE", conflicts_with_all = ["machine", "synthetic"])]
    xml: Option<PathBuf>,

    /// Machine as hwloc's synthetic string, e.g. "pack:2 core:8 pu:2"
    #[arg(long, value_name = "STRING", conflicts_with = "machine")]
    synthetic: Option<String>,

    /// Print JSON that --machine reads back (docs/schemas/machine.json)
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `colocate topo`.
///
/// # Errors
/// If the machine cannot be read or the output cannot be written.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let seen = seen(args)?;
    let text = if args.json {
        Exact::new(seen.machine, seen.usable).to_json()
    } else {
        picture(&seen.machine, seen.usable.as_ref())
    };
    output::write(args.output.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

fn seen(args: &Args) -> Result<read::Seen, read::ReadError> {
    match (&args.xml, &args.synthetic) {
        (Some(path), _) => read::xml_file(path),
        (None, Some(text)) => read::look(&format!("synthetic:{text}")),
        (None, None) => read::look(&args.machine),
    }
}
