//! A saved sysfs that a test writes and changes.

use super::Sysfs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder with `proc` and `sys` inside, removed at the end.
pub(crate) struct Tree(PathBuf);

impl Tree {
    /// Files of this content, in a folder of their own.
    pub fn of(name: &str, files: &[(&str, &str)]) -> Self {
        // Two tests may make the same machine at the same time.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = format!("colocate-{name}-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(folder);
        let tree = Self(root);
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    /// Writes one file of `/sys/devices/system`.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.0.join("sys/devices/system").join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn files(&self) -> Sysfs {
        Sysfs::at(&self.0)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
