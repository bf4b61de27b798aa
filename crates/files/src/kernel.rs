//! Files of /proc and /sys.
//!
//! Their paths lead through links that the kernel makes, and no user can create files there. Reads
//! are bounded nevertheless: a program chooses the number of lines in files such as
//! `/proc/PID/maps`.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Limit of one file, in bytes. Chosen: `cgroup.procs` with the most processes of Linux (4,194,304)
/// takes half.
pub const LIMIT_B: u64 = 64 << 20;

/// Content of a file, at most [`LIMIT_B`] bytes.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Sizes in /proc are 0 and sizes in /sys 4096: only reading shows the real size.
    std::fs::File::open(path)?.take(LIMIT_B + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT_B {
        let what = format!("expected at most {LIMIT_B} bytes, found more");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Content of a file, as UTF-8 text.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| {
        let what = format!("expected text, found {}", error.utf8_error());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Names in a folder, in no order.
pub fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Opens a file for repeated reading.
pub fn open(path: &Path) -> io::Result<std::fs::File> {
    std::fs::File::open(path)
}

/// Target of a symbolic link.
pub fn link(path: &Path) -> io::Result<PathBuf> {
    std::fs::read_link(path)
}

/// Value of the line `NAME: VALUE`, as in `/proc/PID/status`; `None` without such a line.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(str::trim)
}

/// A mounted file system: a line of `/proc/PID/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Folder of the file system at the mount point: "/", or a subfolder of a bind mount, as in
    /// containers.
    pub root: String,
    /// Mount point.
    pub at: String,
    /// Type of the file system, as `cgroup2`.
    pub kind: String,
    /// Options of this mount.
    pub options: Vec<String>,
    /// Options of the file system, shared by its mounts. For cgroups of version 1: also the
    /// controllers.
    pub of_system: Vec<String>,
}

/// Mounts listed in the text of `/proc/PID/mountinfo`; malformed lines are skipped.
pub fn mounts(text: &str) -> impl DoubleEndedIterator<Item = Mount> {
    text.lines().filter_map(mount)
}

/// Parses `36 35 0:30 ROOT AT OPTIONS … - KIND SOURCE OPTIONS` (proc(5)).
fn mount(line: &str) -> Option<Mount> {
    // The number of optional fields before `-` varies.
    let (place, system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let mut system = system.split(' ');
    Some(Mount {
        root: unescaped(place.next()?),
        at: unescaped(place.next()?),
        kind: system.next()?.to_owned(),
        // In the order of the line: each `next` takes the following field.
        options: place.next().map(options).unwrap_or_default(),
        // The source lies between the type and the options.
        of_system: system.nth(1).map(options).unwrap_or_default(),
    })
}

fn options(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}
/// Unescapes a field of mountinfo: blanks and backslashes are written as `\` and three octal
/// digits.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    // Before the first backslash there is no code.
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            // Only ASCII characters are escaped, so a byte is a character.
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
