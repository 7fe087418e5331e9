//! The key file: all that a device is, in one file that only its owner may read.
//!
//! It holds the device's private keys, the graph keys by epoch, the public keys of every device
//! ever seen, how far each reader has come, and the counter of records sealed. What grows with
//! the number of records lies in a folder beside it ([`crate::state`]).
//!
//! Written whole to a new file, synced and renamed. A lock file beside it keeps a second process
//! out: two that write in turn would each undo what the other did.

mod contents;

use std::{
    ffi::OsString,
    fmt,
    fs::{File, TryLockError},
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use argala_wire::devices::{DeviceKind, DeviceRef};
use zeroize::Zeroizing;

pub use contents::{Contents, EpochKey, KnownDevice, Seen};

use crate::{crypto::DeviceKeys, error::Error, files};

/// The form of the file that this build writes, and the newest that it reads.
const FORMAT: u32 = 1;
/// How long to wait between two looks at a lock that another process holds.
const LOOK: Duration = Duration::from_millis(50);

/// An open key file, locked for as long as it is open.
pub struct KeyFile {
    /// `None` for keys that live in memory alone: those of a recovery code.
    path: Option<PathBuf>,
    keys: DeviceKeys,
    contents: Contents,
    _lock: Option<File>,
}

fn fault(path: &Path, reason: &'static str) -> Error {
    Error::KeyFile {
        path: path.to_owned(),
        reason,
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

async fn lock(path: &Path, patience: Duration) -> Result<File, Error> {
    let about = |source| Error::Io {
        what: format!("the lock of the key file {}", path.display()),
        source,
    };
    let file = files::lock_file(&beside(path, ".lock")).map_err(about)?;
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if waited < patience => {
                tokio::time::sleep(LOOK).await;
                waited += LOOK;
            }
            Err(TryLockError::WouldBlock) => {
                return Err(fault(path, "another process is using it; try again"));
            }
            Err(TryLockError::Error(source)) => return Err(about(source)),
        }
    }
}

impl KeyFile {
    /// Makes a key file for `device`, with new keys. Where another process holds the lock, waits
    /// for it as long as `patience`.
    ///
    /// # Errors
    /// [`Error::KeyFile`] where there is one already, [`Error::Io`] where it cannot be written.
    pub async fn create(path: &Path, device: DeviceRef, patience: Duration) -> Result<Self, Error> {
        if let Some(folder) = path.parent() {
            files::private_folder(folder)
                .map_err(Error::io(format!("the folder {}", folder.display())))?;
        }
        let lock = lock(path, patience).await?;
        if path.try_exists().map_err(Error::io("the key file"))? {
            return Err(fault(path, "there is one already; it is left as it is"));
        }
        let file = Self::new(device, DeviceKind::Device, DeviceKeys::generate(), |file| {
            file.path = Some(path.to_owned());
            file._lock = Some(lock);
        });
        file.save()?;
        Ok(file)
    }

    /// Keys that live in memory alone.
    #[must_use]
    pub fn in_memory(device: DeviceRef, kind: DeviceKind, keys: DeviceKeys) -> Self {
        Self::new(device, kind, keys, |_| ())
    }

    fn new(
        device: DeviceRef,
        kind: DeviceKind,
        keys: DeviceKeys,
        place: impl FnOnce(&mut Self),
    ) -> Self {
        let mut file = Self {
            path: None,
            contents: Contents::new(FORMAT, device, kind, &keys),
            keys,
            _lock: None,
        };
        place(&mut file);
        file
    }

    /// Opens the key file at `path`. Where another process holds the lock, waits for it as long as
    /// `patience`.
    ///
    /// # Errors
    /// [`Error::KeyFile`] where there is none, where others may read it, where another process
    /// uses it or where it is damaged or of a newer build.
    pub async fn open(path: &Path, patience: Duration) -> Result<Self, Error> {
        // Before the lock, so that a look at a path without a key file leaves nothing behind.
        if !path.try_exists().map_err(Error::io("the key file"))? {
            return Err(fault(path, "there is none yet; `argala register` makes it"));
        }
        let lock = lock(path, patience).await?;
        let contents = read(path)?;
        Ok(Self {
            path: Some(path.to_owned()),
            keys: contents.device_keys(),
            contents,
            _lock: Some(lock),
        })
    }

    /// Whose device it is, without the lock: for those who only look.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for the lock.
    pub fn peek(path: &Path) -> Result<DeviceRef, Error> {
        read(path).map(|contents| contents.device.clone())
    }

    /// Writes the file as it now stands; durable once this returns.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self) -> Result<(), Error> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let bytes = serde_json::to_vec(&self.contents).expect("our own types have a JSON form");
        files::write(path, &Zeroizing::new(bytes)).map_err(Error::io(format!(
            "writing the key file {}",
            path.display()
        )))
    }

    /// The device's own keys.
    #[must_use]
    pub fn keys(&self) -> &DeviceKeys {
        &self.keys
    }

    /// The device that this is.
    #[must_use]
    pub fn device(&self) -> &DeviceRef {
        &self.contents.device
    }

    /// All else that the file holds.
    #[must_use]
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// All else that the file holds, to change and then to [`save`](Self::save).
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.contents
    }

    /// The folder beside the file for what grows with the number of records; `None` for keys in
    /// memory. Made where there is none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn state_folder(&self) -> Result<Option<PathBuf>, Error> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let folder = beside(path, ".state");
        let about = || format!("the folder {}", folder.display());
        files::private_folder(&folder).map_err(Error::io(about()))?;
        Ok(Some(folder))
    }
}

fn read(path: &Path) -> Result<Contents, Error> {
    let about = || format!("the key file {}", path.display());
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(fault(path, "there is none yet; `argala register` makes it"));
        }
        Err(error) => return Err(Error::io(about())(error)),
    };
    if files::is_open_to_others(&file).map_err(Error::io(about()))? {
        return Err(fault(
            path,
            "others may read it; make it yours alone with chmod 600",
        ));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.read_to_end(&mut bytes).map_err(Error::io(about()))?;
    /// All that a newer build surely still says.
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let damaged = |_| fault(path, "it is damaged, or not a key file");
    let Format { format } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if format > FORMAT {
        return Err(fault(path, "a newer version of argala wrote it"));
    }
    serde_json::from_slice(&bytes).map_err(damaged)
}

/// Says whose it is, and nothing that it holds.
impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFile")
            .field("device", &self.contents.device)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use argala_wire::{DeviceId, MemberId};

    use super::*;
    use crate::crypto::GraphKey;

    fn sam() -> DeviceRef {
        DeviceRef {
            member_id: MemberId::new("sam").expect("legal"),
            device_id: DeviceId::new("laptop").expect("legal"),
        }
    }

    fn reason(result: Result<KeyFile, Error>) -> &'static str {
        match result {
            Err(Error::KeyFile { reason, .. }) => reason,
            other => panic!("not about the key file: {other:?}"),
        }
    }

    #[tokio::test]
    async fn what_is_saved_is_read_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("deep").join("keys");
        let graph = "g:acme".parse().expect("legal");
        let mut file = KeyFile::create(&path, sam(), Duration::ZERO)
            .await
            .expect("new");
        let key = GraphKey::generate();
        file.contents_mut().add_key(&graph, 3, key.clone(), 17);
        let public = file.keys().public();
        file.save().expect("saves");
        drop(file);
        let file = KeyFile::open(&path, Duration::ZERO).await.expect("opens");
        assert_eq!(file.keys().public(), public);
        assert_eq!(file.device(), &sam());
        assert_eq!(file.contents().key(&graph, 3), Some(&key));
        assert_eq!(KeyFile::peek(&path).expect("reads"), sam());
    }

    #[tokio::test]
    async fn a_second_process_is_kept_out_until_the_first_is_done() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keys");
        let file = KeyFile::create(&path, sam(), Duration::ZERO)
            .await
            .expect("new");
        assert!(reason(KeyFile::open(&path, Duration::ZERO).await).contains("another process"));
        let waiting = tokio::spawn({
            let path = path.clone();
            async move { KeyFile::open(&path, Duration::from_secs(30)).await }
        });
        drop(file);
        assert!(waiting.await.expect("no panic").is_ok());
        assert!(reason(KeyFile::create(&path, sam(), Duration::ZERO).await).contains("already"));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_file_that_others_may_read_is_refused() {
        use std::{fs, os::unix::fs::PermissionsExt};
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keys");
        drop(
            KeyFile::create(&path, sam(), Duration::ZERO)
                .await
                .expect("new"),
        );
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        for wide in [0o640, 0o604, 0o620, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(wide)).expect("ours");
            assert!(reason(KeyFile::open(&path, Duration::ZERO).await).contains("chmod 600"));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        let file = KeyFile::open(&path, Duration::ZERO).await.expect("opens");
        file.save().expect("saves");
        assert_eq!(mode(&path), 0o600);
        let state = file.state_folder().expect("made").expect("on disk");
        assert_eq!(mode(&state), 0o700);
    }

    #[tokio::test]
    async fn damage_and_newer_builds_are_told_apart() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("keys");
        assert!(reason(KeyFile::open(&path, Duration::ZERO).await).contains("none yet"));
        files::write(&path, b"{\"format\":1}").expect("writes");
        assert!(reason(KeyFile::open(&path, Duration::ZERO).await).contains("damaged"));
        files::write(&path, b"{\"format\":2,\"new\":[]}").expect("writes");
        assert!(reason(KeyFile::open(&path, Duration::ZERO).await).contains("newer"));
    }
}
