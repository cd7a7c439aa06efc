//! Exactly once, across the death of a daemon.
//!
//! A shim sends again what was not answered when its daemon died, and that save may have landed. So before a
//! save replaces a file, a note is left beside the socket: the request's key, a hash of the file
//! to come, and the answer. The notes survive the process, not the machine, which is all they have to;
//! so they are not synced.
//!
//! A note is *pending* until somebody who holds the root's lock looks at the file again: if that is as the note
//! says it became, the save had landed and the note is *done*; else it never happened and the note goes.
//! Every writer resolves the pending note of its checkpoint first, then looks for a done note of its
//! own request. That holds for daemons and embedded processes alike, and for one that was frozen
//! with a request in hand while another one did it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use protocol::os;
use protocol::socket::Place;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::sha256;
use crate::tools::Answer;

/// How long an answer is kept: a frozen daemon may thaw with the request days later.
const KEPT: Duration = Duration::from_secs(48 * 3600);

/// Identifies a request across connections of one shim. Clients reuse ids, so the line itself belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestKey([u8; 32]);

impl RequestKey {
    /// The key of a line that a connection sent under an id.
    pub(crate) fn new(connection: Uuid, id: &Value, line: &[u8]) -> RequestKey {
        let mut hash = Sha256::new();
        hash.update(connection.as_bytes());
        hash.update(id.to_string());
        hash.update([0]);
        hash.update(line);
        RequestKey(hash.finalize().into())
    }

    /// A session id to mint for this request: the same when it is sent again.
    pub(crate) fn minted(self) -> Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

/// The notes of all saves that go through one socket's place.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    /// `None` where none can be kept: then a save that is sent again may be applied again.
    directory: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    key: String,
    after: String,
    answer: Answer,
}

impl Notes {
    /// Opens the notes beside the socket and forgets old ones.
    pub(crate) fn open(place: Option<&Place>) -> Notes {
        let directory = place.map(Place::applied);
        let directory = directory.filter(|directory| match prepare(directory) {
            Ok(()) => true,
            Err(reason) => {
                tracing::warn!(%reason, "no notes of saves can be kept");
                false
            }
        });
        let notes = Notes { directory };
        notes.forget_old();
        notes
    }

    fn pending(&self, checkpoint: &Path) -> Option<PathBuf> {
        let name = sha256::digest(checkpoint.as_os_str().as_encoded_bytes());
        Some(self.directory.as_ref()?.join("pending").join(name))
    }

    fn done(&self, key: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join("done").join(key))
    }

    /// Decides what became of the last save of this checkpoint, whose file is now `current`. True if it had
    /// landed without anybody having said so yet.
    pub(crate) fn resolve(&self, checkpoint: &Path, current: Option<&[u8]>) -> bool {
        let Some(pending) = self.pending(checkpoint) else {
            return false;
        };
        let Some(note) = read(&pending) else {
            return false;
        };
        let current = current.map(sha256::digest);
        let landed = current.as_ref() == Some(&note.after);
        let result = match self.done(&note.key).filter(|_| landed) {
            Some(done) => fs::rename(&pending, done),
            None => fs::remove_file(&pending),
        };
        if let Err(error) = result {
            tracing::warn!(%error, "a note of a save could not be resolved");
        }
        landed
    }

    /// The answer to this request, if it has been done.
    pub(crate) fn answer(&self, key: RequestKey) -> Option<Answer> {
        let done = self.done(&sha256::hex(&key.0))?;
        Some(read(&done)?.answer)
    }

    /// Notes what is about to be done. A save goes on without it.
    pub(crate) fn announce(
        &self,
        key: RequestKey,
        checkpoint: &Path,
        after: &[u8],
        answer: &Answer,
    ) {
        let Some(pending) = self.pending(checkpoint) else {
            return;
        };
        let note = Note {
            key: sha256::hex(&key.0),
            after: sha256::digest(after),
            answer: answer.clone(),
        };
        if let Err(error) = write(&pending, &note) {
            tracing::warn!(%error, "a save could not be noted");
        }
    }

    fn forget_old(&self) {
        let Some(directory) = &self.directory else {
            return;
        };
        let now = SystemTime::now();
        let entries = ["pending", "done"]
            .into_iter()
            .filter_map(|part| fs::read_dir(directory.join(part)).ok())
            .flatten()
            .filter_map(Result::ok);
        for entry in entries {
            let age = entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .ok()
                .and_then(|modified| now.duration_since(modified).ok());
            if age.is_some_and(|age| age > KEPT)
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::debug!(%error, "an old note could not be removed");
            }
        }
    }
}

/// Makes the directory, for this user alone.
fn prepare(directory: &Path) -> Result<(), String> {
    for path in [
        directory,
        &directory.join("pending"),
        &directory.join("done"),
    ] {
        os::make_private_dir(path).map_err(|error| format!("`{}`: {error}", path.display()))?;
    }
    os::check_private(directory, &os::user()).map_err(|error| error.to_string())
}

/// An unreadable note is none.
fn read(path: &Path) -> Option<Note> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// In one step, so that nobody reads half a note.
fn write(path: &Path, note: &Note) -> io::Result<()> {
    let temporary = path.with_extension(Uuid::new_v4().simple().to_string());
    fs::write(&temporary, serde_json::to_vec(note)?)?;
    fs::rename(&temporary, path)
}
