//! The backend against a provider of paper that fails as it is told: what is left, what is tried again, and what callers are told.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod double;
mod lives;
mod processes;
mod refusals;
mod scene;
mod streams;
