//! The library that watches OpenMP programs from inside: its path, its preloading and its reports.

use crate::launch::own_folder;
use anyhow::{Context, bail};
use colocate_files::{Dir, MaxSize};
use colocate_omp::env;
use colocate_omp::report::{Reported, read};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The library, and the folder of its reports.
pub struct Library {
    file: PathBuf,
    folder: (TempDir, Dir),
}

/// Most regions of all reports together. Chosen.
const REGIONS: usize = 16_384;

/// Most bytes of all reports together: a KiB for each region.
const BYTES: u64 = 16 << 20;

/// Most reports read at a time, one a process. Chosen.
const REPORTS: usize = 10_000;

/// Most time to read all reports. Chosen.
const TIME: Duration = Duration::from_secs(5);

/// Reports of all processes.
#[derive(Default)]
pub struct ProcessReports {
    /// Regions of the reports read.
    pub regions: Vec<Reported>,
    /// Number of reports left out.
    left_out: usize,
}

impl ProcessReports {
    /// Adds all regions of a report, or none if there is no room.
    fn add(&mut self, text: &str) {
        // The first line is a header.
        let fits = self.regions.len() + text.lines().count() <= REGIONS + 1;
        match read(text).filter(|_| fits) {
            Some(regions) => self.regions.extend(regions),
            None => self.left_out += 1,
        }
    }

    /// A note with the number of reports left out, if any.
    pub fn note(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!(
                "reports left out: {}; expected plain files with at most {} MiB and {REGIONS} regions in all",
                self.left_out,
                BYTES >> 20
            )
        })
    }
}

impl Library {
    /// Finds the library: in cargo's folders beside this executable, newest first, or installed.
    pub fn find() -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot find our own executable")?;
        let beside = own.parent().unwrap_or(Path::new("/"));
        let built = ["", "deps", "../release", "../debug"]
            .map(|folder| beside.join(folder).join(env::LIBRARY));
        let mut built: Vec<PathBuf> = built.into_iter().filter(|path| path.is_file()).collect();
        built.sort_by_key(|path| Reverse(path.metadata().and_then(|found| found.modified()).ok()));
        let installed = beside.join("../lib/colocate").join(env::LIBRARY);
        let found = built.into_iter().next().or_else(|| installed.is_file().then_some(installed));
        let file = found.with_context(|| {
            let library = env::LIBRARY;
            let beside = beside.display();
            format!("expected {library} in {beside} or {beside}/../lib/colocate, found none: cargo build -p colocate-omp makes it")
        })?;
        let file = file.canonicalize().with_context(|| file.display().to_string())?;
        // The dynamic loader takes a blank or a colon for the end of a name.
        if file.to_str().is_none_or(|path| path.contains([' ', ':'])) {
            bail!("expected a path without blanks and colons, found {}", file.display());
        }
        Ok(Self { file, folder: own_folder("threads-")? })
    }

    /// Preloads the library into `command`, before others, with at most `most` threads.
    pub fn preload(&self, command: &mut Command, most: u32, apply: bool) {
        let mut list = self.file.clone().into_os_string();
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            list.push(":");
            list.push(others);
        }
        command.env("LD_PRELOAD", list).env(env::REPORT, self.folder.0.path());
        command.env(env::MOST, most.to_string()).env(env::APPLY, if apply { "1" } else { "0" });
    }

    /// Reads and removes the reports that processes have written since the last call, until
    /// `is_stopped`. A program can put any file there: only plain files are read, no link is
    /// followed, and the limits hold for all reports together.
    pub fn reports(&self, is_stopped: &dyn Fn() -> bool) -> ProcessReports {
        let dir = &self.folder.1;
        let mut names = dir.names(REPORTS).unwrap_or_default();
        names.sort();
        let until = Instant::now() + TIME;
        let mut left = BYTES;
        let mut reports = ProcessReports::default();
        for name in names {
            let is_late = Instant::now() >= until || is_stopped();
            let text = (!is_late).then(|| dir.read_text(&name, MaxSize::bytes(left)).ok());
            match text.flatten() {
                Some(text) => {
                    left -= text.len() as u64;
                    reports.add(&text);
                }
                None => reports.left_out += 1,
            }
            let _ = dir.remove(name);
        }
        reports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> Library {
        Library { file: PathBuf::new(), folder: own_folder("threads-").unwrap() }
    }

    /// A report of so many regions.
    fn report(regions: usize) -> String {
        let line = "/bin/a\t16\t\t0\t2\t2\tall\t0\t\t1\t2\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\n";
        format!("colocate-omp 2\n{}", line.repeat(regions))
    }

    /// Links to one report of 9 MiB, as a program makes them at no cost: one is within the limit.
    #[test]
    fn limits_hold_for_all_reports_together() {
        let library = library();
        let path = library.folder.0.path().to_owned();
        // A region whose object has a long name.
        let large = report(1).replace("/bin/a", &"a".repeat(9 << 20));
        std::fs::write(path.join("1"), large).unwrap();
        (2..32).for_each(|link| {
            std::fs::hard_link(path.join("1"), path.join(link.to_string())).unwrap();
        });
        let reports = library.reports(&|| false);
        assert_eq!((reports.regions.len(), reports.left_out), (1, 30));
        assert!(reports.note().unwrap().starts_with("reports left out: 30; expected"));
        assert!(library.folder.1.names(1).unwrap().is_empty(), "they are removed");
    }

    #[test]
    fn regions_are_limited_in_all() {
        let library = library();
        let path = library.folder.0.path().to_owned();
        for name in ["1", "2", "3"] {
            std::fs::write(path.join(name), report(REGIONS / 2)).unwrap();
        }
        let reports = library.reports(&|| false);
        assert_eq!((reports.regions.len(), reports.left_out), (REGIONS, 1));
        std::fs::write(path.join("1"), report(1)).unwrap();
        let stopped = library.reports(&|| true);
        assert_eq!((stopped.regions.len(), stopped.left_out), (0, 1), "a signal ends it");
        assert_eq!(library.reports(&|| false).note(), None);
    }
}
