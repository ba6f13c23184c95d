//! The backend against a scripted provider that fails on demand: what is left, what is tried again, and what callers
//! see.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod double;
mod lives;
mod processes;
mod refusals;
mod scene;
mod streams;
