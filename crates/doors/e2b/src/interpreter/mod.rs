//! The code interpreter: cells of code in contexts that keep what they know, and lines of JSON about what they do.
//!
//! A context is a managed process of the sandbox's session that runs a small program of ours (`programs/`), which needs nothing
//! but the interpreter of its language. It prints what cells print, and tells what is more than text in frames ([`scanner`]).

mod answer;
mod cell;
mod contexts;
mod door;
mod event;
mod language;
mod line;
mod listener;
#[cfg(test)]
mod program_tests;
mod scanner;
mod turns;

pub(super) use door::routes;
pub(crate) use turns::CellTurns;
