//! Cache of profiles of programs.
//!
//! One file for each program, arguments and backend, in `$XDG_CACHE_HOME/colocate/profiles` or
//! `~/.cache/colocate/profiles`. The file name is a hash of the program's identity, its arguments
//! and the backend, so a changed program finds no profile; the file's content is checked all the
//! same. Only this user can read the files: arguments can hold passwords. A cache can be lost at
//! any time: a failure costs one line, never a run.

use super::jobs::JobCommand;
use colocate_files::{Dir, FileError, FileMode, MaxSize};
use colocate_model::{Backend, Mix, Profile, ProfiledProgram};
use colocate_observe::sample::CountedThreads;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Backends of cached profiles, the most exact first.
const BACKENDS: [Backend; 3] = [Backend::Emulate, Backend::Pmu, Backend::Sample];

/// An absolute path; `None` if relative.
fn absolute(dir: OsString) -> Option<PathBuf> {
    Some(PathBuf::from(dir)).filter(|dir| dir.is_absolute())
}

/// Folder of the cache; `None` without a place for it.
pub struct ProfileCache {
    dir: Option<PathBuf>,
}

impl ProfileCache {
    /// The cache below these folders, as given by the environment. A relative path is ignored.
    pub fn open(xdg_cache_home: Option<OsString>, home: Option<OsString>) -> Self {
        let base = xdg_cache_home.and_then(absolute);
        let base = base.or_else(|| Some(home.and_then(absolute)?.join(".cache")));
        Self { dir: base.map(|base| base.join("colocate/profiles")) }
    }

    /// Profile of a job's program, if the cache has one.
    pub fn find(&self, job: &JobCommand) -> Result<Option<Profile>, String> {
        let (Some(path), Ok(program)) = (&self.dir, &job.program) else { return Ok(None) };
        let Ok(dir) = Dir::open(path) else { return Ok(None) };
        let mut ignored = Ok(None);
        for backend in BACKENDS {
            match read(&dir, program, backend) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                // A spoilt file does not hide the profile of a further backend.
                Err(why) => {
                    let path = path.join(file_name(program, backend));
                    ignored = Err(format!("ignored cached profile {}: {why}", path.display()));
                }
            }
        }
        ignored
    }

    /// Keeps the profile of a watched job for later runs and gives it to the job. Nothing is kept
    /// without a known mix, as after a very short run.
    pub fn keep(
        &self,
        job: &mut JobCommand,
        counted: CountedThreads,
        processor: Option<String>,
    ) -> Result<(), String> {
        if counted.threads.iter().all(|thread| thread.mix == Mix::default()) {
            return Ok(());
        }
        let program = job.program.clone().map_err(|why| format!("cannot keep a profile: {why}"))?;
        let watched = counted.watched;
        let profile = Profile {
            version: colocate_model::profile::VERSION,
            backend: Backend::Sample,
            program,
            processor,
            // The watch has just ended.
            started_unix_s: crate::input::unix_seconds().saturating_sub(watched.0 / 1_000_000_000),
            watched_ns: watched,
            complete: counted.complete,
            threads: counted.threads,
            notes: counted.notes,
        };
        let written = self.put(&profile);
        job.profile = Some(profile);
        written
    }

    /// Keeps a finished profile.
    pub fn put(&self, profile: &Profile) -> Result<(), String> {
        let Some(dir) = &self.dir else {
            return Err(not_kept("neither XDG_CACHE_HOME nor HOME is a folder"));
        };
        write(dir, profile).map_err(|why| not_kept(&why.line()))
    }
}

fn not_kept(why: &str) -> String {
    format!("cannot keep the profile for the next time: {why}")
}

fn write(dir: &Path, profile: &Profile) -> Result<(), FileError> {
    let dir = Dir::open_or_make(dir, 0o700)?;
    // A folder made by another program may be readable by all. In another user's folder, nothing can be done.
    let _ = dir.set_mode(0o700);
    let name = file_name(&profile.program, profile.backend);
    dir.write(name, profile.to_json().as_bytes(), FileMode::Private)
}

/// Profile of a program in the cache's folder, if kept.
fn read(dir: &Dir, program: &ProfiledProgram, backend: Backend) -> Result<Option<Profile>, String> {
    const LIMIT: MaxSize = crate::input::limit(Profile::MAX_BYTES);
    let text = match dir.read_text(file_name(program, backend), LIMIT) {
        Err(why) if why.is_missing() => return Ok(None),
        read => read.map_err(|why| why.reason())?,
    };
    let profile = Profile::from_json(&text).map_err(|why| why.to_string())?;
    let same = profile.program.identity == program.identity
        && profile.program.args == program.args
        && profile.backend == backend;
    if same { Ok(Some(profile)) } else { Err("it is of another program".into()) }
}

/// A file name unique to this program, its arguments and the backend.
fn file_name(program: &ProfiledProgram, backend: Backend) -> String {
    let mut hash = Sha256::new();
    // Lengths distinguish `a b` from `ab`.
    let args = program.args.iter().map(|arg| &**arg);
    for part in [&program.identity, backend.name()].into_iter().chain(args) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    // Half of the hash is enough, since the content is checked, too.
    let hash = hash.finalize();
    hash[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>() + ".json"
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_act::launch::Command;
    use colocate_machine::Nanos;
    use colocate_model::{Share, ThreadProfile};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn job(args: &[&str]) -> JobCommand {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let program =
            ProfiledProgram { path: "/bin/p".into(), args, identity: "build-id:07".into() };
        let command =
            Command { path: "/bin/p".into(), argv: vec!["p".into()], ..Command::default() };
        JobCommand { command, program: Ok(program), profile: None }
    }

    fn counted() -> CountedThreads {
        let thread = ThreadProfile {
            order: 0,
            process: 0,
            name: "p".into(),
            start_ns: Nanos::ZERO,
            end_ns: None,
            cpu_time_ns: None,
            instructions: None,
            cycles: None,
            samples: Some(100),
            mix: Mix { int: Share::new(0.5), ..Mix::default() },
        };
        CountedThreads { threads: vec![thread], watched: Nanos(1), complete: true, notes: vec![] }
    }

    fn cache(dir: &Path) -> ProfileCache {
        ProfileCache::open(Some(dir.into()), None)
    }

    #[test]
    fn what_was_kept_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let mut seen = job(&["a", "b"]);
        assert_eq!(cache.find(&seen), Ok(None));
        cache.keep(&mut seen, counted(), None).unwrap();
        assert_eq!(cache.find(&job(&["a", "b"])), Ok(seen.profile));
        assert_eq!(cache.find(&job(&["ab"])), Ok(None), "other arguments");
        let mut changed = job(&["a", "b"]);
        changed.program.as_mut().unwrap().identity = "build-id:08".into();
        assert_eq!(cache.find(&changed), Ok(None), "a changed program");
    }

    #[test]
    fn a_spoilt_file_costs_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        cache.keep(&mut job(&[]), counted(), None).unwrap();
        let folder = dir.path().join("colocate/profiles");
        let path = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        for spoilt in [&b"{\"version\": 1"[..], b"{\"version\": 99}", b"\xff\xfe", b""] {
            std::fs::write(&path, spoilt).unwrap();
            let line = cache.find(&job(&[])).unwrap_err();
            assert!(line.starts_with("ignored cached profile /") && !line.contains('\n'), "{line}");
        }
        cache.keep(&mut job(&[]), counted(), None).unwrap();
        assert!(cache.find(&job(&[])).unwrap().is_some(), "it was written anew");
    }

    #[test]
    fn a_spoilt_file_hides_no_sound_one() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let mut seen = job(&[]);
        cache.keep(&mut seen, counted(), None).unwrap();
        let name = file_name(seen.program.as_ref().unwrap(), Backend::Emulate);
        std::fs::write(dir.path().join("colocate/profiles").join(name), "").unwrap();
        assert_eq!(cache.find(&job(&[])), Ok(seen.profile));
    }

    /// Arguments can hold passwords.
    #[test]
    fn only_the_user_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("colocate/profiles");
        std::fs::create_dir_all(&folder).unwrap();
        // As it was made before, with a file that all can read.
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        let seen = job(&["--password", "secret"]);
        let name = file_name(seen.program.as_ref().unwrap(), Backend::Sample);
        std::fs::write(folder.join(&name), "{}").unwrap();
        cache(dir.path()).keep(&mut job(&["--password", "secret"]), counted(), None).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(name))), (0o700, 0o600));
        assert!(cache(dir.path()).find(&seen).unwrap().is_some());
    }

    /// Neither is opened: the one would block, the other would be read for ever.
    #[test]
    fn what_is_no_plain_file_costs_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let folder = dir.path().join("colocate/profiles");
        cache.keep(&mut job(&[]), counted(), None).unwrap();
        let path = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
        for (found, put) in
            [("a FIFO", ["mkfifo"].as_slice()), ("a symbolic link", &["ln", "-s", "/dev/zero"])]
        {
            std::fs::remove_file(&path).unwrap();
            let done = std::process::Command::new(put[0]).args(&put[1..]).arg(&path).status();
            assert!(done.unwrap().success());
            let line = cache.find(&job(&[])).unwrap_err();
            assert!(line.ends_with(&format!("expected a plain file, found {found}")), "{line}");
        }
    }

    #[test]
    fn without_a_home_nothing_is_kept() {
        let line =
            ProfileCache::open(None, Some("relative".into())).keep(&mut job(&[]), counted(), None);
        assert!(line.unwrap_err().ends_with("neither XDG_CACHE_HOME nor HOME is a folder"));
    }

    #[test]
    fn nothing_is_kept_of_what_was_not_seen() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let nothing = CountedThreads { threads: vec![], ..counted() };
        cache.keep(&mut job(&[]), nothing, None).unwrap();
        assert_eq!(cache.find(&job(&[])), Ok(None));
    }
}
