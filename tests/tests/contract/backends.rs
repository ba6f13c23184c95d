//! The backends that the contract is held against.

use anyhow::{Context, Result};
use box_core::BackendName;
use box_tests::suite::skip;
use box_tests::{Ground, engines};

/// A fresh ground of a backend. Where its engine is not there, the case is skipped with the reason; native is never skipped.
pub(crate) async fn open(backend: BackendName) -> Result<Ground> {
    if let Some(reason) = engines::why_not(backend) {
        return skip(format!("no {backend} here: {reason}"));
    }
    Ground::open(backend).await.context("opening the backend")
}
