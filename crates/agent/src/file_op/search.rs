//! Files by their names, and lines by what they say.
//!
//! Both walk a tree that other processes may be changing. Directories are opened relative to the first one and never
//! through a link, so that a walk cannot be led elsewhere; files are opened relative to the directory in which they
//! were found.

mod folder;
mod glob;
mod grep;
mod queue;
mod rules;
mod shape;
#[cfg(test)]
mod tests;
mod walk;

use box_wire::GuestPath;
use box_wire::limits::REPLY_BYTES_MAX;

pub(super) use glob::glob;
pub(super) use grep::{Question, grep};

/// Bytes of text that an answer may hold; the rest of the reply is room for its other fields.
const ANSWER_BYTES_MAX: usize = REPLY_BYTES_MAX - (1 << 20);

/// The path of something below `path`, as the caller knows it.
fn told_path(path: &GuestPath, below: &[u8]) -> String {
    let path = path.as_str().trim_end_matches('/');
    format!("{path}/{}", String::from_utf8_lossy(below))
}

/// Keeps as many of the first items as fit into an answer; returns whether these are all.
fn fit<T>(items: &mut Vec<T>, size: impl Fn(&T) -> usize) -> bool {
    /// Numbers and lengths of one item.
    const FRAME_BYTES: usize = 32;
    let mut bytes = 0;
    let fitting = items.iter().take_while(|item| {
        bytes += size(item) + FRAME_BYTES;
        bytes <= ANSWER_BYTES_MAX
    });
    let count = fitting.count();
    let all = count == items.len();
    items.truncate(count);
    all
}
