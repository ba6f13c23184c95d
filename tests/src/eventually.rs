//! Waiting for what must come to be.

use std::time::Duration;

use anyhow::{Result, bail};

/// How long something that must happen may take. Only a guard against hanging.
const EVENTUALLY: Duration = Duration::from_secs(90);

/// Asks again and again until the answer is there.
pub async fn eventually<T, F: Future<Output = Result<Option<T>>>>(what: &str, mut ask: impl FnMut() -> F) -> Result<T> {
    let asking = async {
        loop {
            if let Some(found) = ask().await? {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(EVENTUALLY, asking).await {
        Ok(found) => found,
        Err(_) => bail!("{what} did not come to be within {} s", EVENTUALLY.as_secs()),
    }
}
