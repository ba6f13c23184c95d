//! Tests that cannot run here say so.

/// Reports that the running test is skipped: what is missing, and how to get it.
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    eprintln!("skipped: {}::{}: {reason}", env!("CARGO_PKG_NAME"), thread.name().unwrap_or("unnamed"));
}
