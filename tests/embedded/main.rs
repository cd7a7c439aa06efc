//! The contract once more, without a daemon: each client is served by a process of its own.

#![expect(clippy::unwrap_used, reason = "a test that lacks what it needs fails")]

#[expect(
    dead_code,
    unused_imports,
    reason = "the harness serves the other tests as well"
)]
#[path = "../support/mod.rs"]
mod support;

/// Whether the clients are to do without a daemon.
pub(crate) const EMBEDDED: bool = true;

#[path = "../e2e/drift.rs"]
mod drift;
#[path = "../e2e/files.rs"]
mod files;
#[path = "../e2e/hostile.rs"]
mod hostile;
#[path = "../e2e/input.rs"]
mod input;
#[path = "../e2e/protocol.rs"]
mod protocol;
#[path = "../e2e/roots.rs"]
mod roots;
#[path = "../e2e/status.rs"]
mod status;
#[path = "../e2e/whose.rs"]
mod whose;
