//! Local files that only their owner may read, written whole or not at all.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::crypto::random;

/// What names of unfinished files begin with. Whoever lists a folder passes over them.
pub const UNFINISHED: &str = ".argala-";

fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// A new file under a name that nobody else uses, in the folder of `beside`.
pub(crate) fn unfinished(beside: &Path) -> io::Result<(PathBuf, File)> {
    let mut name = OsString::from(UNFINISHED);
    for byte in random::<8>() {
        name.push(format!("{byte:02x}"));
    }
    let path = folder(beside).join(name);
    let file = private(OpenOptions::new().read(true).write(true).create_new(true)).open(&path)?;
    Ok((path, file))
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes a rename in `path`'s folder survive a power cut.
fn settle(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(folder(path))?.sync_all()?;
    Ok(())
}

/// Puts a finished file in its place: after a crash at any moment there is the old one or the new
/// one, never half of one.
pub(crate) fn finish(file: &File, from: &Path, to: &Path) -> io::Result<()> {
    file.sync_all()?;
    fs::rename(from, to)?;
    settle(to)
}

/// Writes a file whole or not at all, readable by its owner alone.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (unfinished, mut file) = unfinished(path)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| finish(&file, &unfinished, path));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// Opens a private file to append to it; makes it where there is none.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().append(true).create(true)).open(path)
}

/// Opens a private file that serves as a lock; makes it where there is none.
pub(crate) fn lock_file(path: &Path) -> io::Result<File> {
    private(
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false),
    )
    .open(path)
}

/// Makes a folder that only its owner may enter, and those above it; one that is there is left
/// as it is.
pub(crate) fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Whether anybody but the owner may read or write the file.
pub(crate) fn is_open_to_others(file: &File) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        Ok(file.metadata()?.permissions().mode() & 0o077 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        Ok(false)
    }
}

/// Removes what a process that was killed left unfinished in a folder of ours.
pub(crate) fn remove_unfinished(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A file that is removed when it goes out of scope.
pub(crate) struct Spool {
    pub(crate) path: PathBuf,
}

impl Drop for Spool {
    fn drop(&mut self) {
        // Sealed bytes; the next session removes what cannot be removed now.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_private() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("a");
        write(&path, b"one").expect("writes");
        write(&path, b"two").expect("writes");
        assert_eq!(fs::read(&path).expect("reads"), b"two");
        assert!(!is_open_to_others(&File::open(&path).expect("opens")).expect("told"));
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 1);
        let missing = dir.path().join("none").join("a");
        assert!(write(&missing, b"x").is_err());
    }

    #[test]
    fn what_was_left_unfinished_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let keep = dir.path().join("keep");
        write(&keep, b"x").expect("writes");
        let (left, _) = unfinished(&keep).expect("a file");
        remove_unfinished(dir.path()).expect("removes");
        assert!(keep.exists() && !left.exists());
    }
}
