//! A cgroup of its own for each job, which the kernel freezes as a whole.
//!
//! `cgroup.freeze` and `cgroup.events` (Linux 5.2, Documentation/admin-guide/cgroup-v2.rst) belong to every
//! cgroup of version 2 but the root; no controller has to be enabled for them.

use super::how::JobProcesses;
use crate::owner::Owner;
use colocate_files::cgroup::Memberships;
use colocate_files::{Dir, FileError, MaxSize, kernel};
use colocate_linux::Pid;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// `CGROUP2_SUPER_MAGIC` of the kernel's include/uapi/linux/magic.h.
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// Maximum size of a cgroup's file, as for all files of the kernel.
pub(super) const MOST: MaxSize = MaxSize::bytes(kernel::LIMIT_B);

/// Prefix of every folder's name.
const PREFIX: &str = "colocate-";

/// Maximum time for which ending processes may keep cgroups in use. Chosen: beside ten busy threads
/// on two PUs, a process under SCHED_IDLE needed more than two seconds (measured), and colocate may
/// stay this long.
const LONGEST_END: Duration = Duration::from_secs(30);
/// Time between two polls for their end, at first and at most; it doubles.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(64)];

/// Permission bits of a new cgroup, less the umask.
const MODE: u32 = 0o777;

/// Cgroups for the jobs of one workload.
#[derive(Debug)]
pub struct Freezer {
    folder: PathBuf,
    jobs: usize,
}

fn name(job: JobProcesses) -> String {
    format!("job-{}", job.0)
}

/// The folder of this process's cgroup of version 2. `proc` is `/proc`.
pub fn own_cgroup(proc: &Path) -> io::Result<PathBuf> {
    let mounts = kernel::read_text(&proc.join("self/mountinfo"))?;
    let mounts: Vec<kernel::Mount> = kernel::mounts(&mounts).collect();
    let own = Memberships::parse(&kernel::read_text(&proc.join("self/cgroup"))?);
    own.folder(&mounts, None)
        .map(PathBuf::from)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no cgroup of version 2 is mounted"))
}

impl Freezer {
    /// Cgroups for `jobs` jobs, in a folder below the cgroup `own`. The folder's name has the
    /// number and start of `owner`, so a later process with the same number uses another folder.
    /// Nothing is created yet.
    pub fn below(own: &Path, owner: Owner, jobs: usize) -> Self {
        let Owner { pid, start_ticks } = owner;
        Self { folder: own.join(format!("{PREFIX}{pid}-{start_ticks}")), jobs }
    }

    /// Creates the cgroups. On failure, or if the kernel cannot freeze them, removes them all.
    pub fn make(&self) -> io::Result<()> {
        let (above, name) = place(&self.folder)?;
        let folder = above.make_child(name, MODE)?;
        let made = (0..self.jobs).try_for_each(|job| {
            let job = JobProcesses(u32::try_from(job).unwrap_or(u32::MAX));
            let job = folder.make_child(self::name(job), MODE)?;
            // Kernels before 5.2 lack the file.
            let can = job.holds("cgroup.freeze");
            if can { Ok(()) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
        });
        if made.is_err() {
            // The first error is the one to report.
            let _ = dissolve_in(&above, name);
        }
        made
    }

    /// Folder of all the cgroups.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Cgroup of a job.
    pub fn of(&self, job: JobProcesses) -> io::Result<Dir> {
        let (above, folder) = place(&self.folder)?;
        Ok(above.child(folder)?.child(name(job))?)
    }

    /// Moves a process into the cgroup of a job, where its children will be created.
    pub fn enter(&self, job: JobProcesses, pid: Pid) -> io::Result<()> {
        Ok(self.of(job)?.write_in_place("cgroup.procs", pid.to_string().as_bytes())?)
    }

    /// Kills all processes of a job, including processes created meanwhile (Linux 5.14).
    pub fn kill(&self, job: JobProcesses) -> io::Result<()> {
        Ok(self.of(job)?.write_in_place("cgroup.kill", b"1")?)
    }
}

/// Cgroup above a folder, and the folder's name, if named like a folder of colocate:
/// `colocate-PID-START`. All files below are the kernel's own: its file system has no links, and
/// none is followed.
fn place(folder: &Path) -> io::Result<(Dir, &OsStr)> {
    let above = above(folder)?;
    let dir = Dir::open(above)?;
    // The path may come from a journal: only the kernel's own files may be written.
    if dir.file_system() != Some(CGROUP2_MAGIC) {
        let what = format!("expected a cgroup of version 2, found {}", above.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok((dir, folder.file_name().unwrap_or_default()))
}

/// Processes in the cgroups of a folder, and in cgroups made below by programs; none if the folder
/// is gone.
pub fn members(folder: &Path) -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    for job in cgroups(folder)? {
        pids.extend(processes(&job)?);
        add_inner(&job, &mut pids);
    }
    Ok(pids)
}

/// Cgroups of the jobs in a folder, each opened when its turn comes; none if the folder is gone.
pub fn cgroups(folder: &Path) -> io::Result<impl Iterator<Item = Dir> + use<>> {
    let folder = there(place(folder).and_then(|(above, name)| Ok(above.child(name)?)))?;
    let names = folder.as_ref().and_then(|folder| folder.names(usize::MAX).ok());
    let names = names.unwrap_or_default().into_iter();
    Ok(names.filter_map(move |name| folder.as_ref()?.child(name).ok()))
}

/// Adds the processes of the cgroups in a cgroup. A cgroup made by a program may be of a kind that
/// lists no processes.
fn add_inner(cgroup: &Dir, pids: &mut Vec<Pid>) {
    for inner in cgroups_in(cgroup) {
        pids.extend(processes(&inner).unwrap_or_default());
        add_inner(&inner, pids);
    }
}

fn cgroups_in(cgroup: &Dir) -> impl Iterator<Item = Dir> {
    let names = cgroup.names(usize::MAX).unwrap_or_default();
    names.into_iter().filter_map(|name| cgroup.child(name).ok())
}

fn processes(cgroup: &Dir) -> Result<Vec<Pid>, FileError> {
    let pids = cgroup.read_text("cgroup.procs", MOST)?;
    Ok(pids.lines().filter_map(|pid| pid.parse().ok()).map(Pid).collect())
}

/// Thaws the cgroups of a folder.
pub fn thaw(folder: &Path) -> io::Result<()> {
    thaw_all(cgroups(folder)?);
    Ok(())
}

fn thaw_all(cgroups: impl Iterator<Item = Dir>) {
    for cgroup in cgroups {
        // One that was removed meanwhile was empty.
        let _ = set_frozen(&cgroup, false);
    }
}

/// Freezes or thaws a cgroup.
pub(super) fn set_frozen(cgroup: &Dir, frozen: bool) -> io::Result<()> {
    let state = if frozen { b"1" } else { b"0" };
    Ok(cgroup.write_in_place("cgroup.freeze", state)?)
}

fn above(folder: &Path) -> io::Result<&Path> {
    let name = folder.file_name().map(|name| name.to_string_lossy());
    let is_ours = name.is_some_and(|name| name.strip_prefix(PREFIX).is_some_and(is_owner));
    folder.parent().filter(|_| is_ours).ok_or_else(|| {
        let what = format!("{} is no folder of colocate's cgroups", folder.display());
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })
}

/// Whether `name` is `PID-START`.
fn is_owner(name: &str) -> bool {
    name.split_once('-')
        .is_some_and(|(pid, start)| pid.parse::<u32>().is_ok() && start.parse::<u64>().is_ok())
}

/// Thaws the cgroups of a folder, moves all processes to the cgroup above the folder, and removes
/// the folder. Returns the moved processes.
///
/// Empty cgroups made by a program in its own cgroup are removed. Cgroups in use stay, with their
/// parents: their limits are the program's affair.
pub fn dissolve(folder: &Path) -> io::Result<Vec<Pid>> {
    match there(place(folder))? {
        Some((above, name)) => dissolve_in(&above, name),
        None => Ok(Vec::new()),
    }
}

fn dissolve_in(above: &Dir, name: &OsStr) -> io::Result<Vec<Pid>> {
    let Some(folder) = there(above.child(name).map_err(io::Error::from))? else {
        return Ok(Vec::new());
    };
    // First of all they continue: to move a process can take the kernel some hundredths of a second.
    thaw_all(cgroups_in(&folder));
    let mut moved = BTreeSet::new();
    let mut result = Ok(());
    let until = Instant::now() + LONGEST_END;
    for job in folder.names(usize::MAX)?.into_iter().filter(|job| folder.holds_folder(job)) {
        // `and` removes each cgroup in any case, and keeps the first error.
        result = result.and(gone_is_done(clear(&folder, &job, above, &mut moved, until)));
    }
    let removed = result.and_then(|()| gone_is_done(Ok(above.remove_folder(name)?)));
    removed.map(|()| moved.into_iter().collect())
}

/// Accepts an object that was removed meanwhile.
fn gone_is_done(result: io::Result<()>) -> io::Result<()> {
    there(result).map(|_| ())
}

/// `None` for a removed cgroup: its files are missing, or no longer usable.
pub(super) fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) if why.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        result => result.map(Some),
    }
}

/// Removes the cgroup `name` in `cgroup`, with its inner cgroups.
fn remove(cgroup: &Dir, name: &OsStr) -> io::Result<()> {
    let mut result = Ok(());
    let inner = cgroup.child(name)?;
    for further in inner.names(usize::MAX)?.iter().filter(|name| inner.holds_folder(name)) {
        result = result.and(remove(&inner, further));
    }
    result.and_then(|()| {
        cgroup.remove_folder(name).map_err(|why| {
            let line = why.line();
            io::Error::new(io::Error::from(why).kind(), line)
        })
    })
}

/// Moves all processes of the cgroup `name` in `folder` to the cgroup `to`, and removes the emptied
/// cgroup.
///
/// An ending process cannot be moved, which the kernel does not report, and keeps the cgroup in use
/// until its end, even after it is no longer listed. So the function waits for its end, unless
/// inner cgroups are in use. Processes forked meanwhile are moved in the next round.
fn clear(
    folder: &Dir,
    name: &OsStr,
    to: &Dir,
    moved: &mut BTreeSet<Pid>,
    until: Instant,
) -> io::Result<()> {
    let cgroup = folder.child(name)?;
    let [mut pause, longest] = PAUSES;
    loop {
        let pids = processes(&cgroup)?;
        let met = moved.len();
        for &pid in &pids {
            match to.write_in_place("cgroup.procs", pid.to_string().as_bytes()) {
                Ok(()) => drop(moved.insert(pid)),
                // The process ended after it was listed.
                Err(why) if why.raw_os_error() == Some(libc::ESRCH) => {}
                Err(why) => return Err(why.into()),
            }
        }
        let result = remove(folder, name);
        let busy = result.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::ResourceBusy);
        let is_inner = pids.is_empty() && cgroups_in(&cgroup).next().is_some();
        if !busy || is_inner || Instant::now() >= until {
            return result;
        }
        // After a move, forked processes may be left: the next round follows at once.
        if moved.len() == met {
            thread::sleep(pause);
            pause = longest.min(2 * pause);
        }
    }
}

/// Cgroups for a test, which no other one has.
#[cfg(test)]
pub(crate) fn cgroups_for_a_test(
    start_ticks: u64,
    jobs: usize,
) -> Result<Freezer, colocate_testing::skip::Missing> {
    let owner = Owner { start_ticks, ..Owner::ours(Path::new("/proc")) };
    let made = own_cgroup(Path::new("/proc")).and_then(|own| {
        let freezer = Freezer::below(&own, owner, jobs);
        freezer.make().map(|()| freezer)
    });
    made.map_err(|why| colocate_testing::skip::Requirement::Cgroups.missing(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuator::Actuator;
    use crate::pause::freeze::Freeze;
    use colocate_testing::{need, wait_until, within};
    use std::fs;

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "user.slice",
            "colocate-",
            "colocate-x7",
            "colocate-7",
            "colocate-7-",
            "colocate-7-x",
            "colocate-7-1-2",
        ] {
            let other = dir.path().join(name);
            fs::create_dir(&other).unwrap();
            assert!(dissolve(&other).is_err(), "{name}");
            assert!(other.exists(), "{name}");
        }
        let gone = Path::new("/sys/fs/cgroup/gone/colocate-7-1");
        assert_eq!(dissolve(gone).unwrap(), [], "gone already");
        assert_eq!(members(gone).unwrap(), []);
    }

    /// A journal can name any folder: only files of the kernel are read or written, and no link leads to others.
    #[test]
    fn only_cgroups_are_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, victim) = (dir.path().join("colocate-7-1"), dir.path().join("victim"));
        fs::create_dir_all(folder.join("job-0")).unwrap();
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, folder.join("job-0/cgroup.freeze")).unwrap();
        for done in [thaw(&folder), dissolve(&folder).map(drop), members(&folder).map(drop)] {
            let why = done.unwrap_err().to_string();
            assert!(why.starts_with("expected a cgroup of version 2, found "), "{why}");
        }
        // Even where the folder would do.
        thaw_all(cgroups_in(&Dir::open(&folder).unwrap()));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    /// A journal is left of a process 7 that was killed; meanwhile another one has that number.
    #[test]
    fn a_later_process_with_the_same_number_keeps_its_cgroups() {
        let dir = tempfile::tempdir().unwrap();
        let of = |start_ticks| {
            Freezer::below(dir.path(), Owner { pid: Pid(7), start_ticks }, 1).folder().to_owned()
        };
        let before = of(1);
        let now = of(2);
        fs::create_dir(&before).unwrap();
        fs::create_dir(&now).unwrap();
        let above = Dir::open(dir.path()).unwrap();
        assert_eq!(dissolve_in(&above, before.file_name().unwrap()).unwrap(), []);
        assert!(!before.exists() && now.exists());
    }

    /// A process with 300 MB, which take the kernel some hundredths of a second to free, is killed, and gone from its
    /// cgroup no sooner.
    #[test]
    fn an_exiting_process_is_waited_for() {
        let freezer = need!(cgroups_for_a_test(4, 1));
        let hold = "read go; head -c 300000000 /dev/zero | exec tail -c 300000000";
        let mut child = std::process::Command::new("sh")
            .args(["-c", hold])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        freezer.enter(JobProcesses(0), Pid(child.id().cast_signed())).unwrap();
        drop(child.stdin.take());
        let of = |pid: Pid, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let number = |text: io::Result<String>, at: usize| -> u64 {
            text.ok().and_then(|text| text.split(' ').nth(at)?.parse().ok()).unwrap_or(0)
        };
        let job = freezer.of(JobProcesses(0)).unwrap();
        let holder = || {
            let pids = processes(&job).unwrap().into_iter();
            pids.max_by_key(|pid| number(of(*pid, "statm"), 1)).unwrap()
        };
        wait_until("its memory", || number(of(holder(), "statm"), 1) * 4096 > 290_000_000);
        let pid = holder();
        colocate_linux::sys::kill(pid, libc::SIGKILL).unwrap();
        let ends = || of(pid, "stat").is_err() || number(of(pid, "stat"), 8) & 4 != 0;
        wait_until("the beginning of its end", ends);
        dissolve(freezer.folder()).unwrap();
        assert!(!freezer.folder().exists());
        within("the end of a shell whose child was killed", || child.wait()).unwrap();
    }

    /// Where this user may make cgroups: three generations of processes stop and continue together.
    #[test]
    fn a_family_is_frozen() {
        let freezer = need!(cgroups_for_a_test(1, 2));
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read go; (while :; do sleep 0.001; done) & wait"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid(child.id().cast_signed());
        freezer.enter(JobProcesses(1), pid).unwrap();
        drop(child.stdin.take());
        let job = freezer.of(JobProcesses(1)).unwrap();
        let count = || processes(&job).unwrap().len();
        wait_until("a child", || count() >= 2);
        let is_frozen = |cgroup: &Dir| Freeze::read_back(cgroup).unwrap().unwrap();
        Freeze::apply(&job, &true).unwrap();
        wait_until("a stop of all", || is_frozen(&job));
        assert!(!is_frozen(&freezer.of(JobProcesses(0)).unwrap()));
        Freeze::apply(&job, &false).unwrap();
        wait_until("a continuation", || !is_frozen(&job));
        Freeze::apply(&job, &true).unwrap();
        let moved = dissolve(freezer.folder()).unwrap();
        assert!(moved.contains(&pid) && !freezer.folder().exists());
        for pid in &moved {
            let _ = colocate_linux::sys::kill(*pid, libc::SIGKILL);
        }
        within("the end of a killed shell", || child.wait()).unwrap();
    }
}
