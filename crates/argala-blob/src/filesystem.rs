//! Objects as files.

use std::{
    fs,
    io::{self, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use argala_core::{
    StoreError, StoreResult,
    ports::{BlobStore, ByteStream, ListedObject, ObjectKey},
};
use argala_wire::Timestamp;
use async_trait::async_trait;
use futures_util::StreamExt;
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt},
    task::spawn_blocking,
};
use tokio_util::io::ReaderStream;

/// Bytes that are read at a time, and the most that a reader holds.
const PIECE: usize = 64 * 1024;
/// The folder of files that are still being written; no instance id has such a name.
const INCOMING: &str = "incoming";
/// How those files end.
const UNFINISHED: &str = ".part";

/// Keeps each object in a file of its own, below one folder.
///
/// An object is written under another name, forced to the disk and then renamed, so that what can
/// be read is always whole, and stays after a power cut. Folders are for their owner's eyes only
/// on Unix, and so are the files.
///
/// Several processes may use one folder, on one machine or (as far as its renames and locks are
/// to be relied on) on a network file system.
#[derive(Debug)]
pub struct FilesystemBlobs {
    root: PathBuf,
}

impl FilesystemBlobs {
    /// Uses the folder `root`, which is created where it is missing, and removes what a process
    /// that died left half written in it. Blocks meanwhile.
    ///
    /// # Errors
    /// Where the folder cannot be created, read or written.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        let incoming = root.join(INCOMING);
        create_folders(&incoming)?;
        for entry in fs::read_dir(&incoming)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            if name.to_string_lossy().ends_with(UNFINISHED) && !is_being_written(&path)? {
                remove(&path)?;
            }
        }
        Ok(Self { root })
    }

    /// The file of an object: two levels down, so that no folder has too many.
    fn path(&self, key: &ObjectKey) -> PathBuf {
        let (instance, object) = parts(key);
        let shelf = object.get(..2).unwrap_or(object);
        self.root.join(instance).join(shelf).join(object)
    }

    /// The file of an object while it is being written.
    fn unfinished(&self, key: &ObjectKey) -> PathBuf {
        let (instance, object) = parts(key);
        let name = format!("{instance}-{object}{UNFINISHED}");
        self.root.join(INCOMING).join(name)
    }
}

/// The two parts of a key, both lower-case hex by its construction.
fn parts(key: &ObjectKey) -> (&str, &str) {
    key.as_str().split_once('/').unwrap_or(("", key.as_str()))
}

/// Creates a folder and those above it, durably.
fn create_folders(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .collect();
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    for folder in missing {
        sync_folder(folder.parent().unwrap_or(folder))?;
    }
    Ok(())
}

/// Makes durable which names a folder holds.
fn sync_folder(folder: &Path) -> io::Result<()> {
    // Elsewhere a folder cannot be opened as a file, and the rename alone is as durable as it
    // gets.
    if cfg!(unix) {
        // The empty path is the folder we are in.
        let here = folder.as_os_str().is_empty();
        fs::File::open(if here { Path::new(".") } else { folder })?.sync_all()?;
    }
    Ok(())
}

/// Whether a process is writing the file: it then holds a lock on it, which ends with the process.
fn is_being_written(path: &Path) -> io::Result<bool> {
    match fs::File::open(path) {
        Ok(file) => Ok(matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock))),
        // Finished or removed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Removes a file; whether there was one.
fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A file that is being written; removed when this is dropped, unless it has been renamed.
struct Unfinished {
    path: PathBuf,
    renamed: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A file that is left nevertheless goes with the object, or when the folder is next
        // opened.
        if !self.renamed
            && let Err(error) = remove(&self.path)
        {
            tracing::warn!(%error, "a half written object could not be removed");
        }
    }
}

fn begin(path: PathBuf) -> io::Result<(fs::File, Unfinished)> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path)?;
    let unfinished = Unfinished {
        path,
        renamed: false,
    };
    file.lock()?;
    Ok((file, unfinished))
}

fn finish(mut unfinished: Unfinished, path: &Path) -> io::Result<()> {
    let shelf = path.parent().unwrap_or(path);
    create_folders(shelf)?;
    fs::rename(&unfinished.path, path)?;
    unfinished.renamed = true;
    // The shelf and what it stands in. They may be new, or so new that whoever created them has
    // not come this far yet; where they are not, this costs nothing.
    for folder in shelf.ancestors().take(3) {
        sync_folder(folder)?;
    }
    Ok(())
}

/// The names in a folder, sorted; none where there is no such folder.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        // A name that is no text is none of ours.
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

/// What there is below the folder of one database. Shelves in their order hold keys in theirs, for
/// a shelf's name is how its keys begin.
fn list(
    folder: &Path,
    instance: &str,
    after: Option<&ObjectKey>,
    limit: usize,
) -> io::Result<Vec<ListedObject>> {
    let after = after.map(|key| parts(key).1);
    let mut listed = Vec::new();
    for shelf in names(folder)? {
        if after.is_some_and(|after| after.get(..2).unwrap_or(after) > shelf.as_str()) {
            continue;
        }
        let shelf = folder.join(shelf);
        // Whatever else somebody has put there.
        if !shelf.is_dir() {
            continue;
        }
        for name in names(&shelf)? {
            if listed.len() >= limit {
                return Ok(listed);
            }
            if after.is_some_and(|after| after >= name.as_str()) {
                continue;
            }
            let Some(key) = ObjectKey::parse(&format!("{instance}/{name}")) else {
                continue;
            };
            let metadata = match fs::metadata(shelf.join(name)) {
                Ok(metadata) => metadata,
                // Deleted meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let age = metadata.modified()?.duration_since(UNIX_EPOCH);
            let millis = age.map_or(0, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
            listed.push(ListedObject {
                key,
                size: metadata.len(),
                modified_at: Timestamp::from_millis(millis),
            });
        }
    }
    Ok(listed)
}

fn failed(context: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    move |error| StoreError::unavailable(context, error)
}

async fn blocking<T: Send + 'static>(
    context: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> StoreResult<T> {
    spawn_blocking(work)
        .await
        .map_err(|error| StoreError::internal(context, error))?
        .map_err(failed(context))
}

#[async_trait]
impl BlobStore for FilesystemBlobs {
    async fn put(&self, key: &ObjectKey, size: u64, mut body: ByteStream) -> StoreResult<()> {
        let path = self.unfinished(key);
        let (file, unfinished) = blocking("begin an object's file", move || begin(path)).await?;
        let mut file = File::from_std(file);
        let mut arrived: u64 = 0;
        let short_or_long = || {
            StoreError::unavailable(
                "take an object's bytes from their sender",
                "there are not as many as were announced",
            )
        };
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(failed("take an object's bytes from their sender"))?;
            arrived += piece.len() as u64;
            if arrived > size {
                return Err(short_or_long());
            }
            file.write_all(&piece)
                .await
                .map_err(failed("write an object's file"))?;
        }
        if arrived < size {
            return Err(short_or_long());
        }
        file.flush()
            .await
            .map_err(failed("write an object's file"))?;
        file.sync_all()
            .await
            .map_err(failed("force an object's file to the disk"))?;
        let path = self.path(key);
        blocking("finish an object's file", move || finish(unfinished, &path)).await
    }

    async fn get(
        &self,
        key: &ObjectKey,
        range: Option<Range<u64>>,
    ) -> StoreResult<Option<ByteStream>> {
        let mut file = match File::open(self.path(key)).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("open an object's file")(error)),
        };
        let range = match range {
            Some(range) => {
                file.seek(SeekFrom::Start(range.start))
                    .await
                    .map_err(failed("read an object's file"))?;
                range
            }
            None => 0..u64::MAX,
        };
        let wanted = file.take(range.end.saturating_sub(range.start));
        Ok(Some(Box::pin(ReaderStream::with_capacity(wanted, PIECE))))
    }

    async fn delete(&self, key: &ObjectKey) -> StoreResult<()> {
        let (path, unfinished) = (self.path(key), self.unfinished(key));
        blocking("remove an object's file", move || {
            remove(&unfinished)?;
            if remove(&path)?
                && let Some(shelf) = path.parent()
            {
                sync_folder(shelf)?;
            }
            Ok(())
        })
        .await
    }
    async fn list(
        &self,
        instance: &str,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> StoreResult<Vec<ListedObject>> {
        // A name that no database has would be a path of somebody's choice.
        if ObjectKey::parse(&format!("{instance}/0")).is_none() {
            return Ok(Vec::new());
        }
        let (folder, instance) = (self.root.join(instance), instance.to_owned());
        let after = after.cloned();
        blocking("list a folder of objects", move || {
            list(&folder, &instance, after.as_ref(), limit)
        })
        .await
    }
}
