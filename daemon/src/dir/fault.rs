//! Operations of a [`super::Dir`] that fail when a test says so, and a record of those that were done.

use std::cell::{Cell, RefCell};
use std::io;

thread_local! {
    static FAILS_AT: Cell<Option<(usize, io::ErrorKind)>> = const { Cell::new(None) };
    static DONE: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// From now on in this thread, the operation with this number fails with this error; forgets what was done.
pub(crate) fn plan(fails_at: Option<(usize, io::ErrorKind)>) {
    FAILS_AT.set(fails_at);
    DONE.take();
}

/// The operations since the last plan, in order; the last one failed if one did.
pub(crate) fn done() -> Vec<&'static str> {
    DONE.with_borrow(Clone::clone)
}

/// An operation that is about to be done.
pub(super) fn point(operation: &'static str) -> io::Result<()> {
    let number = DONE.with_borrow_mut(|done| {
        done.push(operation);
        done.len() - 1
    });
    match FAILS_AT.get() {
        Some((at, error)) if at == number => Err(error.into()),
        _ => Ok(()),
    }
}
