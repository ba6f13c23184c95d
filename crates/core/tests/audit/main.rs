//! The audit log as its users see it, and as those who tamper with it do.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod crash;
mod keys;
mod scratch;
mod tampering;
mod writing;
