//! End to end, through the real binaries: one promise to the user a file.

#[path = "../support/mod.rs"]
mod support;

mod main_job; // save, edit, load: the brief names what changed
