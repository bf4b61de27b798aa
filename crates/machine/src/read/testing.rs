//! A saved sysfs that a test writes and changes.

use super::Sysfs;
use std::path::{Path, PathBuf};

/// A folder with `proc` and `sys` inside, removed at the end.
pub(crate) struct Tree(PathBuf);

impl Tree {
    /// Files of this content; `name` is the test's.
    pub fn of(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("colocate-{name}-{}", std::process::id()));
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
