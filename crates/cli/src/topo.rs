//! `colocate topo`.

use crate::{calibrate, output};
use colocate_machine::exact::Exact;
use colocate_machine::read::KnownMachine;
use colocate_machine::{picture, printable, read, speeds};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows nodes, caches, cores, PUs, and which of them are usable
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

    /// Say below the picture where the figures of a described machine come from
    #[arg(long, conflicts_with_all = ["xml", "synthetic", "json"])]
    sources: bool,

    /// Print JSON that --machine reads back (docs/schemas/machine.json)
    #[arg(long)]
    json: bool,

    /// File to write instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `colocate topo`.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let seen = seen(args)?;
    seen.caveats.iter().for_each(|caveat| output::remark(&caveat.to_string()));
    let is_measured = seen.calibration.is_some();
    let mut text = if args.json {
        let exact = Exact::new(seen.machine, seen.usable);
        let KnownMachine { performance, calibration, .. } = seen;
        Exact { performance, calibration, ..exact }.to_json()
    } else {
        let picture = picture(&seen.machine, seen.usable.as_ref());
        let speeds = seen.performance.map(|found| format!("\n{}", speeds(&seen.machine, &found)));
        let measured =
            seen.calibration.map(|found| format!("\n{}", calibrate::text(&found, args.sources)));
        picture + &speeds.unwrap_or_default() + &measured.unwrap_or_default()
    };
    if args.sources && !is_measured {
        text.push_str(&sources(&args.machine)?);
    }
    output::write(args.output.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

/// The machine that the arguments name.
fn seen(args: &Args) -> Result<KnownMachine, read::ReadError> {
    match (&args.xml, &args.synthetic) {
        (Some(path), _) => read::xml_file(path),
        (None, Some(text)) => read::load(&format!("synthetic:{text}")),
        (None, None) => read::load(&args.machine),
    }
}

/// Lines of the form `FIGURE: SOURCE` for the figures of a described machine.
fn sources(spec: &str) -> Result<String, read::ReadError> {
    let found = read::sources(spec)?;
    if found.is_empty() {
        return Ok(format!("\nsources: {}\n", unwritten(spec)));
    }
    let mut text = String::from("\nsources\n");
    for (key, source) in &found {
        text.push_str(&format!("  {}: {}\n", printable(key), printable(source)));
    }
    Ok(text)
}

/// Origin of the figures of a machine whose description lists no sources.
fn unwritten(spec: &str) -> &'static str {
    let is_xml = Path::new(spec).extension().is_some_and(|ending| ending == "xml");
    if spec.starts_with("synthetic:") {
        "the synthetic string alone"
    } else if spec == "live" || is_xml {
        "the firmware and the kernel, as hwloc reads them"
    } else {
        "not in this file"
    }
}
