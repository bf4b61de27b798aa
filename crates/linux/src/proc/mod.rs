//! What `/proc` and `/sys` say about tasks.

pub mod stat;
pub mod steal;

use crate::foreign;
use crate::sys;
use crate::{Pid, Tid};
use colocate_files::kernel;
use colocate_machine::{Nanos, PuNr, PuSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A `/proc` file system, or a saved copy.
#[derive(Clone, Debug)]
pub struct Proc {
    root: PathBuf,
}

impl Default for Proc {
    fn default() -> Self {
        Self::at(Path::new(LIVE))
    }
}

/// A piece of code mapped into a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMap {
    /// First address.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// Offset of the mapping in the file, in bytes.
    pub offset_b: u64,
    /// Major and minor number of the file's device; zeros for memory without a file.
    pub device: (u32, u32),
    /// The file's inode; 0 for memory without a file.
    pub inode: u64,
    /// The file's path or a name in brackets; empty for memory without either.
    pub path: String,
}

/// Mount point on a live machine.
const LIVE: &str = "/proc";

impl Proc {
    /// The tree mounted or saved at `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Checks that the live tree shows the processes of this PID namespace. A saved copy always
    /// passes.
    ///
    /// # Errors
    /// The mismatch with its remedy: nothing is mounted at `/proc`, or the `/proc` of another PID
    /// namespace, whose numbers name different processes.
    pub fn check(&self) -> Result<(), String> {
        let own = std::process::id().to_string();
        let found = match kernel::link(&self.root.join("self")) {
            // A saved copy shows processes of another time or machine.
            _ if !self.is_live() => return Ok(()),
            Ok(found) if found == Path::new(&own) => return Ok(()),
            Ok(found) => format!("process {} as this one", found.display()),
            Err(why) => format!("no process ({why})"),
        };
        Err(format!(
            "found {found} in /proc, expected process {own}; mount the /proc of this PID namespace \
             (mount -t proc proc /proc)"
        ))
    }

    /// Whether the read error `error` proves the end of a thread. Only a missing name is proof, and
    /// in the live tree only if the kernel knows no thread with the number either. After any
    /// different error the thread may live.
    #[must_use]
    pub fn has_ended(&self, error: &io::Error, pid: Pid, tid: Tid) -> bool {
        let is_missing = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH));
        // With the mount option hidepid, other users' living threads have no name either (proc(5)).
        is_missing && !(self.is_live() && sys::exists(pid, tid))
    }

    fn is_live(&self) -> bool {
        self.root == Path::new(LIVE)
    }

    /// Threads of `pid` in ascending order.
    ///
    /// # Errors
    /// If the folder cannot be listed; [`Proc::has_ended`] tells the end of the process from
    /// further causes.
    pub fn tasks(&self, pid: Pid) -> io::Result<Vec<Tid>> {
        let mut tasks: Vec<Tid> =
            numbers_in(&self.of(pid).join("task"))?.into_iter().map(Tid).collect();
        tasks.sort_unstable();
        Ok(tasks)
    }

    /// All processes.
    ///
    /// # Errors
    /// If the tree cannot be listed.
    pub fn processes(&self) -> io::Result<Vec<Pid>> {
        Ok(numbers_in(&self.root)?.into_iter().map(Pid).collect())
    }

    /// Name of the thread, at most 15 bytes; `None` after its end.
    #[must_use]
    pub fn name(&self, pid: Pid, tid: Tid) -> Option<String> {
        let bytes = kernel::read(&self.of_task(pid, tid).join("comm")).ok()?;
        // Only one newline: the name may itself end with one.
        Some(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into_owned())
    }

    /// CPU time of the thread; `None` after its end or if the kernel keeps no account.
    #[must_use]
    pub fn cpu_time(&self, pid: Pid, tid: Tid) -> Option<Nanos> {
        let text = kernel::read_text(&self.of_task(pid, tid).join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Nanos)
    }

    /// State letter of the process, as in `ps`, and its parent.
    ///
    /// # Errors
    /// If the file cannot be read; [`Proc::has_ended`] tells the end of the process from further
    /// causes.
    pub fn state_and_parent(&self, pid: Pid) -> io::Result<(char, Pid)> {
        let bytes = kernel::read(&self.of(pid).join("stat"))?;
        // The name may be any bytes; all other fields are ASCII.
        stat::state_and_parent(&String::from_utf8_lossy(&bytes))
            .ok_or_else(|| io::Error::from(ErrorKind::InvalidData))
    }

    /// Whether the thread is exiting: the kernel lists a thread for a moment after reporting its
    /// end. `None` if the thread is not listed.
    #[must_use]
    pub fn is_exiting(&self, pid: Pid, tid: Tid) -> Option<bool> {
        const PF_EXITING: u32 = 4; // include/linux/sched.h
        Some(self.state_and_flags(pid, tid)?.1 & PF_EXITING != 0)
    }

    /// Whether the process is a kernel thread; `None` if no such process exists. False for a
    /// process with a cleared command line or an ended first thread.
    #[must_use]
    pub fn is_of_kernel(&self, pid: Pid) -> Option<bool> {
        const PF_KTHREAD: u32 = 0x0020_0000; // include/linux/sched.h
        Some(self.state_and_flags(pid, pid.first_thread())?.1 & PF_KTHREAD != 0)
    }

    /// A living thread of the process: the first thread, or another after the first has ended
    /// (pthread_exit(3) in `main`). `None` if all have ended or the process is gone. An ended first
    /// thread has no memory, executable or command line: the files of the process are in the folder
    /// of a living thread.
    #[must_use]
    pub fn living_thread(&self, pid: Pid) -> Option<Tid> {
        let first = pid.first_thread();
        if self.lives(pid, first) {
            return Some(first);
        }
        self.tasks(pid).ok()?.into_iter().find(|tid| self.lives(pid, *tid))
    }

    fn lives(&self, pid: Pid, tid: Tid) -> bool {
        self.state_and_flags(pid, tid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
    }

    /// State letter and kernel flags of a thread.
    fn state_and_flags(&self, pid: Pid, tid: Tid) -> Option<(char, u32)> {
        let bytes = kernel::read(&self.of_task(pid, tid).join("stat")).ok()?;
        stat::state_and_flags(&String::from_utf8_lossy(&bytes))
    }

    /// Living children of `pid`; none after its end.
    ///
    /// Kernels built without `CONFIG_PROC_CHILDREN` keep no list of children; in this case the
    /// parent of every process is read.
    #[must_use]
    pub fn children(&self, pid: Pid) -> Vec<Pid> {
        let lists = self.of(pid).join("task").join(pid.to_string()).join("children");
        if !lists.exists() {
            let processes = self.processes().unwrap_or_default();
            return processes
                .into_iter()
                .filter(|child| self.state_and_parent(*child).is_ok_and(|s| s.1 == pid))
                .collect();
        }
        // Each thread lists the children that it has created itself.
        let lists = self.tasks(pid).unwrap_or_default().into_iter().map(|tid| {
            kernel::read_text(&self.of_task(pid, tid).join("children")).unwrap_or_default()
        });
        lists
            .flat_map(|list| {
                list.split(' ').filter_map(|n| n.parse().ok()).map(Pid).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Executable of the process.
    ///
    /// # Errors
    /// `NotFound` after its end or for a kernel thread, `PermissionDenied` for another user's
    /// process.
    pub fn executable(&self, pid: Pid) -> io::Result<PathBuf> {
        match kernel::link(&self.of(pid).join("exe")) {
            // The first thread alone may have ended, and its link with it.
            Err(why) if why.kind() == ErrorKind::NotFound => {
                kernel::link(&self.executable_link(pid))
            }
            found => found,
        }
    }

    /// Path that opens the executable of a living process even after its deletion or replacement.
    #[must_use]
    pub fn executable_link(&self, pid: Pid) -> PathBuf {
        self.of_living_thread(pid).join("exe")
    }

    /// Words of the process's command line; none after its end or if cleared.
    #[must_use]
    pub fn command_line(&self, pid: Pid) -> Vec<OsString> {
        let bytes = self.of_memory(pid, "cmdline");
        // A zero ends also the last word: kept, it would add an empty word.
        let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        if text.is_empty() {
            return Vec::new();
        }
        text.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
    }

    /// The command's arguments without the program itself; empty if the process is gone.
    #[must_use]
    pub fn arguments(&self, pid: Pid) -> Vec<String> {
        let words = self.command_line(pid).into_iter().skip(1);
        words.map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Executable mappings of the process; none after its end, for another user's process, or for
    /// more mappings than [`kernel::LIMIT_B`] of text can show.
    #[must_use]
    pub fn code_maps(&self, pid: Pid) -> Vec<CodeMap> {
        code_maps(&self.of_memory(pid, "maps")).collect()
    }

    /// Content of a file backed by the process's memory, which may never become available. Empty in
    /// this case and after the process's end. The file of an ended first thread is empty; a living
    /// thread's file replaces it.
    #[must_use]
    pub fn of_memory(&self, pid: Pid, name: &str) -> Vec<u8> {
        let most = usize::try_from(kernel::LIMIT_B).unwrap_or(usize::MAX);
        let read = |folder: PathBuf| foreign::file(pid, None, &folder.join(name), most);
        match read(self.of(pid)) {
            Ok(found) if !found.is_empty() => found,
            // The threads of a process share its memory: another thread's file takes as long.
            Err(why) if why.kind() == ErrorKind::TimedOut => Vec::new(),
            _ => read(self.of_living_thread(pid)).unwrap_or_default(),
        }
    }

    /// Folder of a living thread; without any, the process's own folder.
    fn of_living_thread(&self, pid: Pid) -> PathBuf {
        self.living_thread(pid).map_or_else(|| self.of(pid), |tid| self.of_task(pid, tid))
    }

    fn of(&self, pid: Pid) -> PathBuf {
        self.root.join(pid.to_string())
    }

    fn of_task(&self, pid: Pid, tid: Tid) -> PathBuf {
        self.of(pid).join("task").join(tid.to_string())
    }
}

/// Executable mappings in the text of `/proc/PID/maps`; malformed lines are skipped.
pub fn code_maps(text: &[u8]) -> impl Iterator<Item = CodeMap> {
    text.split(|byte| *byte == b'\n').filter_map(|line| code_map(&String::from_utf8_lossy(line)))
}

/// Mapping in a line of `/proc/PID/maps`, if executable.
fn code_map(line: &str) -> Option<CodeMap> {
    // At most six fields: a path may have blanks.
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    if !fields.next()?.contains('x') {
        return None;
    }
    let offset_b = hex(fields.next()?)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = fields.next()?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_start().to_owned();
    Some(CodeMap { start: hex(start)?, end: hex(end)?, offset_b, device, inode, path })
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Online CPUs, from `cpu/online` below `devices`, which is `/sys/devices/system` on a live
/// machine.
///
/// # Errors
/// If the file cannot be read or is not a list like `0-3,8`.
pub fn online_cpus(devices: &Path) -> io::Result<Vec<PuNr>> {
    let path = devices.join("cpu/online");
    let text = kernel::read_text(&path)?;
    match PuSet::parse_list(&text) {
        Ok(cpus) if !cpus.is_empty() => Ok(cpus.iter().collect()),
        _ => {
            let found =
                format!("{}: expected a list like \"0-3,8\", found {text:?}", path.display());
            Err(io::Error::new(ErrorKind::InvalidData, found))
        }
    }
}

/// All numeric names in the folder `path`, or an error.
fn numbers_in(path: &Path) -> io::Result<Vec<i32>> {
    let names = kernel::names(path)?;
    Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("cpu")).unwrap();
        let online = |text: &str| {
            std::fs::write(folder.path().join("cpu/online"), text).unwrap();
            online_cpus(folder.path()).ok()
        };
        assert_eq!(online("0-2,5\n"), Some([0, 1, 2, 5].map(PuNr).to_vec()));
        assert_eq!([online("0-\n"), online("\n")], [None, None]);
    }

    #[test]
    fn lines_of_maps() {
        let line = "7f00-8f00 r-xp 00001000 fe:01 1234      /usr/lib/a b.so";
        let map = CodeMap {
            start: 0x7f00,
            end: 0x8f00,
            offset_b: 0x1000,
            device: (0xfe, 1),
            inode: 1234,
            path: "/usr/lib/a b.so".into(),
        };
        assert_eq!(code_map(line), Some(map));
        assert_eq!(code_map("7f00-8f00 rw-p 00001000 fe:01 1234 /a"), None);
        assert_eq!(code_map("7f00-8f00 rwxp 00000000 00:00 0 ").unwrap().path, "");
        assert_eq!(code_map("nonsense"), None);
        let text = b"nonsense\n7f00-8f00 r-xp 0 fe:01 12 /\xff\n\n";
        assert_eq!(code_maps(text).map(|map| map.inode).collect::<Vec<_>>(), [12]);
    }

    #[test]
    fn a_saved_process() {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("7/task/7");
        std::fs::create_dir_all(&task).unwrap();
        std::fs::write(root.path().join("7/stat"), b"7 (a) b\xc3) S 3 7 7").unwrap();
        std::fs::write(task.join("comm"), "a) b\n").unwrap();
        std::fs::write(task.join("schedstat"), "12345 6 7\n").unwrap();
        std::fs::write(task.join("children"), "8 9 ").unwrap();
        let proc = Proc::at(root.path());
        assert_eq!(proc.state_and_parent(Pid(7)).unwrap(), ('S', Pid(3)));
        assert_eq!(proc.name(Pid(7), Tid(7)).as_deref(), Some("a) b"));
        assert_eq!(proc.cpu_time(Pid(7), Tid(7)), Some(Nanos(12345)));
        assert_eq!(proc.children(Pid(7)), [Pid(8), Pid(9)]);
        assert_eq!(proc.tasks(Pid(7)).unwrap(), [Tid(7)]);
        assert_eq!(proc.cpu_time(Pid(8), Tid(8)), None);
        assert!(proc.tasks(Pid(8)).is_err());
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_is_that_of_another() {
        let root = tempfile::tempdir().unwrap();
        let stat = |tid: i32, state: char, flags: u32| {
            let task = root.path().join(format!("7/task/{tid}"));
            std::fs::create_dir_all(&task).unwrap();
            let text = format!("{tid} (a) {state} 3 7 7 0 -1 {flags} 0 0");
            std::fs::write(task.join("stat"), text).unwrap();
        };
        let proc = Proc::at(root.path());
        assert_eq!((proc.living_thread(Pid(7)), proc.is_of_kernel(Pid(7))), (None, None));
        stat(7, 'Z', 0x0040_0004);
        stat(9, 'Z', 0x0040_0004);
        assert_eq!((proc.living_thread(Pid(7)), proc.is_of_kernel(Pid(7))), (None, Some(false)));
        stat(10, 'S', 0x0040_0040);
        assert_eq!(proc.living_thread(Pid(7)), Some(Tid(10)));
        let file = |path: &str, text: &str| std::fs::write(root.path().join(path), text).unwrap();
        file("7/cmdline", "");
        file("7/task/10/cmdline", "a\0\0b\0");
        file("7/maps", "");
        file("7/task/10/maps", "7f00-8f00 r-xp 0 fe:01 12 /a\n");
        std::os::unix::fs::symlink("/a", root.path().join("7/task/10/exe")).unwrap();
        assert_eq!(proc.command_line(Pid(7)), ["a", "", "b"]);
        assert_eq!(proc.code_maps(Pid(7)).len(), 1);
        assert_eq!(proc.executable(Pid(7)).unwrap(), Path::new("/a"));
        stat(7, 'S', 0x0020_8040);
        assert_eq!(proc.living_thread(Pid(7)), Some(Tid(7)));
        assert_eq!(proc.is_of_kernel(Pid(7)), Some(true));
    }
}
