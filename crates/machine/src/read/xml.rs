//! Parser of machines saved by hwloc as XML (`lstopo machine.xml`), formats 2.x and 3.x.
//!
//! # Why not by hwloc
//! A saved machine comes from another user. hwloc 2.9 trusts the file: of 4,000 files with one to
//! three damaged lines, 21 crashed hwloc (`crates/machine/tests/corpus/README.md` has the recipe).
//! So the file is parsed here, in Rust, and `tests/corpus.rs` checks that both readers agree on
//! every sound file.
//!
//! Objects are read in the order of the file, hwloc's logical order. A core, a cache or a package
//! contains the PUs nested in it. A NUMA node has the PUs of its parent, as when hwloc loads the
//! file.

use crate::check::{MAX_NODES, MAX_PUS, at_most};
use crate::cpulist::{MAX_PU_NR, PuSet, shortened};
use crate::flaw::Flaw;
use crate::ids::{NodeNr, PuNr};
use crate::machine::{CacheKind, Machine};
use crate::parts::{CachePart, DistancePart, MachineParts, NodePart};
use crate::read::kinds::{self, KindFacts};
use crate::units::Bytes;
use roxmltree::{Document, Node, ParsingOptions};
use std::borrow::Cow;

/// Largest text accepted, in bytes. A machine of 1,024 PUs takes half a MiB.
pub const MAX_BYTES: u64 = 32 << 20;

/// Deepest nesting of objects. hwloc's own trees have about ten levels.
const MAX_DEPTH: u32 = 64;

/// Most XML nodes. A machine of 8,192 PUs has some 300,000.
const MAX_XML_NODES: u32 = 4_000_000;

/// Most kinds of cores read; real machines have three.
const MAX_KINDS: usize = 64;
/// Most facts read about a kind; real machines have five.
const MAX_INFOS: usize = 64;

/// Memory objects: siblings of the PUs they belong to, not parents.
const MEMORY: [&str; 2] = ["NUMANode", "MemCache"];

/// `HWLOC_DISTANCES_KIND_MEANS_LATENCY` of hwloc's distances.h.
const MEANS_LATENCY: u64 = 4;

/// A machine from a file, with the limits of the process that saved it.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The machine. Its name is the host's, or empty.
    pub machine: Machine,
    /// PUs allowed for the process that saved the machine; `None` if not in the file, or if all PUs
    /// are allowed.
    pub allowed: Option<PuSet>,
}

/// Parses a machine saved by hwloc.
///
/// Never panics, and takes time and memory in proportion to the text, for any text.
///
/// # Errors
/// [`Flaw`] with the line and the expected value.
pub fn from_xml_str(text: &str) -> Result<Saved, Flaw> {
    if text.len() as u64 > MAX_BYTES {
        let found = text.len();
        return Err(Flaw(format!(
            "expected hwloc XML of at most {MAX_BYTES} bytes, found {found}"
        )));
    }
    // A document type can define entities in terms of others: some KiB of text expand to gigabytes.
    let options =
        ParsingOptions { allow_dtd: false, nodes_limit: MAX_XML_NODES, ..Default::default() };
    let text = without_doctype(text);
    let document = Document::parse_with_options(&text, options).map_err(|error| {
        let text = error.to_string();
        let detail: String = text.chars().filter(|it| !it.is_control()).take(120).collect();
        Flaw(format!("expected hwloc XML, found a syntax error: {detail}"))
    })?;
    let topology = document.root_element();
    check_header(topology)?;
    let mut reader = XmlReader { document: &document, parts: MachineParts::default() };
    let root = children(topology, "object").next();
    let root = root.ok_or_else(|| reader.wrong(topology, "an object", "none".into()))?;
    reader.object(root, 0, 0)?;
    let complete = reader.set(root, "complete_cpuset")?;
    let allowed = reader.set(root, "allowed_cpuset")?;
    let online: PuSet = reader.parts.pus.iter().copied().collect();
    // Without the attribute no offline PU is known.
    reader.parts.offline = complete.unwrap_or_default().difference(&online);
    reader.parts.kinds = reader.kinds(topology)?;
    reader.parts.distances = reader.distances(topology)?;
    let name = info(topology, "HostName").or_else(|| info(root, "HostName"));
    reader.parts.name = name.unwrap_or_default();
    // The package has the model, or the machine if there is no package.
    reader.parts.processor = reader.parts.processor.take().or_else(|| info(root, "CPUModel"));
    let machine = reader.parts.assemble()?;
    Ok(Saved { machine, allowed: allowed.filter(|allowed| !online.is_subset(allowed)) })
}

/// Replaces the line that hwloc writes, `<!DOCTYPE topology SYSTEM "hwloc2.dtd">`, by blanks, so
/// that line numbers stay. A document type with definitions in brackets stays, and is rejected by
/// the parser.
fn without_doctype(text: &str) -> Cow<'_, str> {
    let declared = text.find("<!DOCTYPE").and_then(|at| {
        let length = text[at..].find('>')? + 1;
        let is_plain = !text[at..at + length].contains('[') && !text[..at].contains("<topology");
        is_plain.then_some((at, length))
    });
    let Some((at, length)) = declared else { return text.into() };
    let declaration = text[at..at + length].chars();
    let blanks: String = declaration.map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
    [&text[..at], &blanks, &text[at + length..]].concat().into()
}

fn check_header(topology: Node<'_, '_>) -> Result<(), Flaw> {
    let found = topology.tag_name().name();
    if found != "topology" {
        let found = shortened(found);
        return Err(Flaw(format!("expected hwloc XML with a <topology>, found <{found}>")));
    }
    let version = topology.attribute("version");
    let major = version.and_then(|version| version.split('.').next());
    if matches!(major, Some("2" | "3")) {
        return Ok(());
    }
    // hwloc 1 wrote no version.
    let found = version
        .map_or("no version (hwloc 1)".into(), |found| format!("version \"{}\"", shortened(found)));
    Err(Flaw(format!(
        "expected hwloc XML of version 2 or 3, found {found}; convert it with a recent lstopo: lstopo --if xml -i OLD.xml NEW.xml"
    )))
}

fn children<'a, 'i: 'a>(
    node: Node<'a, 'i>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |child| child.has_tag_name(name))
}

/// Value of an `<info>` of a node; `None` if absent or blank.
fn info(node: Node<'_, '_>, key: &str) -> Option<String> {
    let found = children(node, "info").find(|info| info.attribute("name") == Some(key))?;
    let text = found.attribute("value")?.trim();
    (!text.is_empty()).then(|| text.into())
}

/// True for memory objects.
fn is_memory(object: &Node<'_, '_>) -> bool {
    object.attribute("type").is_some_and(|ty| MEMORY.contains(&ty))
}

/// State of the parser.
struct XmlReader<'a, 'i> {
    document: &'a Document<'i>,
    parts: MachineParts,
}

impl XmlReader<'_, '_> {
    fn line(&self, node: Node<'_, '_>) -> u32 {
        self.document.text_pos_at(node.range().start).row
    }

    fn wrong(&self, node: Node<'_, '_>, expected: &str, found: String) -> Flaw {
        Flaw(format!("line {}: expected {expected}, found {found}", self.line(node)))
    }

    /// A required number.
    fn number(&self, node: Node<'_, '_>, name: &str, expected: &str) -> Result<u64, Flaw> {
        let text = node.attribute(name);
        text.and_then(|text| text.parse().ok()).ok_or_else(|| {
            let found = text.map_or("nothing".into(), |text| format!("\"{}\"", shortened(text)));
            self.wrong(node, expected, format!("{found} in {name}"))
        })
    }

    /// Kernel number of a PU or a node.
    fn os_index(&self, node: Node<'_, '_>) -> Result<u32, Flaw> {
        const EXPECTED: &str = "a kernel number of at most 65535";
        let number = self.number(node, "os_index", EXPECTED)?;
        let fits = u32::try_from(number).ok().filter(|&number| number <= MAX_PU_NR);
        fits.ok_or_else(|| self.wrong(node, EXPECTED, format!("{number} in os_index")))
    }

    /// A set of PUs; `None` if the attribute is absent. hwloc leaves groups of 32 zero bits empty.
    fn set(&self, node: Node<'_, '_>, name: &str) -> Result<Option<PuSet>, Flaw> {
        let Some(text) = node.attribute(name) else { return Ok(None) };
        let full: Vec<&str> =
            text.split(',').map(|group| if group.is_empty() { "0" } else { group }).collect();
        let set = PuSet::parse_mask(&full.join(","));
        set.map(Some).map_err(|_| {
            self.wrong(
                node,
                "a set like \"0x000000ff\"",
                format!("\"{}\" in {name}", shortened(text)),
            )
        })
    }

    /// Adds an object and the objects nested in it. For a memory object, `near` is the index of the
    /// first PU of its parent.
    fn object(&mut self, node: Node<'_, '_>, near: usize, depth: u32) -> Result<(), Flaw> {
        // The recursion must not exhaust the stack.
        if depth > MAX_DEPTH {
            let line = self.line(node);
            return Err(Flaw(format!("line {line}: expected objects at most {MAX_DEPTH} deep")));
        }
        let ty = node.attribute("type").unwrap_or_default();
        let begin = if MEMORY.contains(&ty) { near } else { self.parts.pus.len() };
        if ty == "PU" {
            let number = self.os_index(node)?;
            self.parts.pus.push(PuNr(number));
            at_most(self.parts.pus.len(), "CPUs", MAX_PUS)?;
        }
        // hwloc numbers nodes after their sibling objects, so a machine's own node comes last.
        for memory in [false, true] {
            for child in children(node, "object").filter(|child| is_memory(child) == memory) {
                self.object(child, begin, depth + 1)?;
            }
        }
        // Copied in the matching arms only: a hostile file may have very many other objects with
        // very many PUs.
        match ty {
            "Core" => self.parts.cores.push(self.parts.pus[begin..].to_vec()),
            "Package" => self.package(node, begin),
            "NUMANode" => self.node(node, begin)?,
            _ if ty.ends_with("Cache") && ty.starts_with('L') => self.cache(node, begin)?,
            _ => {}
        }
        Ok(())
    }

    fn package(&mut self, node: Node<'_, '_>, begin: usize) {
        self.parts.packages.push(self.parts.pus[begin..].to_vec());
        // The first package stands for all.
        if self.parts.processor.is_none() {
            self.parts.processor = info(node, "CPUModel");
        }
    }

    fn node(&mut self, node: Node<'_, '_>, begin: usize) -> Result<(), Flaw> {
        let os = NodeNr(self.os_index(node)?);
        // hwloc leaves out the attribute of a node without memory.
        let memory = if node.has_attribute("local_memory") {
            self.number(node, "local_memory", "a size in bytes")?
        } else {
            0
        };
        let memory = Some(Bytes(memory));
        let pus = self.parts.pus[begin..].iter().copied().collect();
        self.parts.nodes.push(NodePart { os, memory, pus, may_be_home: true });
        at_most(self.parts.nodes.len(), "NUMA nodes", MAX_NODES)
    }

    fn cache(&mut self, node: Node<'_, '_>, begin: usize) -> Result<(), Flaw> {
        let expected = "a cache level of 1 to 255";
        let level = self.number(node, "depth", expected)?;
        let level = u8::try_from(level)
            .ok()
            .filter(|&level| level > 0)
            .ok_or_else(|| self.wrong(node, expected, format!("{level} in depth")))?;
        let kind = match self.number(node, "cache_type", "a cache type of 0, 1 or 2")? {
            0 => CacheKind::Unified,
            1 => CacheKind::Data,
            2 => CacheKind::Instruction,
            other => {
                let found = format!("{other} in cache_type");
                return Err(self.wrong(node, "a cache type of 0, 1 or 2", found));
            }
        };
        let size = Bytes(self.number(node, "cache_size", "a size in bytes")?);
        let pus = self.parts.pus[begin..].to_vec();
        self.parts.caches.push(CachePart { level, kind, size, pus });
        Ok(())
    }

    fn kinds(&self, topology: Node<'_, '_>) -> Result<Vec<crate::parts::KindPart>, Flaw> {
        let facts = children(topology, "cpukind").take(MAX_KINDS).map(|kind| {
            let infos = children(kind, "info").take(MAX_INFOS).filter_map(|info| {
                Some((info.attribute("name")?.to_owned(), info.attribute("value")?.to_owned()))
            });
            let rank = kind.attribute("forced_efficiency").and_then(|rank| rank.parse().ok());
            let pus = self.set(kind, "cpuset")?.unwrap_or_default();
            Ok(KindFacts { pus, efficiency: rank, infos: infos.collect() })
        });
        Ok(kinds::ranked(facts.collect::<Result<_, Flaw>>()?))
    }

    /// The first matrix of latencies between NUMA nodes.
    fn distances(&self, topology: Node<'_, '_>) -> Result<Option<DistancePart>, Flaw> {
        let mut matrices = children(topology, "distances2");
        let matrix = matrices.find(|matrix| {
            let kind = matrix.attribute("kind").and_then(|kind| kind.parse::<u64>().ok());
            matrix.attribute("type") == Some("NUMANode")
                && matrix.attribute("indexing") == Some("os")
                && kind.is_some_and(|kind| kind & MEANS_LATENCY != 0)
        });
        let Some(matrix) = matrix else { return Ok(None) };
        let numbers = self.numbers(matrix, "indexes")?;
        let nodes = numbers.into_iter().map(|number| u32::try_from(number).ok().map(NodeNr));
        let nodes = nodes.collect::<Option<Vec<_>>>();
        let values = self.numbers(matrix, "u64values")?;
        Ok(nodes.map(|nodes| DistancePart { nodes, values }))
    }

    fn numbers(&self, matrix: Node<'_, '_>, name: &'static str) -> Result<Vec<u64>, Flaw> {
        let mut numbers = Vec::new();
        // hwloc splits long lists over several elements.
        for chunk in children(matrix, name) {
            for word in chunk.text().unwrap_or_default().split_whitespace() {
                let number = word.parse().map_err(|_| {
                    self.wrong(chunk, "whole numbers", format!("\"{}\"", shortened(word)))
                })?;
                numbers.push(number);
            }
        }
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HYBRID: &str = include_str!("../../tests/corpus/hybrid.xml");
    const CPULESS: &str = include_str!("../../tests/corpus/cpuless-node.xml");

    fn error(text: &str) -> String {
        let error = from_xml_str(text).expect_err(text).to_string();
        assert!(!error.contains('\n') && error.len() < 300, "{error}");
        error
    }

    fn topology(inside: &str) -> String {
        format!("<topology version=\"2.0\"><object type=\"Machine\">{inside}</object></topology>")
    }

    #[test]
    fn wrong_files_get_one_line() {
        assert!(error("").starts_with("expected hwloc XML, found a syntax error: "));
        assert!(error("not XML at all").starts_with("expected hwloc XML, found a syntax error: "));
        assert_eq!(error("<html/>"), "expected hwloc XML with a <topology>, found <html>");
        assert_eq!(
            error("<topology/>"),
            "expected hwloc XML of version 2 or 3, found no version (hwloc 1); convert it with a recent lstopo: lstopo --if xml -i OLD.xml NEW.xml"
        );
        assert!(error("<topology version=\"9.1\"/>").contains("found version \"9.1\""));
        assert_eq!(error("<topology version=\"2.0\"/>"), "line 1: expected an object, found none");
        assert_eq!(error(&topology("")), "expected at least one online CPU, found none");
        assert_eq!(
            error(&topology("\n<object type=\"PU\"/>")),
            "line 2: expected a kernel number of at most 65535, found nothing in os_index"
        );
        assert_eq!(
            error(&topology("<object type=\"PU\" os_index=\"70000\"/>")),
            "line 1: expected a kernel number of at most 65535, found 70000 in os_index"
        );
        let twice = "<object type=\"PU\" os_index=\"3\"/>".repeat(2);
        assert_eq!(error(&topology(&twice)), "expected every CPU once, found cpu3 twice");
        assert_eq!(
            error(&topology("<object type=\"L2Cache\" depth=\"2\" cache_type=\"7\"/>")),
            "line 1: expected a cache type of 0, 1 or 2, found 7 in cache_type"
        );
    }

    #[test]
    fn everything_offline_is_one_line() {
        let start = HYBRID.find("<object type=\"L3Cache\"").expect("an L3");
        let end = HYBRID.rfind("    </object>\n  </object>").expect("the end of the package");
        let without = format!("{}{}", &HYBRID[..start], &HYBRID[end..]);
        assert_eq!(error(&without), "expected at least one online CPU, found none");
    }

    #[test]
    fn hostile_nesting_and_numbers_are_refused() {
        let deep = "<object type=\"Group\">".repeat(200_000) + &"</object>".repeat(200_000);
        assert_eq!(error(&topology(&deep)), "line 1: expected objects at most 64 deep");
        let nodes: String =
            (0..2_000).map(|nr| format!("<object type=\"NUMANode\" os_index=\"{nr}\"/>")).collect();
        let pu = "<object type=\"PU\" os_index=\"0\"/>";
        assert_eq!(error(&topology(&format!("{pu}{nodes}"))), "expected at most 1024 NUMA nodes");
        let bomb = "<!DOCTYPE topology [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\"><!ENTITY c \"&b;&b;&b;&b;\">]><topology version=\"&c;\"/>";
        assert!(error(bomb).contains("DTD"), "{}", error(bomb));
    }

    /// hwloc itself writes a line that only names its document type.
    #[test]
    fn a_document_type_is_passed_over_and_none_is_defined() {
        let head = "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n";
        assert_eq!(error(&format!("{head}<nothing/>")), error("<nothing/>"));
        let late = format!("{head}<topology version=\"2.0\"></nothing>");
        assert!(error(&late).contains("3:"), "lines are counted as in the file: {}", error(&late));
        for text in [
            "<!DOCTYPE t SYSTEM \"a>b\" [<!ENTITY a \"b\">]><topology/>",
            "<!DOCTYPE t [<!ENTITY a \"b\">]><topology/>",
            "<!DOCTYPE a><!DOCTYPE t [<!ENTITY a \"b\">]><topology/>",
            "<!DOCTYPE a",
        ] {
            assert!(error(text).contains("syntax error"), "{text}: {}", error(text));
        }
    }

    /// Each of them is beside all PUs, or beside those of an empty group.
    #[test]
    fn many_memory_caches_are_read_soon() {
        let pus: String =
            (0..60_000).map(|nr| format!("<object type=\"PU\" os_index=\"{nr}\"/>")).collect();
        let caches = "<object type=\"MemCache\"/>".repeat(100_000);
        let took = |caches: &str| {
            let text = topology(&format!("{pus}{caches}"));
            let begun = std::time::Instant::now();
            assert_eq!(from_xml_str(&text).expect("sound").machine.pus.len(), 60_000);
            begun.elapsed()
        };
        let few = took(&format!("<object type=\"Group\">{caches}</object>"));
        let many = took(&caches);
        assert!(many < 3 * few, "{many:?} and {few:?}");
    }

    #[test]
    fn huge_texts_are_refused_before_they_are_parsed() {
        let huge = " ".repeat(usize::try_from(MAX_BYTES).expect("fits") + 1);
        assert!(error(&huge).starts_with("expected hwloc XML of at most 33554432 bytes"));
    }

    #[test]
    fn version_3_puts_facts_beside_the_machine() {
        let text = HYBRID
            .replace("version=\"2.0\"", "version=\"3.0\"")
            .replace("</topology>", "<info name=\"HostName\" value=\"box\"/></topology>");
        assert_eq!(from_xml_str(&text).expect("version 3").machine.name, "box");
    }

    proptest! {
        /// Whatever happens to a line, the file is read or refused, and what is read is sound.
        #[test]
        fn damaged_files_are_read_or_refused(
            hybrid: bool,
            at in 0..200_usize,
            with in 0..200_usize,
            how in 0..4,
            text in "[0-9a-fx,\"<>/ =A-Za-z]{0,12}",
        ) {
            let mut lines: Vec<&str> = if hybrid { HYBRID } else { CPULESS }.lines().collect();
            let (at, with) = (at % lines.len(), with % lines.len());
            let (before, after) = lines[at].split_once('"').unwrap_or((lines[at], ""));
            let value_end = after.find('"').unwrap_or(after.len());
            let changed = format!("{before}\"{text}{}", &after[value_end..]);
            match how {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, lines[with]),
                2 => lines.swap(at, with),
                _ => lines[at] = &changed,
            }
            match from_xml_str(&lines.join("\n")) {
                Ok(saved) => prop_assert_eq!(saved.machine.check(), Ok(())),
                Err(error) => prop_assert!(!error.to_string().contains('\n')),
            }
        }
    }
}
