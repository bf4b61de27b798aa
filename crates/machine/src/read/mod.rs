//! Reading machines from outside: the live one, hwloc's files and strings, described ones.
//!
//! [`open`] takes what a user writes after `--machine`; [`live()`] is this machine; [`kept`] is what was measured of it;
//! [`Usable`] is what this process may use of it.

mod child;
mod error;
mod hwloc;
pub mod kept;
mod kinds;
mod limits;
mod live;
mod source;
mod sysfs;
#[cfg(test)]
mod testing;
mod tree;
mod xml;

pub use crate::usable::{CpuQuota, Usable};
pub use child::Unanswered;
pub use error::ReadError;
pub use limits::{Cpusets, quotas, usable};
pub use live::Caveat;
pub use source::{Seen, load, open, performance, sources, xml_file};
pub use sysfs::Sysfs;
pub use xml::{Saved, XmlError, from_xml_str};

use crate::exact::Exact;
use crate::machine::Machine;
use live::Reading;
use std::path::Path;

/// This machine, with PUs that this process may not use. Where `colocate calibrate` found that PUs share other cores, caches
/// or packages than are reported, it has those; what is kept and cannot be read changes nothing.
///
/// # Errors
/// As [`reported`].
pub fn live() -> Result<Machine, ReadError> {
    Ok(measured()?.0.machine)
}

/// The same, with all that `colocate calibrate` has measured of it, and why less is known of it than could be.
///
/// # Errors
/// As [`reported`].
pub fn measured() -> Result<(Exact, Vec<Caveat>), ReadError> {
    let Reading { machine, caveats } = reading()?;
    let exact = kept::applied(machine.clone()).unwrap_or_else(|_| Exact::new(machine, None));
    Ok((exact, caveats))
}

/// This machine, as hwloc and sysfs describe it, with PUs that this process may not use.
///
/// hwloc runs in a child process: whatever it fails on, the machine is read without it then.
///
/// # Errors
/// - [`ReadError::Elsewhere`] if hwloc's environment variables point to another machine.
/// - [`ReadError::Flaw`] if not even a PU is found.
pub fn reported() -> Result<Machine, ReadError> {
    reading().map(|reading| reading.machine)
}

fn reading() -> Result<Reading, ReadError> {
    let mut reading = live::read(&Sysfs::at(Path::new("/")), hwloc::live)?;
    if reading.machine.name.is_empty() {
        reading.machine.name = "this machine".into();
    }
    Ok(reading)
}

/// The machine that hwloc's synthetic string describes, e.g. `pack:2 core:8 pu:2`.
///
/// # Errors
/// - [`ReadError::Synthetic`] if hwloc does not understand the string.
/// - [`ReadError::SyntheticSize`] if it describes more than any real machine has.
/// - [`ReadError::SyntheticUnanswered`] if hwloc aborts on it.
pub fn synthetic(text: &str) -> Result<Machine, ReadError> {
    let origin = || "synthetic machine".into();
    let machine = hwloc::synthetic(text)?.assemble();
    machine.map_err(|reason| ReadError::Flaw { origin: origin(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Parts;
    use hwlocality::Topology;
    use hwlocality::topology::export::xml::XMLExportFlags;

    /// hwloc's own reading of XML, which we trust only with files of ours.
    fn by_hwloc(text: &str) -> Parts {
        let read =
            || hwloc::parts(&hwloc::load(Topology::builder().from_xml(text).unwrap()).unwrap());
        child::answer(read).unwrap()
    }

    #[test]
    fn xml_reads_as_hwloc_reads_it() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        let files = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path());
        let xml = files.filter(|path| path.extension().is_some_and(|ending| ending == "xml"));
        // hwloc 2 refuses a machine without NUMA nodes and files of version 3.
        let refused = ["no-numa.xml", "v3-cgroup.xml"];
        let sound: Vec<_> =
            xml.filter(|path| !refused.iter().any(|name| path.ends_with(name))).collect();
        assert!(sound.len() >= 25, "{}", sound.len());
        for path in sound {
            let text = std::fs::read_to_string(&path).unwrap();
            compare(&text, by_hwloc(&text), &path.display().to_string());
        }
    }

    fn compare(xml: &str, theirs: Parts, name: &str) {
        let ours = from_xml_str(xml).map(|saved| saved.machine);
        assert_eq!(ours.unwrap(), theirs.assemble().unwrap(), "{name}");
    }

    /// 1,024 PUs, which hwloc expands and saves.
    #[test]
    fn large_xml_reads_as_hwloc_reads_it() {
        let text = include_str!("../../tests/corpus/pu-1024.synthetic").trim();
        let expand = || {
            let builder = Topology::builder().from_synthetic(text).unwrap();
            let topology = hwloc::load(builder).unwrap();
            let xml = topology.export_xml(XMLExportFlags::empty()).unwrap();
            let xml: &str = xml.as_ref();
            (xml.to_owned(), hwloc::parts(&topology))
        };
        let (xml, parts) = child::answer(expand).unwrap();
        assert_eq!(parts.pus.len(), 1024);
        compare(&xml, by_hwloc(&xml), "pu-1024");
        compare(&xml, parts, "pu-1024");
    }
}
