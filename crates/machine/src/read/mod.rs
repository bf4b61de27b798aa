//! Reading machines from outside: the live one, hwloc's files and strings, described ones.
//!
//! [`open`] takes what a user writes after `--machine`; [`live`] is this machine; [`kept`] is what was measured of it;
//! [`Usable`] is what this process may use of it.

mod error;
mod hwloc;
pub mod kept;
mod kinds;
mod limits;
mod source;
mod sysfs;
mod xml;

pub use crate::usable::{CpuQuota, Usable};
pub use error::ReadError;
pub use limits::{usable, with_quota};
pub use source::{Seen, load, open, performance, sources, xml_file};
pub use sysfs::Sysfs;
pub use xml::{Saved, XmlError, from_xml_str};

use crate::exact::Exact;
use crate::machine::Machine;
use crate::parts::Parts;
use std::path::Path;

/// This machine, with PUs that this process may not use. Where `colocate calibrate` found that PUs share other cores, caches
/// or packages than are reported, it has those; what is kept and cannot be read changes nothing.
///
/// # Errors
/// As [`reported`].
pub fn live() -> Result<Machine, ReadError> {
    Ok(measured()?.machine)
}

/// The same, with all that `colocate calibrate` has measured of it.
///
/// # Errors
/// As [`reported`].
pub fn measured() -> Result<Exact, ReadError> {
    let machine = reported()?;
    Ok(kept::applied(machine.clone()).unwrap_or_else(|_| Exact::new(machine, None)))
}

/// This machine, as hwloc and sysfs describe it, with PUs that this process may not use.
///
/// # Errors
/// - [`ReadError::Hwloc`] if hwloc cannot read it.
/// - [`ReadError::Elsewhere`] if hwloc's environment variables point to another machine.
/// - [`ReadError::Flaw`] if what the firmware says makes no sense.
pub fn reported() -> Result<Machine, ReadError> {
    let mut parts = hwloc::live()?;
    Sysfs::at(Path::new("/")).complete(&mut parts);
    if parts.name.is_empty() {
        parts.name = "this machine".into();
    }
    assembled(parts, "this machine")
}

/// The machine that hwloc's synthetic string describes, e.g. `pack:2 core:8 pu:2`.
///
/// # Errors
/// - [`ReadError::Synthetic`] if hwloc does not understand the string.
/// - [`ReadError::SyntheticSize`] if it describes more than any real machine has.
pub fn synthetic(text: &str) -> Result<Machine, ReadError> {
    assembled(hwloc::synthetic(text)?, "synthetic machine")
}

fn assembled(parts: Parts, origin: &str) -> Result<Machine, ReadError> {
    parts.assemble().map_err(|reason| ReadError::Flaw { origin: origin.into(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hwlocality::Topology;
    use hwlocality::topology::export::xml::XMLExportFlags;

    /// hwloc's own reading of XML, which we trust only with files of ours.
    fn by_hwloc(text: &str) -> Parts {
        hwloc::parts(&hwloc::load(Topology::builder().from_xml(text).unwrap()).unwrap())
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
        let builder = Topology::builder().from_synthetic(text).unwrap();
        let topology = hwloc::load(builder).unwrap();
        let xml = topology.export_xml(XMLExportFlags::empty()).unwrap();
        let xml: &str = xml.as_ref();
        assert_eq!(hwloc::parts(&topology).pus.len(), 1024);
        compare(xml, by_hwloc(xml), "pu-1024");
        compare(xml, hwloc::parts(&topology), "pu-1024");
    }
}
