//! The live machine: read repeatedly while PUs come or go, and without hwloc if hwloc fails.

use crate::cpulist::PuSet;
use crate::machine::Machine;
use crate::parts::MachineParts;
use crate::read::error::ReadError;
use crate::read::sysfs::Sysfs;
use std::fmt;

/// Most attempts to read a machine that changes meanwhile. Chosen: an attempt takes a few
/// milliseconds.
const TRIES: usize = 8;

/// Reason for incomplete knowledge of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// hwloc returned no valid machine, so `/sys` was read without hwloc.
    WithoutHwloc {
        /// Fault of hwloc's machine.
        reason: String,
    },
    /// Neither hwloc nor `/sys` returned a valid machine.
    PusAlone {
        /// Fault of hwloc's machine.
        reason: String,
    },
    /// The kernel does not list the online PUs.
    NoOnlineList,
    /// PUs came and went during every attempt.
    Changing {
        /// The changing PUs, which were left out.
        pus: PuSet,
    },
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WithoutHwloc { reason } => write!(
                f,
                "hwloc cannot read this machine: {reason}; PUs, caches and nodes are those in /sys/devices/system; \
                 lstopo shows what is wrong"
            ),
            Self::PusAlone { reason } => write!(
                f,
                "hwloc cannot read this machine: {reason}; which PUs share a core, a cache or a node is not known; \
                 lstopo shows what is wrong"
            ),
            Self::NoOnlineList => f.write_str(
                "cannot read /sys/devices/system/cpu/online: PUs are those of the affinity mask, and which of them share \
                 a core, a cache or a node may not be known; mount /sys",
            ),
            Self::Changing { pus } => write!(
                f,
                "PUs {pus} came and went each time that the machine was read, and are left out"
            ),
        }
    }
}

/// The live machine, with caveats.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    pub machine: Machine,
    pub caveats: Vec<Caveat>,
}

/// Reads a machine with `hwloc` and from the kernel's files.
///
/// # Errors
/// [`ReadError::Elsewhere`] if hwloc is configured to show another machine; [`ReadError::Wrong`]
/// without any PU.
pub(super) fn read(
    files: &Sysfs,
    hwloc: impl Fn() -> Result<MachineParts, ReadError>,
) -> Result<Reading, ReadError> {
    let (machine, caveat) = match steady(files, hwloc) {
        Ok(found) => found,
        Err(ReadError::Elsewhere) => return Err(ReadError::Elsewhere),
        Err(why) => without_hwloc(files, why.reason())?,
    };
    let no_list = files.online().is_none().then_some(Caveat::NoOnlineList);
    Ok(Reading { machine, caveats: caveat.into_iter().chain(no_list).collect() })
}

/// Reads with hwloc until nothing changes during an attempt. After the last attempt, leaves out the
/// PUs that came or went.
fn steady(
    files: &Sysfs,
    hwloc: impl Fn() -> Result<MachineParts, ReadError>,
) -> Result<(Machine, Option<Caveat>), ReadError> {
    let mut attempts = vec![Attempt::new(files, &hwloc)?];
    while attempts.len() < TRIES {
        let last = &attempts[attempts.len() - 1];
        if last.is_whole()
            && let Ok(machine) = last.parts.clone().assemble()
        {
            return Ok((machine, None));
        }
        let next = Attempt::new(files, &hwloc)?;
        // Two equal quiet readings that are not whole: the kernel's list and hwloc disagree for
        // good.
        let is_no_matter_of_time = next.is_quiet() && last.parts == next.parts;
        attempts.push(next);
        if is_no_matter_of_time {
            break;
        }
    }
    let changing = changing(&attempts);
    // There is at least one attempt: the default is not used.
    let parts = attempts.pop().map(|last| last.parts).unwrap_or_default();
    let machine = assembled(parts.without(&changing))?;
    Ok((machine, (!changing.is_empty()).then_some(Caveat::Changing { pus: changing })))
}

/// Assembles the live machine.
fn assembled(parts: MachineParts) -> Result<Machine, ReadError> {
    parts.assemble().map_err(|reason| ReadError::wrong("this machine", reason))
}

/// One attempt to read the machine.
struct Attempt {
    parts: MachineParts,
    before: Moment,
    after: Moment,
}

impl Attempt {
    fn new(
        files: &Sysfs,
        hwloc: impl Fn() -> Result<MachineParts, ReadError>,
    ) -> Result<Self, ReadError> {
        let before = Moment::of(files);
        let mut parts = hwloc()?;
        files.complete(&mut parts);
        Ok(Self { parts, before, after: Moment::of(files) })
    }

    /// True if nothing has changed during the attempt.
    fn is_quiet(&self) -> bool {
        self.before == self.after
    }

    /// True if the attempt is quiet and found exactly the kernel's online PUs.
    fn is_whole(&self) -> bool {
        // Without a list of the kernel, hwloc's PUs are accepted.
        self.is_quiet() && self.after.online.as_ref().is_none_or(|online| *online == self.pus())
    }

    fn pus(&self) -> PuSet {
        self.parts.pus.iter().copied().collect()
    }
}

/// PUs found online by some attempts and not by others, among the attempts with a change.
fn changing(attempts: &[Attempt]) -> PuSet {
    let restless = attempts.iter().filter(|attempt| !attempt.is_quiet());
    let mut sets = restless.flat_map(|attempt| {
        let Attempt { before, after, .. } = attempt;
        [before.online.clone(), after.online.clone(), Some(attempt.pus())].into_iter().flatten()
    });
    let mut always = sets.next().unwrap_or_default();
    let mut ever = always.clone();
    for set in sets {
        always = always.intersection(&set);
        ever.extend(set.iter());
    }
    ever.difference(&always)
}

/// State that changes whenever a PU comes or goes.
#[derive(PartialEq, Eq)]
struct Moment {
    online: Option<PuSet>,
    /// Number of events that the kernel has reported to udev(7). Counts a PU that went and came
    /// again, too.
    events: Option<u64>,
}

impl Moment {
    fn of(files: &Sysfs) -> Self {
        Self { online: files.online(), events: files.value("/sys/kernel/uevent_seqnum") }
    }
}

/// Reads from the kernel's files alone. If the result is not valid either, returns PUs without any
/// structure.
fn without_hwloc(files: &Sysfs, reason: String) -> Result<(Machine, Option<Caveat>), ReadError> {
    match completed(files, files.tree_parts()) {
        Ok(machine) => Ok((machine, Some(Caveat::WithoutHwloc { reason }))),
        Err(_) => Ok((completed(files, files.flat_parts())?, Some(Caveat::PusAlone { reason }))),
    }
}

/// Completes and assembles parts.
fn completed(files: &Sysfs, mut parts: MachineParts) -> Result<Machine, ReadError> {
    files.complete(&mut parts);
    assembled(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PuNr;
    use crate::machine::CacheKind;
    use crate::parts::CachePart;
    use crate::read::testing::Tree;
    use crate::units::Bytes;
    use std::cell::Cell;

    const ONLINE: &str = "cpu/online";
    const EVENTS: &str = "../../kernel/uevent_seqnum";

    fn numbers(pus: &str) -> Vec<PuNr> {
        PuSet::parse_list(pus).unwrap().iter().collect()
    }

    /// PUs, their cores and packages.
    fn parts(pus: &str, cores: &[&str], packages: &[&str]) -> MachineParts {
        let lists = |lists: &[&str]| lists.iter().map(|list| numbers(list)).collect();
        let (cores, packages) = (lists(cores), lists(packages));
        MachineParts {
            name: "it".into(),
            pus: numbers(pus),
            cores,
            packages,
            ..MachineParts::default()
        }
    }

    /// Four PUs of two cores; while PU 3 goes; without it.
    fn whole() -> MachineParts {
        parts("0-3", &["0-1", "2-3"], &["0-3"])
    }

    fn torn() -> MachineParts {
        parts("0-3", &["0-1", "2", "3"], &["0-2", "3"])
    }

    fn rest() -> MachineParts {
        parts("0-2", &["0-1", "2"], &["0-2"])
    }

    fn cores(machine: &Machine) -> Vec<Vec<u32>> {
        let os = |core: &crate::machine::Core| {
            core.pus.iter().map(|pu| machine.pus[pu.idx()].os.0).collect()
        };
        machine.cores.iter().map(os).collect()
    }

    #[test]
    fn a_machine_that_does_not_change_is_read_once() {
        let tree = Tree::of("once", &[(ONLINE, "0-3")]);
        let reads = Cell::new(0);
        let reading = read(&tree.files(), || {
            reads.set(reads.get() + 1);
            Ok(whole())
        });
        let reading = reading.unwrap();
        assert_eq!((cores(&reading.machine), reads.get()), (vec![vec![0, 1], vec![2, 3]], 1));
        assert_eq!(reading.caveats, []);
    }

    #[test]
    fn a_pu_that_goes_meanwhile_is_not_torn_out() {
        let tree = Tree::of("goes", &[(ONLINE, "0-3")]);
        let reads = Cell::new(0);
        let reading = read(&tree.files(), || {
            reads.set(reads.get() + 1);
            tree.write(ONLINE, "0-2");
            Ok(if reads.get() == 1 { torn() } else { rest() })
        });
        let reading = reading.unwrap();
        assert_eq!(cores(&reading.machine), [vec![0, 1], vec![2]]);
        assert_eq!((reading.machine.packages.len(), reading.caveats.len()), (1, 0));
    }

    /// It is online before and after.
    #[test]
    fn a_pu_that_goes_and_comes_again_is_noticed() {
        let tree = Tree::of("again", &[(ONLINE, "0-3"), (EVENTS, "7")]);
        let reads = Cell::new(0);
        let reading = read(&tree.files(), || {
            reads.set(reads.get() + 1);
            tree.write(EVENTS, "9");
            Ok(if reads.get() == 1 { torn() } else { whole() })
        });
        assert_eq!(cores(&reading.unwrap().machine), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn a_pu_that_never_rests_is_left_out() {
        let tree = Tree::of("restless", &[(ONLINE, "0-3")]);
        let reads = Cell::new(0_usize);
        let reading = read(&tree.files(), || {
            reads.set(reads.get() + 1);
            tree.write(ONLINE, if reads.get().is_multiple_of(2) { "0-3" } else { "0-2" });
            Ok(torn())
        });
        let reading = reading.unwrap();
        assert_eq!(cores(&reading.machine), [vec![0, 1], vec![2]]);
        assert_eq!((reading.machine.packages.len(), reads.get()), (1, TRIES));
        assert_eq!(reading.machine.offline, [PuNr(3)]);
        let said = "PUs 3 came and went each time that the machine was read, and are left out";
        assert_eq!(reading.caveats[0].to_string(), said);
    }

    /// As in a container whose list of PUs is made up.
    #[test]
    fn a_list_that_is_always_another_one_is_no_matter_of_time() {
        let tree = Tree::of("made-up", &[(ONLINE, "0-1")]);
        let reads = Cell::new(0);
        let reading = read(&tree.files(), || {
            reads.set(reads.get() + 1);
            Ok(whole())
        });
        assert_eq!((reading.unwrap().machine.pus.len(), reads.get()), (4, 2));
    }

    #[test]
    fn parts_that_never_fit_are_read_without_hwloc() {
        let group = [("cpu/cpu0/topology/core_cpus_list", "0-1"), (ONLINE, "0-3")];
        let tree = Tree::of("misfit", &group);
        let cache = |level, pus: &str| CachePart {
            level,
            kind: CacheKind::Unified,
            size: Bytes(1 << 20),
            pus: numbers(pus),
        };
        let caches = vec![cache(2, "1-2"), cache(3, "0-1"), cache(3, "2-3")];
        let reading =
            read(&tree.files(), || Ok(MachineParts { caches: caches.clone(), ..whole() })).unwrap();
        assert_eq!(cores(&reading.machine), [vec![0, 1], vec![2], vec![3]]);
        let reason = "expected caches that nest, found cache L#1 and cache L#0 overlapping".into();
        assert_eq!(reading.caveats, [Caveat::WithoutHwloc { reason }]);
    }

    #[test]
    fn another_machine_is_none_of_ours() {
        let tree = Tree::of("elsewhere", &[(ONLINE, "0-3")]);
        let elsewhere = read(&tree.files(), || Err(ReadError::Elsewhere));
        assert!(matches!(elsewhere, Err(ReadError::Elsewhere)));
    }

    /// Without files, the PUs of the affinity mask.
    #[test]
    fn nothing_can_be_read() {
        let tree = Tree::of("nothing", &[]);
        let failed = || Err(ReadError::Hwloc("it failed".into()));
        let reading = read(&tree.files(), failed).unwrap();
        assert!(!reading.machine.pus.is_empty());
        let reason = "it failed".into();
        assert_eq!(reading.caveats, [Caveat::WithoutHwloc { reason }, Caveat::NoOnlineList]);
    }
}
