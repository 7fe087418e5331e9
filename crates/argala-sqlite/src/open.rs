//! Opening a database: the file, its connections and what each is told to do.

use std::{fs, io, path::Path};

use rusqlite::{Connection, OpenFlags};

use crate::{Options, Sqlite, migrate, readers::Readers, writer::Writer};

/// Statements that each connection keeps prepared.
const KEPT_STATEMENTS: usize = 128;

/// Why a database was not opened. Each says so in one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The database is of a newer build than this one.
    #[error(
        "this database was migrated to schema {found} by a newer build; this build knows schemas \
         up to {known}"
    )]
    Newer {
        /// The schema that the database has.
        found: u32,
        /// The newest schema that this build knows.
        known: u32,
    },
    /// It is a database, but not one of the relay's.
    #[error("this file is a database of another program")]
    Foreign,
    /// The file system does not let several connections share a database in WAL mode.
    #[error("the file system cannot keep a database in WAL mode; a local disk can")]
    NoWal,
    /// A migration failed; the database is as it was.
    #[error("the database's tables could not be migrated: {0}")]
    Migrate(#[source] Box<refinery::Error>),
    /// The file cannot be read or written.
    #[error("the database's file cannot be opened: {0}")]
    File(#[from] io::Error),
    /// SQLite failed.
    #[error("the database cannot be opened: {0}")]
    Database(#[from] rusqlite::Error),
}

impl Sqlite {
    /// Opens the database in the file at `path`, which is created where it is missing, its folder
    /// too, and migrated where it is older than this build.
    ///
    /// Blocks for as long as that takes. It needs no runtime; it starts threads, which end with
    /// the value.
    ///
    /// # Errors
    /// [`OpenError`]; the database is then as it was.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        create(path)?;
        let mut writing = connect(path, options)?;
        migrate::check(&writing)?;
        if !keeps_wal(&writing)? {
            return Err(OpenError::NoWal);
        }
        // Full: a commit that has been answered survives a power cut. The two others are the same
        // promise on macOS, where a plain fsync stops at the disk's cache. And what is deleted or
        // blanked is overwritten: a revoked device's wrap would otherwise lie on in what is free.
        writing.execute_batch(
            "PRAGMA synchronous = FULL;
             PRAGMA fullfsync = ON;
             PRAGMA checkpoint_fullfsync = ON;
             PRAGMA foreign_keys = ON;
             PRAGMA secure_delete = ON;
             PRAGMA journal_size_limit = 67108864;
             PRAGMA cache_size = -16384;",
        )?;
        migrate::migrate(&mut writing)?;
        let instance: String =
            writing.query_row("SELECT instance FROM meta", [], |row| row.get(0))?;

        let mut reading = Vec::with_capacity(options.readers.max(1));
        for _ in 0..options.readers.max(1) {
            let connection = connect(path, options)?;
            connection.execute_batch(
                "PRAGMA query_only = ON;
                 PRAGMA cache_size = -8192;",
            )?;
            reading.push(connection);
        }
        Ok(Self {
            instance: instance.into(),
            // In this order, as the fields are dropped: the writer's connection is then the last
            // one, and folds the log into the database as it closes.
            readers: Readers::start(reading, options)?.into(),
            writer: Writer::start(writing, options)?.into(),
        })
    }
}

/// Creates the file for its owner's eyes only: it holds nothing that the relay could read, but
/// who shares with whom.
fn create(path: &Path) -> io::Result<()> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        create_folder(folder)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        // It has not been opened, which matters: closing a second handle to a database would give
        // up the locks that SQLite holds on it in this process.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}

/// Creates a folder and those above it, durably: SQLite sees to what lies inside.
fn create_folder(folder: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        .collect();
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    for above in missing.iter().filter_map(|folder| folder.parent()) {
        // Only Unix opens a folder as a file; the empty path is the folder we are in.
        if cfg!(unix) {
            let here = above.as_os_str().is_empty();
            fs::File::open(if here { Path::new(".") } else { above })?.sync_all()?;
        }
    }
    Ok(())
}

fn connect(path: &Path, options: &Options) -> rusqlite::Result<Connection> {
    // Each connection stays with one thread: no mutex of SQLite's own. Reading ones are opened for
    // writing too, since the log's index is shared memory that a reader must be able to create.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(options.busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(KEPT_STATEMENTS);
    connection.execute_batch(
        "PRAGMA temp_store = MEMORY;
         PRAGMA trusted_schema = OFF;",
    )?;
    rusqlite::vtab::array::load_module(&connection)?;
    Ok(connection)
}

fn keeps_wal(connection: &Connection) -> rusqlite::Result<bool> {
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    Ok(mode == "wal")
}
