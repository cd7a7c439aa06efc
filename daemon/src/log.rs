//! The daemon's log: standard error, our own events alone, and never more than [`MAX_LOG`] of it in a file.
//!
//! The protocol library would log what clients send, so only this crate's events are written, and those name
//! tools, roots and durations, never what a checkpoint says. A panic is logged by its place: its message may quote.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};

use protocol::state;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::config::Config;
use crate::os;

/// The most that the log may hold, in bytes; what it held before is kept once, beside it.
const MAX_LOG: u64 = 1024 * 1024;

/// Lines that may wait for a reader of standard error.
const WAITING: usize = 256;

/// Starts it. Beside a client, whose pipe may have no reader, only what is wrong is told, and nothing waits for it.
pub(crate) fn start(config: &Config, beside_client: bool) {
    let filter = config
        .env
        .get(protocol::env::LOG)
        .and_then(|filter| filter.to_str())
        .and_then(|filter| EnvFilter::try_new(filter).ok())
        .unwrap_or_else(|| EnvFilter::new(if beside_client { "warn" } else { "info" }));
    let ours = filter_fn(|metadata| metadata.target().starts_with("daemon"));
    let log = Log {
        file: config.state().map(|state| state.join(state::LOG_FILE)),
        teller: beside_client.then(teller),
    };
    let layer = fmt::layer()
        .with_writer(log)
        .with_ansi(false)
        .with_filter(filter)
        .with_filter(ours);
    tracing_subscriber::registry().with(layer).init();
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        tracing::error!("a bug: panicked at {}", place.unwrap_or_default());
    }));
}

/// A thread that writes to standard error, however long that takes.
fn teller() -> SyncSender<Vec<u8>> {
    let (teller, lines) = sync_channel::<Vec<u8>>(WAITING);
    std::thread::spawn(move || {
        for line in lines {
            let _written = io::stderr().write_all(&line);
        }
    });
    teller
}

/// Standard error, which a shim has made the log file.
struct Log {
    file: Option<PathBuf>,
    teller: Option<SyncSender<Vec<u8>>>,
}

impl Log {
    /// Keeps what is there aside and begins again, once it is too much.
    fn bound(&self) -> io::Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        if os::size_behind_stderr(path)?.is_none_or(|size| size < MAX_LOG) {
            return Ok(());
        }
        std::fs::copy(path, path.with_extension("log.old"))?;
        // It was opened for appending, so the next line is its first.
        File::options().write(true).open(path)?.set_len(0)
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Stderr<'a>;

    fn make_writer(&'a self) -> Stderr<'a> {
        // A log that can't be bounded is still better than none.
        drop(self.bound());
        Stderr(self.teller.as_ref())
    }
}

struct Stderr<'a>(Option<&'a SyncSender<Vec<u8>>>);

impl Write for Stderr<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0 {
            // One line too many is lost, and no call.
            Some(teller) => drop(teller.try_send(bytes.to_vec())),
            // A full disk or a closed terminal must not stop the daemon.
            None => return Ok(io::stderr().write(bytes).unwrap_or(bytes.len())),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
