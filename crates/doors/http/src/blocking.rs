//! Work that waits for disks.

use crate::failure::Failure;

/// Runs it where no other task has to wait for it.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    box_core::tasks::blocking(work).await.map_err(|error| Failure::internal(error.to_string()))
}
