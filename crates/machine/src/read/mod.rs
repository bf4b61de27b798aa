//! Readers of machines: the live machine, files and strings of hwloc, and descriptions.
//!
//! [`open`] resolves the argument of `--machine`; [`live()`] reads this machine; [`kept`] finds its
//! stored measurements; [`Usable`] has the limits of this process.
//!
//! ```
//! use colocate_machine::read;
//! let machine = read::open("synthetic:pack:2 core:4 pu:2")?;
//! assert_eq!((machine.packages.len(), machine.cores.len(), machine.pus.len()), (2, 8, 16));
//! // This machine, with the PUs that this process may use.
//! let here = read::load("live")?;
//! let usable = here.usable.expect("a live machine has limits");
//! assert!(!usable.pus.is_empty() && usable.pus.len() <= here.machine.pus.len());
//! # Ok::<(), read::ReadError>(())
//! ```

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
pub use error::ReadError;
pub use limits::{Cpusets, quotas, usable};
pub use live::Caveat;
pub use source::{KnownMachine, load, open, sources, xml_file};
pub use sysfs::Sysfs;
pub use xml::{Saved, from_xml_str};

use crate::exact::Exact;
use crate::machine::Machine;
use live::Reading;
use std::path::Path;

/// Reads this machine, including PUs that this process may not use. Groups of PUs measured by
/// `colocate calibrate` replace reported cores, caches and packages. Stored measurements that
/// cannot be read are ignored.
///
/// # Errors
/// As [`reported`].
pub fn live() -> Result<Machine, ReadError> {
    Ok(measured()?.0.machine)
}

/// Reads this machine with all measurements of `colocate calibrate`, and the reasons for incomplete
/// knowledge.
///
/// # Errors
/// As [`reported`].
pub fn measured() -> Result<(Exact, Vec<Caveat>), ReadError> {
    let Reading { machine, caveats } = reading()?;
    // Measured facts are an addition: without them the reported machine stands.
    let exact = kept::applied(machine.clone()).unwrap_or_else(|_| Exact::new(machine, None));
    Ok((exact, caveats))
}

/// Reads this machine as reported by hwloc and sysfs, including PUs that this process may not use.
///
/// hwloc runs in a child process; if hwloc fails, the machine is read without it.
///
/// # Errors
/// - [`ReadError::Elsewhere`] if hwloc's environment variables point to another machine.
/// - [`ReadError::Wrong`] if no PU is found.
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

/// Builds the machine of one of hwloc's synthetic strings, such as `pack:2 core:8 pu:2`.
///
/// # Errors
/// [`ReadError::Synthetic`] if the string has a syntax error or describes more than any real machine
/// has, or hwloc aborts on it.
pub fn synthetic(text: &str) -> Result<Machine, ReadError> {
    let machine = hwloc::synthetic(text)?.assemble();
    machine.map_err(|reason| ReadError::wrong("synthetic machine", reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::MachineParts;
    use hwlocality::Topology;
    use hwlocality::topology::export::xml::XMLExportFlags;

    /// hwloc's own reading of XML, which we trust only with files of ours.
    fn by_hwloc(text: &str) -> MachineParts {
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

    fn compare(xml: &str, theirs: MachineParts, name: &str) {
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
