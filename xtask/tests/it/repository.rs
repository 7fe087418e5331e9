//! Where the repository is and what it tracks.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// What git tracks, as paths below the root; of an unpacked source archive, every file.
pub(crate) fn tracked() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output();
    let mut files: Vec<PathBuf> = match listed {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout)
            .unwrap()
            .split_terminator('\0')
            .map(PathBuf::from)
            // Tracked but deleted in the work tree.
            .filter(|path| root().join(path).is_file())
            .collect(),
        _ => walk(&root()),
    };
    files.sort();
    assert!(
        files.contains(&PathBuf::from("Cargo.toml")),
        "no file was found to look at"
    );
    files
}

/// The text of a tracked file; nothing for one that is not UTF-8.
pub(crate) fn text(path: &Path) -> Option<String> {
    String::from_utf8(std::fs::read(root().join(path)).unwrap()).ok()
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        let left_out = directory == root()
            && [".git", "target", "data"]
                .iter()
                .any(|name| entry.file_name() == *name);
        if kind.is_dir() && !left_out {
            files.extend(walk(&path));
        } else if kind.is_file() {
            files.push(path.strip_prefix(root()).unwrap().to_path_buf());
        }
    }
    files
}
