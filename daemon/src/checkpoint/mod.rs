//! The pure core: what a checkpoint is and what follows from it.
//!
//! Nothing here knows a file, a clock, git or a socket: values come in, values go out, so every rule can be
//! tested with plain data. The way of a save through these modules, and of a load:
//!
//! - [`input`]: arguments as a model wrote them → a [`input::SaveRequest`], forgiving over form,
//! - [`redact`]: the only maker of [`redact::Clean`], without which nothing is stored,
//! - [`facts`]: what was found out about the work tree, as plain values,
//! - [`merge`]: request + facts + the earlier checkpoint → the new [`model::Checkpoint`],
//! - [`limits`]: the lengths of fields and the 64 KiB of a file,
//! - [`mod@format`]: a checkpoint as bytes and back,
//! - [`drift`]: a checkpoint against the facts of now,
//! - [`brief`]: a checkpoint and its drift as Markdown for the next session,
//! - [`listing`]: the checkpoints of a project to choose from,
//! - [`text`]: making foreign text inert, and ages,
//! - [`time`]: instants in UTC with milliseconds.

pub mod brief;
pub mod drift;
pub mod facts;
pub mod format;
pub mod input;
pub mod limits;
pub mod listing;
pub mod merge;
pub mod model;
pub mod redact;
pub mod text;
pub mod time;

#[cfg(test)]
mod tests;
