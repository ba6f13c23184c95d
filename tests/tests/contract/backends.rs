//! The backends that the contract is held against.

use std::future::Future;
use std::pin::Pin;

use anyhow::Result;
use box_tests::Ground;

/// A ground in the making.
type Opening = Pin<Box<dyn Future<Output = Result<Ground>> + Send>>;

/// One backend: its name and how a fresh ground of it is made.
pub(crate) struct BackendUnderTest {
    pub(crate) name: &'static str,
    pub(crate) open: fn() -> Opening,
}

/// All backends that can be tested here. Native is never skipped.
pub(crate) fn backends() -> Vec<BackendUnderTest> {
    vec![BackendUnderTest { name: "native", open: || Box::pin(Ground::native()) }]
}
