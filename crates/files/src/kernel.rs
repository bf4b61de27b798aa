//! Text that the kernel makes: the files of /proc and /sys.
//!
//! Their paths lead through links of the kernel's own, and no user can put anything there. What is read is bounded all
//! the same: programs choose how many lines `/proc/PID/maps` and the like have.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Most bytes of one file. Chosen: `cgroup.procs` of all the processes that Linux can have (4,194,304) takes half.
pub const LIMIT_B: u64 = 64 << 20;

/// The content of a file, of at most [`LIMIT_B`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(LIMIT_B + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT_B {
        let what = format!("expected at most {LIMIT_B} bytes, found more");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// The text in a file.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| {
        let what = format!("expected text, found {}", error.utf8_error());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// The names in a folder, in no order.
pub fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Opens a file for reading, as one that is read again and again.
pub fn open(path: &Path) -> io::Result<std::fs::File> {
    std::fs::File::open(path)
}

/// Where a link leads.
pub fn link(path: &Path) -> io::Result<PathBuf> {
    std::fs::read_link(path)
}

/// The value in the line `NAME: VALUE` of a text, as in `/proc/PID/status`.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim)
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Which of its folders is seen: "/" except where one is mounted elsewhere, as in containers.
    pub root: String,
    /// Where.
    pub at: String,
    /// The kind of file system.
    pub kind: String,
    /// Options of the mount.
    pub options: Vec<String>,
    /// Options of the file system, wherever it is mounted: for cgroups of version 1 their controllers, too.
    pub of_system: Vec<String>,
}

/// What is mounted, by the text of `/proc/PID/mountinfo`; lines that make no sense are left out.
pub fn mounts(text: &str) -> impl DoubleEndedIterator<Item = Mount> {
    text.lines().filter_map(mount)
}

/// `36 35 0:30 ROOT AT OPTIONS … - KIND SOURCE OPTIONS` (proc(5)).
fn mount(line: &str) -> Option<Mount> {
    let list = |text: &str| text.split(',').map(str::to_owned).collect();
    let (place, system) = line.split_once(" - ")?;
    let (mut place, mut system) = (place.split(' ').skip(3), system.split(' '));
    Some(Mount {
        root: unescaped(place.next()?),
        at: unescaped(place.next()?),
        kind: system.next()?.to_owned(),
        options: place.next().map(list).unwrap_or_default(),
        of_system: system.nth(1).map(list).unwrap_or_default(),
    })
}

/// A field of mountinfo: blanks and backslashes in it are written as three octal digits.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => text.extend([char::from(code).to_string().as_str(), &part[3..]]),
            None => text.extend(["\\", part]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_a_text() {
        let text = "30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro\n\
                    31 30 0:27 /a /sys/fs/a\\040b rw,nosuid shared:9 - cgroup2 cgroup2 rw\n\
                    nonsense\n32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        let found: Vec<Mount> = mounts(text).collect();
        let kinds: Vec<&str> = found.iter().map(|mount| &mount.kind[..]).collect();
        assert_eq!(kinds, ["tmpfs", "cgroup2", "cgroup"]);
        let [first, second, third] = &found[..] else { panic!("{found:?}") };
        assert_eq!(first.options, ["ro", "nosuid"]);
        assert_eq!((&second.root[..], &second.at[..]), ("/a", "/sys/fs/a b"));
        assert_eq!(third.of_system, ["rw", "cpu"]);
    }

    #[test]
    fn a_field_of_a_text() {
        let text = "Cpus_allowed:\t3\nCpus_allowed_list:\t0-1\n";
        assert_eq!(field(text, "Cpus_allowed_list"), Some("0-1"));
        assert_eq!(field(text, "Cpus"), None);
    }
}
