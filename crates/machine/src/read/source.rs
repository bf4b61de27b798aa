//! Machines by the argument of `--machine`.

use crate::calibrated::Calibration;
use crate::described;
use crate::exact::Exact;
use crate::machine::Machine;
use crate::performance::Performance;
use crate::read::error::ReadError;
use crate::read::kept;
use crate::read::limits;
use crate::read::live::{Caveat, Reading};
use crate::read::sysfs::Sysfs;
use crate::read::xml::{self, Saved};
use crate::usable::Usable;
use colocate_files::{Accept, MaxSize};
use std::path::Path;

/// A machine with everything known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownMachine {
    /// The machine.
    pub machine: Machine,
    /// Usable PUs and limits; `None` for a machine without processes, such as a described one.
    pub usable: Option<Usable>,
    /// Speeds of the parts; `None` if neither described nor measured.
    pub performance: Option<Performance>,
    /// Measurements of `colocate calibrate`; `None` without a calibration.
    pub calibration: Option<Calibration>,
    /// Reasons for incomplete knowledge.
    pub caveats: Vec<Caveat>,
}

/// Reads the machine named by `spec`:
///
/// | spec | machine |
/// |---|---|
/// | `live` | this machine, with the measurements of `colocate calibrate` |
/// | `epyc-7301`, … | described, comes with colocate ([`described::MACHINES`]) |
/// | `synthetic:pack:2 core:8 pu:2` | hwloc's synthetic string |
/// | a path to `.xml` | saved by hwloc |
/// | a path to `.toml` | described by the user, or written by colocate |
/// | a path to `.json` | written by `colocate topo --json` |
///
/// # Errors
/// [`ReadError`], a message of one line that begins with the path or the text.
pub fn open(spec: &str) -> Result<Machine, ReadError> {
    load(spec).map(|seen| seen.machine)
}

/// As [`open`], with limits: of this process for the live machine, of the saving process for a
/// machine saved by hwloc.
///
/// # Errors
/// As [`open`].
pub fn load(spec: &str) -> Result<KnownMachine, ReadError> {
    if spec == "live" {
        let Reading { machine, caveats } = crate::read::reading()?;
        let kept = kept::applied(machine)?;
        let usable = Some(limits::usable(&kept.machine, &Sysfs::at(Path::new("/"))));
        return Ok(KnownMachine { caveats, ..seen(Exact { usable, ..kept }) });
    }
    if let Some(text) = spec.strip_prefix("synthetic:") {
        let machine = crate::read::synthetic(text)?;
        return Ok(seen(Exact::new(machine, None)));
    }
    let path = Path::new(spec);
    let extension = path.extension().and_then(|extension| extension.to_str());
    let exact = match (by_name(spec), extension) {
        (Some(text), _) => described::from_toml(text),
        (None, Some("xml")) => return xml_file(path),
        (None, Some("toml")) => described::from_toml(&text(path)?),
        (None, Some("json")) => Exact::from_json(&text(path)?),
        _ => return Err(ReadError::Unknown { found: spec.into(), known: known() }),
    };
    exact.map(seen).map_err(|flaw| ReadError::wrong(spec, flaw))
}

/// Sources of the figures of a described machine: key and source. Empty for machines without
/// sources: live, saved by hwloc, synthetic, or in the exact form.
///
/// # Errors
/// As [`open`].
pub fn sources(spec: &str) -> Result<Vec<(String, String)>, ReadError> {
    let path = Path::new(spec);
    let text = match by_name(spec) {
        Some(text) => text.into(),
        None if path.extension().is_some_and(|extension| extension == "toml") => text(path)?,
        None => return Ok(Vec::new()),
    };
    described::sources(&text).map_err(|flaw| ReadError::wrong(spec, flaw))
}

/// Description of a machine that comes with colocate.
fn by_name(name: &str) -> Option<&'static str> {
    described::MACHINES.iter().find(|(found, _)| *found == name).map(|(_, text)| *text)
}

fn seen(exact: Exact) -> KnownMachine {
    let Exact { version: _, machine, usable, performance, calibration } = exact;
    KnownMachine { machine, usable, performance, calibration, caveats: Vec::new() }
}

/// Names of the described machines that come with colocate.
fn known() -> String {
    described::MACHINES.map(|(name, _)| name).join(", ")
}

/// Reads a machine saved by hwloc, with any file extension. The machine is named after the file.
///
/// # Errors
/// [`ReadError::Wrong`].
pub fn xml_file(path: &Path) -> Result<KnownMachine, ReadError> {
    let text = text(path)?;
    let Saved { mut machine, allowed } = xml::from_xml_str(&text)
        .map_err(|flaw| ReadError::wrong(path.display().to_string(), flaw))?;
    if let Some(stem) = path.file_stem() {
        machine.name = stem.to_string_lossy().into_owned();
    }
    let usable = allowed.map(|allowed| Usable::within(&machine, None, Some(allowed), None));
    Ok(seen(Exact::new(machine, usable)))
}

/// Text of a file that describes a machine.
fn text(path: &Path) -> Result<String, ReadError> {
    const LIMIT: MaxSize = MaxSize::bytes(xml::MAX_BYTES);
    let text = colocate_files::read_text(path, Accept::FileOrPipe, LIMIT);
    text.map_err(|why| ReadError::file(path, &why))
}
