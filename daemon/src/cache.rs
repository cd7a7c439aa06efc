//! sled: blob hashes by path and signature, across the daemon's restarts.
//!
//! Derived data alone: whatever is wrong with it, it is set aside and begun anew, and where another daemon has it
//! open there is none. Nothing is flushed by a timer, so that an idle daemon sleeps.

use std::path::Path;

use gix::hash::Kind as HashKind;

use crate::dir::Signature;

/// Changes with what the entries mean.
const SCHEMA: &[u8] = b"1";
/// More entries than this, and it is begun anew.
const MAX_ENTRIES: usize = 500_000;
/// What sled may keep in memory, in bytes.
const MEMORY: u64 = 2 * 1024 * 1024;

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache(sled::Db);

impl Cache {
    /// Opens it in the state directory; `None` where that can't be.
    pub(crate) fn open(state: &Path) -> Option<Cache> {
        let path = state.join("cache");
        if let Err(error) = protocol::os::make_private_dir(state) {
            tracing::warn!(%error, "no cache of hashes");
            return None;
        }
        let cache = match open(&path) {
            Ok(db) => db,
            Err(error) if is_locked(&error) => {
                tracing::info!("another daemon has the cache of hashes; this one does without");
                return None;
            }
            Err(error) => {
                tracing::warn!(%error, "the cache of hashes is begun anew");
                std::fs::remove_dir_all(&path).ok()?;
                open(&path).ok()?
            }
        };
        let sound = cache
            .get("schema")
            .ok()
            .flatten()
            .is_some_and(|schema| schema == SCHEMA);
        if !sound || cache.len() > MAX_ENTRIES {
            cache.clear().ok()?;
            cache.insert("schema", SCHEMA).ok()?;
        }
        Some(Cache(cache))
    }

    /// The hash of what is at `path` as long as it has this signature, if it is of this kind.
    pub(crate) fn get(&self, path: &Path, signature: &Signature, kind: HashKind) -> Option<String> {
        let value = self.0.get(key(path)).ok()??;
        let (known, id): (Signature, String) = serde_json::from_slice(&value).ok()?;
        (known == *signature && id.len() == kind.len_in_hex()).then_some(id)
    }

    /// Remembers a hash.
    pub(crate) fn put(&self, path: &Path, signature: &Signature, id: &str) {
        let stored = serde_json::to_vec(&(signature, id))
            .map_err(|error| error.to_string())
            .and_then(|value| {
                self.0
                    .insert(key(path), value)
                    .map_err(|error| error.to_string())
            });
        if let Err(reason) = stored {
            tracing::debug!(reason, "a hash could not be remembered");
        }
    }
}

fn open(path: &Path) -> sled::Result<sled::Db> {
    sled::Config::new()
        .path(path)
        .cache_capacity(MEMORY)
        .flush_every_ms(None)
        .open()
}

fn is_locked(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(error) if error.kind() == std::io::ErrorKind::WouldBlock
        || error.to_string().contains("could not acquire lock"))
}

fn key(path: &Path) -> Vec<u8> {
    let mut key = b"p".to_vec();
    key.extend_from_slice(path.as_os_str().as_encoded_bytes());
    key
}
