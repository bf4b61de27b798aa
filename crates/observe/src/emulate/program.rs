//! Loading of files under QEMU.

use colocate_files::{LargeFile, open_code};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Loaded form of a command: executable and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loadable {
    /// Executable: the program itself, or the interpreter of a script.
    pub executable: PathBuf,
    /// Arguments, `argv[0]` included.
    pub argv: Vec<OsString>,
}

/// Reason why QEMU cannot load a file.
#[derive(Debug, Error)]
pub enum NotLoadable {
    /// Unreadable file.
    #[error("cannot read {}: {}", .0.display(), .1)]
    Read(PathBuf, #[source] io::Error),
    /// File of another architecture.
    #[error(
        "{} is a program for {}, expected one for {}; use another backend",
        .0.display(), .1, std::env::consts::ARCH
    )]
    Foreign(PathBuf, String),
    /// Neither an ELF executable nor a script with an interpreter.
    #[error("{} is not a program: expected an ELF executable or a script that begins with #!", .0.display())]
    NotAProgram(PathBuf),
    /// Set-user-ID or set-group-ID file, without effect under QEMU.
    #[error(
        "{} runs with its owner's or group's rights, which it has not got under QEMU; run as that \
         user, or use the backend sample", .0.display()
    )]
    Privileged(PathBuf),
    /// Chain of interpreters that is too long.
    #[error("{} needs more than {MOST_INTERPRETERS} interpreters", .0.display())]
    TooManyInterpreters(PathBuf),
}

/// Limit of the scripts before an executable: the kernel's, `exec_binprm`.
const MOST_INTERPRETERS: usize = 5;
/// Length limit of a script's first line: the kernel's `BINPRM_BUF_SIZE`.
const FIRST_LINE_B: usize = 256;

/// Resolves `path`, called with `argv`, to an executable.
pub fn inspect(path: &Path, argv: &[OsString]) -> Result<Loadable, NotLoadable> {
    let mut loadable = Loadable { executable: path.to_owned(), argv: argv.to_vec() };
    // One round more than interpreters: the last one reads the executable.
    for _ in 0..=MOST_INTERPRETERS {
        let (head, metadata) = read_head(&loadable.executable)
            .map_err(|source| NotLoadable::Read(loadable.executable.clone(), source))?;
        let Some(line) = head.strip_prefix(b"#!") else {
            check_rights(&loadable.executable, &metadata)?;
            check_executable(&loadable.executable, &head)?;
            return Ok(loadable);
        };
        loadable =
            interpreted(&loadable, line).ok_or(NotLoadable::NotAProgram(loadable.executable))?;
    }
    Err(NotLoadable::TooManyInterpreters(path.to_owned()))
}

fn read_head(path: &Path) -> io::Result<(Vec<u8>, Metadata)> {
    let LargeFile { file, metadata } = open_code(path)?;
    let mut head = Vec::new();
    file.take(FIRST_LINE_B as u64).read_to_end(&mut head)?;
    Ok((head, metadata))
}

/// Runs `script` under the interpreter named in its first line, after `#!`.
///
/// The kernel passes the rest of the line as one argument, then the script's path for its name.
fn interpreted(script: &Loadable, line: &[u8]) -> Option<Loadable> {
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let interpreter = line[..end].to_vec();
    let argument = line[end..].trim_ascii().to_vec();
    if interpreter.is_empty() {
        return None;
    }
    let interpreter = super::word(interpreter);
    let mut argv = vec![interpreter.clone()];
    if !argument.is_empty() {
        argv.push(super::word(argument));
    }
    argv.push(script.executable.clone().into());
    argv.extend(script.argv.iter().skip(1).cloned());
    Some(Loadable { executable: interpreter.into(), argv })
}

fn check_rights(path: &Path, metadata: &Metadata) -> Result<(), NotLoadable> {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2010; // without the group's execute bit it means something else
    let mode = metadata.permissions().mode();
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    // A file of this user and group gains no rights.
    let gains = (mode & SETUID != 0 && metadata.uid() != uid)
        || (mode & SETGID == SETGID && metadata.gid() != gid);
    if gains { Err(NotLoadable::Privileged(path.to_owned())) } else { Ok(()) }
}

/// Machine numbers in `e_machine` (System V ABI).
const X86_64: u16 = 62;
const AARCH64: u16 = 183;

fn check_executable(path: &Path, head: &[u8]) -> Result<(), NotLoadable> {
    let not_a_program = NotLoadable::NotAProgram(path.to_owned());
    // e_ident, then e_type and e_machine.
    let Some(&[0x7f, b'E', b'L', b'F', class, order, .., low, high]) = head.first_chunk::<20>()
    else {
        return Err(not_a_program);
    };
    let little_endian = match order {
        1 => true,
        2 => false,
        _ => return Err(not_a_program),
    };
    let machine = u16::from_le_bytes(if little_endian { [low, high] } else { [high, low] });
    let bits = match class {
        1 => 32,
        2 => 64,
        _ => return Err(not_a_program),
    };
    let expected = if cfg!(target_arch = "aarch64") { AARCH64 } else { X86_64 };
    if machine == expected && bits == 64 && little_endian {
        return Ok(());
    }
    let found = format!("{bits}-bit {}", name_of(machine));
    Err(NotLoadable::Foreign(path.to_owned(), found))
}

fn name_of(machine: u16) -> String {
    match machine {
        3 => "x86".into(),
        21 => "POWER".into(),
        40 => "Arm".into(),
        X86_64 => "x86_64".into(),
        AARCH64 => "aarch64".into(),
        243 => "RISC-V".into(),
        other => format!("processor (ELF machine {other})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_script_is_loaded_as_the_kernel_does() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let line = format!("#! \t{}  -x two words \nrest", own.display());
        let path = script(folder.path(), "script", line.as_bytes());
        let found = inspect(&path, &words(&["name", "a", "b"])).unwrap();
        assert_eq!(found.executable, own);
        let (own, path) = (own.to_str().unwrap(), path.to_str().unwrap());
        assert_eq!(found.argv, words(&[own, "-x two words", path, "a", "b"]));
    }

    #[test]
    fn scripts_of_scripts_end_somewhere() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("self");
        script(folder.path(), "self", format!("#!{}\n", path.display()).as_bytes());
        let error = inspect(&path, &words(&["self"])).unwrap_err();
        assert!(matches!(error, NotLoadable::TooManyInterpreters(..)), "{error}");
    }

    #[test]
    fn other_files_are_refused_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let mut elf = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        elf.truncate(200);
        let check = |name: &str, content: &[u8], expected: &str| {
            let path = script(folder.path(), name, content);
            let error = inspect(&path, &words(&["x"])).unwrap_err().to_string();
            let error = error.replace(&format!("{}/", folder.path().display()), "");
            assert!(error.contains(expected), "{error}");
        };
        check("text", b"hello", "text is not a program");
        check("empty", b"", "empty is not a program");
        check("no-interpreter", b"#!\n", "no-interpreter is not a program");
        check("cut", &elf[..19], "cut is not a program");
        elf[4] = 1; // class: 32 bits
        elf[18..20].copy_from_slice(&[3, 0]); // machine: 80386
        check("old", &elf, "old is a program for 32-bit x86, expected one for");
        elf[4] = 2;
        elf[18..20].copy_from_slice(&[243, 0]);
        check("riscv", &elf, "riscv is a program for 64-bit RISC-V");
    }
}
