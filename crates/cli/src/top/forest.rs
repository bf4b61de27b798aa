//! Rows of processes, and the processes that belong to each row. Pure.

use colocate_linux::Pid;
use std::collections::BTreeMap;

/// A listed process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its parent process.
    pub parent: Pid,
    /// Number of its user.
    pub user: u32,
    /// Name of its program, at most 15 bytes.
    pub name: String,
    /// Number of its threads.
    pub threads: u32,
    /// Creation time in clock ticks since boot: with the PID, a unique identity.
    pub start_ticks: u64,
}

/// Conditions for a row: a process must fulfil all of them.
#[derive(Clone, Debug, Default)]
pub struct ProcessFilter {
    /// PIDs; any if empty.
    pub pids: Vec<Pid>,
    /// Number of the user.
    pub user: Option<u32>,
    /// Text that the name contains.
    pub name: Option<String>,
}

impl ProcessFilter {
    /// Whether there is no condition: then processes that use CPU time are shown.
    pub fn is_any(&self) -> bool {
        self.pids.is_empty() && self.user.is_none() && self.name.is_none()
    }

    /// Whether a process gets a row.
    fn has(&self, pid: Pid, process: &Listed) -> bool {
        (self.pids.is_empty() || self.pids.contains(&pid))
            && self.user.is_none_or(|user| user == process.user)
            && self.name.as_ref().is_none_or(|name| process.name.contains(name))
    }
}

/// Row of each process: its own, or the row of its nearest ancestor with a row.
pub fn rows(listed: &BTreeMap<Pid, Listed>, choice: &ProcessFilter) -> BTreeMap<Pid, Pid> {
    let rows = listed.keys().filter_map(|pid| {
        let above = std::iter::successors(Some(*pid), |pid| Some(listed.get(pid)?.parent));
        // The list is not a snapshot: PIDs reused meanwhile may even make a cycle.
        let mut above = above.take(listed.len() + 1);
        let row = above.find(|pid| listed.get(pid).is_some_and(|found| choice.has(*pid, found)))?;
        Some((*pid, row))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 init, 10 make of user 5, 11 cc under it, 12 make under that, 13 cc under it, 20 cc of user 6; 30 and 31 created
    /// each other, which can be read but not be.
    fn listed() -> BTreeMap<Pid, Listed> {
        let all = [
            (1, 0, 0, "init"),
            (10, 1, 5, "make"),
            (11, 10, 5, "cc"),
            (12, 11, 5, "make"),
            (13, 12, 5, "cc"),
            (20, 1, 6, "cc"),
            (30, 31, 6, "x"),
            (31, 30, 6, "x"),
        ];
        let process = |(pid, parent, user, name): (i32, i32, u32, &str)| {
            let (parent, name) = (Pid(parent), name.to_owned());
            (Pid(pid), Listed { parent, user, name, threads: 1, start_ticks: 0 })
        };
        all.into_iter().map(process).collect()
    }

    fn found(choice: &ProcessFilter) -> Vec<(i32, i32)> {
        rows(&listed(), choice).into_iter().map(|(pid, row)| (pid.0, row.0)).collect()
    }

    #[test]
    fn rows_have_their_descendants() {
        let make = ProcessFilter { name: Some("mak".into()), ..ProcessFilter::default() };
        assert_eq!(found(&make), [(10, 10), (11, 10), (12, 12), (13, 12)]);
        let user = ProcessFilter { user: Some(6), ..ProcessFilter::default() };
        assert_eq!(found(&user), [(20, 20), (30, 30), (31, 31)]);
        let both = ProcessFilter { user: Some(5), name: Some("cc".into()), pids: Vec::new() };
        assert_eq!(found(&both), [(11, 11), (12, 11), (13, 13)]);
        let tree = ProcessFilter { pids: vec![Pid(11), Pid(99)], ..ProcessFilter::default() };
        assert_eq!(found(&tree), [(11, 11), (12, 11), (13, 11)]);
        assert!(
            ProcessFilter::default().is_any()
                && found(&ProcessFilter::default()).iter().all(|(a, b)| a == b)
        );
    }
}
