//! A guest's file system: a cpio archive that the kernel unpacks into memory.

use anyhow::{Context as _, bail};
use cpio::newc;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// Folders in which the loader searches libraries, after the folders named after the architecture.
const LIBRARY_FOLDERS: [&str; 5] = ["usr/local/lib", "lib64", "usr/lib64", "lib", "usr/lib"];

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_777;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Files of the archive, by path in the guest without the leading slash.
///
/// Parent folders are added with a file.
#[derive(Default)]
pub struct Initramfs {
    entries: BTreeMap<PathBuf, CpioEntry>,
    /// Architecture of all programs, as Debian's library folder. `None` before the first program.
    folder: Option<&'static str>,
}

struct CpioEntry {
    mode: u32,
    content: Vec<u8>,
    device: (u32, u32),
}

impl Initramfs {
    /// The files of every guest: busybox from the package folder `root`, and `/init`.
    ///
    /// # Errors
    /// If busybox cannot be read.
    pub fn new(root: &Path, init: &str) -> anyhow::Result<Self> {
        let mut this = Self::default();
        let busybox = read(&existing(root, &["bin/busybox", "usr/bin/busybox"])?)?;
        this.folder = linked(&busybox).ok().map(|linked| linked.folder);
        this.file("bin/busybox", 0o755, busybox);
        this.link("bin/sh", "busybox");
        this.file("init", 0o755, init.into());
        // The kernel opens /dev/console before /init can mount a devtmpfs.
        let console = CpioEntry { mode: CHARACTER_DEVICE, content: Vec::new(), device: (5, 1) };
        this.insert("dev/console".into(), console);
        for folder in
            ["proc", "sys", "run", "tmp", "var/tmp", "root", "sbin", "usr/sbin", "usr/bin"]
        {
            this.folder(folder);
        }
        this.file("etc/passwd", 0o644, "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n".into());
        this.file("etc/group", 0o644, "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n".into());
        Ok(this)
    }

    /// Adds a file with these contents and permission bits.
    pub fn file(&mut self, path: impl Into<PathBuf>, permissions: u32, content: Vec<u8>) {
        self.insert(path.into(), CpioEntry { mode: FILE | permissions, content, device: (0, 0) });
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: impl Into<PathBuf>, target: &str) {
        self.insert(path.into(), CpioEntry { mode: LINK, content: target.into(), device: (0, 0) });
    }

    fn folder(&mut self, path: impl Into<PathBuf>) {
        self.insert(path.into(), CpioEntry { mode: FOLDER, content: Vec::new(), device: (0, 0) });
    }

    fn insert(&mut self, path: PathBuf, entry: CpioEntry) {
        // The kernel creates no missing parent folders.
        let above: Vec<_> = path.ancestors().skip(1).map(Path::to_path_buf).collect();
        for folder in above.into_iter().filter(|folder| !folder.as_os_str().is_empty()) {
            let entry = CpioEntry { mode: FOLDER, content: Vec::new(), device: (0, 0) };
            self.entries.entry(folder).or_insert(entry);
        }
        self.entries.insert(path, entry);
    }

    /// Adds the program at `from` as `/usr/bin/NAME`, with its loader and libraries.
    ///
    /// Loader and libraries are searched below `root` (`/` for the host's).
    ///
    /// # Errors
    /// If a file cannot be read, a library is missing, or the architecture differs.
    pub fn program(&mut self, name: &str, from: &Path, root: &Path) -> anyhow::Result<()> {
        let content = read(from)?;
        let permissions = std::fs::metadata(from)?.permissions().mode() & 0o777;
        self.libraries(&content, root).with_context(|| from.display().to_string())?;
        self.file(Path::new("usr/bin").join(name), permissions, loaded(content));
        Ok(())
    }

    fn libraries(&mut self, content: &[u8], root: &Path) -> anyhow::Result<()> {
        // Not ELF: a script has no libraries.
        if !content.starts_with(&elf::ELFMAG) {
            return Ok(());
        }
        let Linked { loader, libraries, folder } = linked(content)?;
        let others = *self.folder.get_or_insert(folder);
        if folder != others {
            bail!("expected a program like the guest's, for {others}, found one for {folder}");
        }
        if let Some(loader) = loader {
            let from = existing(root, &[loader.trim_start_matches('/'), &usr(&loader)])?;
            self.file(loader.trim_start_matches('/'), 0o755, read(&from)?);
        }
        for library in libraries {
            // The loader searches /lib last, so one folder serves all architectures.
            let path = Path::new("lib").join(&library);
            if self.entries.contains_key(&path) {
                continue;
            }
            let folders = [format!("lib/{folder}"), format!("usr/lib/{folder}")];
            let folders = folders.iter().map(String::as_str).chain(LIBRARY_FOLDERS);
            let places: Vec<_> = folders.map(|folder| format!("{folder}/{library}")).collect();
            let from = existing(root, &places.iter().map(String::as_str).collect::<Vec<_>>())?;
            let content = read(&from)?;
            self.file(path, 0o755, content.clone());
            self.libraries(&content, root)?;
        }
        Ok(())
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn write(&self, mut to: impl Write) -> anyhow::Result<()> {
        for (number, (path, entry)) in self.entries.iter().enumerate() {
            let builder = newc::Builder::new(path.to_str().context("a path that is not UTF-8")?)
                .ino(u32::try_from(number)? + 1)
                .mode(entry.mode)
                .rdev_major(entry.device.0)
                .rdev_minor(entry.device.1);
            let mut file = builder.write(&mut to, u32::try_from(entry.content.len())?);
            file.write_all(&entry.content)?;
            file.finish()?;
        }
        newc::trailer(to)?.flush()?;
        Ok(())
    }
}

/// The program without symbols and debugging information, which follow the loaded segments.
///
/// They are most of a debug build, and would take the guest's memory twice.
fn loaded(mut content: Vec<u8>) -> Vec<u8> {
    if let Some(end) = loaded_end(&content) {
        content.truncate(end);
        // Fields of the cut section table: e_shoff, and e_shnum with e_shstrndx (elf(5)).
        content[40..48].fill(0);
        content[60..64].fill(0);
    }
    content
}

/// File offset at which the last segment of the program headers ends.
fn loaded_end(content: &[u8]) -> Option<usize> {
    let file = ElfFile64::<Endianness>::parse(content).ok()?;
    let endian = file.endian();
    let headers = file.elf_program_headers();
    let ends = headers.iter().map(|header| header.p_offset(endian) + header.p_filesz(endian));
    let end = usize::try_from(ends.max()?).ok()?;
    // The header, in which fields are cleared, takes 64 bytes.
    (64..content.len()).contains(&end).then_some(end)
}

/// Dynamic linking of an executable or a library: PT_INTERP and DT_NEEDED.
struct Linked {
    loader: Option<String>,
    libraries: Vec<String>,
    /// Debian's name of the library folder of its architecture.
    folder: &'static str,
}

fn linked(content: &[u8]) -> anyhow::Result<Linked> {
    let file = ElfFile64::<Endianness>::parse(content).context("cannot read its ELF header")?;
    let endian = file.endian();
    let folder = match file.elf_header().e_machine(endian) {
        elf::EM_X86_64 => "x86_64-linux-gnu",
        elf::EM_AARCH64 => "aarch64-linux-gnu",
        other => bail!("expected a program for x86-64 or aarch64, found ELF machine {other}"),
    };
    let mut linked = Linked { loader: None, libraries: Vec::new(), folder };
    for header in file.elf_program_headers() {
        if let Some(loader) = header.interpreter(endian, content)? {
            linked.loader = Some(String::from_utf8(loader.into())?);
        }
    }
    let sections = file.elf_section_table();
    if let Some((entries, strings)) = sections.dynamic(endian, content)? {
        let strings = sections.strings(endian, content, strings)?;
        for entry in entries.iter().filter(|entry| entry.d_tag(endian) == elf::DT_NEEDED) {
            linked.libraries.push(String::from_utf8(entry.string(endian, strings)?.into())?);
        }
    }
    // Some libraries list the loader in DT_NEEDED; PT_INTERP gives its path.
    linked.libraries.retain(|library| !library.starts_with("ld-linux"));
    Ok(linked)
}

/// `/lib64/x` is `/usr/lib64/x` where the two folders are one.
fn usr(path: &str) -> String {
    format!("usr{path}")
}

/// The first of `paths` that is a file below `root`; links are resolved below `root`.
fn existing(root: &Path, paths: &[&str]) -> anyhow::Result<PathBuf> {
    let found = paths.iter().find_map(|path| followed(root, Path::new(path)));
    found.with_context(|| format!("{}: expected one of {}", root.display(), paths.join(", ")))
}

/// The file at `path` with `root` as `/`; only links in the last component are resolved.
fn followed(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut path = path.to_path_buf();
    // The kernel's own limit (MAXSYMLINKS).
    for _ in 0..40 {
        let whole = root.join(&path);
        let Ok(target) = std::fs::read_link(&whole) else {
            return whole.is_file().then_some(whole);
        };
        let joined = path.parent().unwrap_or(Path::new("")).join(target);
        path = normal(&joined);
    }
    None
}

fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    normal
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use colocate_testing::need;
    use colocate_testing::skip::{Missing, installed};
    use std::process::{Command, Output, Stdio};

    /// Runs a program with `input`.
    fn peer(program: &str, words: &[&str], folder: &Path, input: &[u8]) -> Result<Output, Missing> {
        installed(program)?;
        let mut command = Command::new(program);
        command.args(words).current_dir(folder).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("runs");
        child.stdin.take().expect("piped").write_all(input).expect("taken");
        let output = child.wait_with_output().expect("waited for");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(output)
    }

    fn archive() -> Vec<u8> {
        let mut initramfs = Initramfs::default();
        initramfs.file("a/b/odd.txt", 0o640, b"seven b".to_vec());
        initramfs.file("a/empty", 0o755, Vec::new());
        initramfs.link("a/link", "b/odd.txt");
        let mut archive = Vec::new();
        initramfs.write(&mut archive).expect("written");
        archive
    }

    #[test]
    fn cpio_lists_what_was_put_in() {
        let output = need!(peer("cpio", &["-t", "--quiet"], Path::new("/"), &archive()));
        let listed = String::from_utf8(output.stdout).expect("text");
        assert_eq!(listed, "a\na/b\na/b/odd.txt\na/empty\na/link\n");
    }

    #[test]
    fn cpio_unpacks_what_was_put_in() {
        let folder = tempfile::tempdir().expect("a folder");
        need!(peer("cpio", &["-i", "--quiet"], folder.path(), &archive()));
        let at = |path| folder.path().join(path);
        assert_eq!(std::fs::read(at("a/b/odd.txt")).expect("there"), b"seven b");
        assert_eq!(std::fs::read_link(at("a/link")).expect("a link"), Path::new("b/odd.txt"));
        let mode = std::fs::metadata(at("a/empty")).expect("there").permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
    }

    /// The files' names of the libraries and the loader that `ldd` finds.
    fn listed_by_ldd(program: &str) -> std::collections::BTreeSet<String> {
        let output = Command::new("ldd").arg(program).output().expect("ldd");
        let text = String::from_utf8(output.stdout).expect("text");
        let names = text.lines().filter_map(|line| line.split_whitespace().next());
        let files = names.filter(|name| !name.starts_with("linux-vdso"));
        files.map(|name| name.rsplit('/').next().expect("a name").to_owned()).collect()
    }

    #[test]
    fn libraries_are_those_that_ldd_finds() {
        let us = std::env::current_exe().expect("our own path");
        for program in ["/bin/sh", "/usr/bin/env", us.to_str().expect("UTF-8")] {
            let mut initramfs = Initramfs::default();
            initramfs.program("it", Path::new(program), Path::new("/")).expect("readable");
            let files = initramfs.entries.iter().filter(|(path, entry)| {
                entry.mode & 0o170_000 == FILE && !path.starts_with("usr/bin")
            });
            let names =
                files.map(|(path, _)| path.file_name().expect("a name").to_string_lossy().into());
            assert_eq!(
                names.collect::<std::collections::BTreeSet<String>>(),
                listed_by_ldd(program),
                "{program}"
            );
        }
    }

    #[test]
    fn a_program_without_its_symbols_runs_the_same() {
        let us = std::fs::read(std::env::current_exe().expect("our own path")).expect("readable");
        let small = loaded(us.clone());
        assert!(small.len() < us.len() / 4 * 3, "{} of {}", small.len(), us.len());
        let folder = tempfile::tempdir().expect("a folder");
        let (written, path) = (folder.path().join("written"), folder.path().join("us"));
        std::fs::write(&written, small).expect("written");
        std::fs::set_permissions(&written, std::fs::Permissions::from_mode(0o755))
            .expect("allowed");
        // By another process: a child that another test starts just then inherits what we have open
        // for writing, and a program that is open for writing cannot be executed.
        let copied = Command::new("cp").args([&written, &path]).status().expect("cp runs");
        assert!(copied.success());
        let list =
            |program: &Path| Command::new(program).arg("--list").output().expect("runs").stdout;
        assert_eq!(list(&path), list(&std::env::current_exe().expect("our own path")));
    }

    #[test]
    fn a_program_for_another_processor_gets_one_line() {
        let mut initramfs = Initramfs { folder: Some("pdp11-linux-gnu"), ..Initramfs::default() };
        let error = initramfs.program("sh", Path::new("/bin/sh"), Path::new("/")).expect_err("x");
        let line = error.root_cause().to_string();
        let expected = "expected a program like the guest's, for pdp11-linux-gnu, found one for ";
        assert!(line.starts_with(expected), "{line}");
    }

    #[test]
    fn what_is_no_program_for_a_guest_gets_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let line = |content: &[u8]| {
            let path = folder.path().join("it");
            std::fs::write(&path, content).expect("written");
            let error = Initramfs::default().program("it", &path, Path::new("/"));
            error.map_err(|error| format!("{:#}", error.root_cause()))
        };
        assert_eq!(line(b"#!/bin/sh\n"), Ok(()));
        assert!(line(b"\x7fELF").is_err());
        assert!(line(b"\x7fELF\x01\x01\x01").is_err());
    }
}
