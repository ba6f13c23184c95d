//! Images from everywhere: good ones, hostile ones, and those whose maker is killed on the way.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod archives;
mod crashes;
mod hostile;
mod layers;
mod registry;
mod support;
mod tar_files;
mod unused;
