//! The checkpoint files of a root: bounded reads, and writes that survive any moment.
//!
//! A write takes the root's lock, then: temporary file in the same directory, fsync; the last valid version
//! becomes `.prev`; rename; fsync of the directory. So at every instant there is a main file, old or
//! new, and a damaged one never replaces a good backup. The lock is one file for all checkpoints of a
//! root, held by the kernel and so gone with its holder; whoever has it may clear away the temporary
//! files of dead writers. Nothing is read or written through a link ([`crate::dir`]).
//!
//! Which checkpoint is whose, and what goes into it, is decided elsewhere.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use protocol::files;
use protocol::ids::Selector;
use uuid::Uuid;

use crate::checkpoint::format::{self, FormatError};
use crate::checkpoint::model::Checkpoint;
use crate::dir::{Dir, Lock, ReadError};

/// How long a writer waits for another one.
const LOCK_PATIENCE: Duration = Duration::from_secs(8);

/// A checkpoint as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) checkpoint: Checkpoint,
    /// Why the main file could not be used, where the backup was.
    pub(crate) backup_reason: Option<String>,
}

/// Why a checkpoint can't be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// There is neither main file nor backup.
    #[error("there is no such checkpoint")]
    Missing,
    /// Neither can be used.
    #[error("`{}` can't be used: {reason}", .path.display())]
    Unusable {
        path: PathBuf,
        reason: String,
        /// Whether a later release wrote it.
        newer: bool,
    },
    /// The directory can't be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// Why the root or its checkpoint directory can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error("`{}` is not a directory (a link or a file stands in its place): move it away", .0.display())]
    NotADirectory(PathBuf),
    #[error("could not {verb} `{}` ({source})", .path.display())]
    Io {
        verb: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// Why a checkpoint could not be written. The one before is untouched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("another process has held the lock `{}` for {} seconds", .0.display(), LOCK_PATIENCE.as_secs())]
    Locked(PathBuf),
    #[error("{0}")]
    Refused(String),
    #[error("could not {verb} `{}` ({source})", .path.display())]
    Io {
        verb: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// What a write did.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) path: PathBuf,
    pub(crate) bytes: usize,
    pub(crate) warnings: Vec<String>,
}

/// A root's checkpoints, opened for one call.
#[derive(Debug)]
pub(crate) struct Store {
    root: PathBuf,
    root_dir: Dir,
    /// `None` while the directory doesn't exist.
    sessions: Option<Dir>,
}

/// An entry of a listing: a checkpoint, or why it can't be read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) selector: Selector,
    pub(crate) stored: Result<Stored, LoadError>,
}

impl Store {
    /// Opens a root.
    pub(crate) fn open(root: &Path) -> Result<Store, DirectoryError> {
        let root_dir = Dir::open(root).map_err(|error| directory_error(root, "open", error))?;
        let sessions = match root_dir.open_dir(files::DIRECTORY) {
            Ok(dir) => Some(dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(directory_error(&root.join(files::DIRECTORY), "open", error)),
        };
        Ok(Store {
            root: root.to_path_buf(),
            root_dir,
            sessions,
        })
    }

    /// The path of a selector's main file.
    pub(crate) fn path(&self, selector: &Selector) -> PathBuf {
        match selector {
            Selector::Session(_) => self.root.join(files::DIRECTORY).join(files::main(selector)),
            Selector::Legacy => self.root.join(files::main(selector)),
        }
    }

    fn dir(&self, selector: &Selector) -> Option<&Dir> {
        match selector {
            Selector::Session(_) => self.sessions.as_ref(),
            Selector::Legacy => Some(&self.root_dir),
        }
    }

    /// Reads a checkpoint, from its backup where the main file can't be used.
    pub(crate) fn load(&self, selector: &Selector) -> Result<Stored, LoadError> {
        let Some(dir) = self.dir(selector) else {
            return Err(LoadError::Missing);
        };
        let main = files::main(selector);
        let reason = match read(dir, &main, &files::backup(&main)) {
            Ok(checkpoint) => {
                return Ok(Stored {
                    checkpoint,
                    backup_reason: None,
                });
            }
            Err(FileError::Format(error)) if error.is_newer() => {
                return Err(LoadError::Unusable {
                    path: self.path(selector),
                    reason: error.to_string(),
                    newer: true,
                });
            }
            Err(error) => error,
        };
        match read(dir, &files::backup(&main), &main) {
            Ok(checkpoint) => Ok(Stored {
                checkpoint,
                backup_reason: Some(reason.to_string()),
            }),
            Err(FileError::Read(ReadError::Missing)) if reason.is_missing() => {
                Err(LoadError::Missing)
            }
            Err(backup) => Err(LoadError::Unusable {
                path: self.path(selector),
                reason: format!("{reason}; its backup neither: {backup}"),
                newer: false,
            }),
        }
    }

    /// Every checkpoint of the root, in no order.
    pub(crate) fn list(&self) -> Result<Vec<Found>, DirectoryError> {
        let mut selectors = Vec::new();
        if let Some(dir) = &self.sessions {
            let path = self.root.join(files::DIRECTORY);
            let names = dir
                .names()
                .map_err(|error| directory_error(&path, "list", error))?;
            selectors.extend(
                names
                    .iter()
                    .filter_map(|name| files::session_of(name))
                    .map(Selector::Session),
            );
            selectors.sort();
            selectors.dedup();
        }
        selectors.push(Selector::Legacy);
        Ok(selectors
            .into_iter()
            .map(|selector| Found {
                stored: self.load(&selector),
                selector,
            })
            .filter(|found| !matches!(found.stored, Err(LoadError::Missing)))
            .collect())
    }

    /// Makes the checkpoint directory where it is missing, takes the lock, and hands out a writer.
    pub(crate) fn write(self) -> Result<Writer, SaveError> {
        let path = self.root.join(files::DIRECTORY);
        let failed = |verb| {
            let path = path.clone();
            move |error| directory_error(&path, verb, error)
        };
        self.root_dir
            .make_dir(files::DIRECTORY)
            .map_err(failed("make"))?;
        let sessions = self
            .root_dir
            .open_dir(files::DIRECTORY)
            .map_err(failed("open"))?;
        let mut warnings = Vec::new();
        if let Err(error) = sessions.make_private() {
            warnings.push(format!(
                "`{}` is open to others and could not be made private ({error}).",
                path.display()
            ));
        }
        let lock = sessions
            .lock(files::LOCK, Instant::now() + LOCK_PATIENCE)
            .map_err(failed("lock"))?
            .ok_or_else(|| SaveError::Locked(path.join(files::LOCK)))?;
        let writer = Writer {
            store: Store {
                sessions: Some(sessions),
                ..self
            },
            warnings,
            _lock: lock,
        };
        writer.tidy();
        Ok(writer)
    }
}

/// A root with its lock held.
#[derive(Debug)]
pub(crate) struct Writer {
    store: Store,
    warnings: Vec<String>,
    _lock: Lock,
}

impl Writer {
    /// The root's checkpoints, which nobody else changes meanwhile.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    fn sessions(&self) -> &Dir {
        self.store
            .sessions
            .as_ref()
            .expect("a writer has opened it")
    }

    /// Removes what dead writers left behind, and makes the directory ignore itself. Neither may
    /// fail a save.
    fn tidy(&self) {
        for dir in [self.sessions(), &self.store.root_dir] {
            for name in dir.names().unwrap_or_default() {
                if name.starts_with(files::TEMPORARY)
                    && let Err(error) = dir.remove(&name)
                {
                    tracing::debug!(%error, "could not remove a temporary file");
                }
            }
        }
        if let Ok(mut file) = self.sessions().create(".gitignore")
            && let Err(error) = file.write_all(b"*\n")
        {
            tracing::debug!(%error, "could not write the directory's .gitignore");
        }
    }

    /// Writes `checkpoint` as the selector's.
    pub(crate) fn save(
        self,
        selector: &Selector,
        checkpoint: &Checkpoint,
    ) -> Result<Written, SaveError> {
        let path = self.store.path(selector);
        let dir = self.store.dir(selector).expect("a writer has opened it");
        let main = files::main(selector);
        let bytes = format::serialize(checkpoint);
        let temporary = format!("{}{}", files::TEMPORARY, Uuid::new_v4().simple());
        let result = replace(dir, &main, &temporary, bytes.as_bytes());
        if let Err((verb, source)) = result {
            // Best effort: the next writer clears it away otherwise.
            let removed = dir.remove(&temporary);
            tracing::debug!(?removed, "a save failed");
            return Err(SaveError::Io { verb, path, source });
        }
        Ok(Written {
            path,
            bytes: bytes.len(),
            warnings: self.warnings,
        })
    }
}

/// The order of a durable write; each step fails with what it was about to do.
fn replace(
    dir: &Dir,
    main: &str,
    temporary: &str,
    bytes: &[u8],
) -> Result<(), (&'static str, io::Error)> {
    let mut file = dir
        .create(temporary)
        .map_err(|e| ("create a temporary file for", e))?;
    file.write_all(bytes).map_err(|e| ("write", e))?;
    file.sync_all().map_err(|e| ("sync", e))?;
    drop(file);
    let backup = files::backup(main);
    match read(dir, main, &backup) {
        Ok(_) => back_up(dir, main, &backup).map_err(|e| ("back up", e))?,
        Err(FileError::Read(ReadError::Missing)) => {}
        Err(_) => set_aside(dir, main).map_err(|e| ("set aside the damaged", e))?,
    }
    dir.rename(temporary, main).map_err(|e| ("replace", e))?;
    dir.sync().map_err(|e| ("sync the directory of", e))
}

/// Makes the main file its own backup, so that there is a main file at every moment: a second name for it, which
/// the main name then leaves.
fn back_up(dir: &Dir, main: &str, backup: &str) -> io::Result<()> {
    let own = dir.inode(main)?;
    if own.is_some() && dir.inode(backup)? == own {
        return Ok(()); // a writer died between this step and its next
    }
    let second = format!("{}{}", files::TEMPORARY, Uuid::new_v4().simple());
    if dir.link(main, &second).is_err() {
        // File systems without hard links: a copy does.
        let bytes = dir
            .read(main, backup, format::MAX_READ)
            .map_err(io::Error::other)?;
        let mut file = dir.create(&second)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
    }
    dir.rename(&second, backup).inspect_err(|_| {
        let removed = dir.remove(&second);
        tracing::debug!(?removed, "a backup failed");
    })
}

/// Keeps a damaged main file under another name, once; a later one is only replaced.
fn set_aside(dir: &Dir, main: &str) -> io::Result<()> {
    let broken = files::broken(main);
    if dir.inode(&broken)?.is_some() {
        return dir.remove(main);
    }
    dir.rename(main, &broken)
}

/// Why a file is no checkpoint.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error(transparent)]
    Read(ReadError),
    #[error(transparent)]
    Format(FormatError),
}

impl FileError {
    fn is_missing(&self) -> bool {
        matches!(self, FileError::Read(ReadError::Missing))
    }
}

fn read(dir: &Dir, name: &str, twin: &str) -> Result<Checkpoint, FileError> {
    let bytes = dir
        .read(name, twin, format::MAX_READ)
        .map_err(FileError::Read)?;
    format::parse(&bytes).map_err(FileError::Format)
}

fn directory_error(path: &Path, verb: &'static str, error: io::Error) -> DirectoryError {
    // What the system says of a link or a file where a directory should be (ELOOP, ENOTDIR).
    let other = path
        .symlink_metadata()
        .is_ok_and(|metadata| !metadata.is_dir());
    if other {
        DirectoryError::NotADirectory(path.to_path_buf())
    } else {
        DirectoryError::Io {
            verb,
            path: path.to_path_buf(),
            source: error,
        }
    }
}
