//! Asking again while the provider is busy.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::http;
use crate::limits::{REQUEST_TIMEOUT, RETRY_DEADLINE, RETRY_WAIT_MIN};

/// Sends a request, and again while the provider says that it is busy or cannot be connected to. What was sent and not answered is not
/// sent again: it may have been done.
pub(crate) async fn send(make: impl Fn() -> RequestBuilder) -> Result<Response, Failure> {
    send_stream(|| make().timeout(REQUEST_TIMEOUT)).await
}

/// The same for a request whose answer may go on for as long as it likes.
pub(crate) async fn send_stream(make: impl Fn() -> RequestBuilder) -> Result<Response, Failure> {
    let deadline = Instant::now() + RETRY_DEADLINE;
    let mut wait = RETRY_WAIT_MIN;
    loop {
        let (failure, asked) = match make().send().await {
            Ok(answer) if is_busy(&answer) => {
                let (asked, status) = (retry_after(&answer), answer.status().as_u16());
                (Failure::of_answer(status, &http::body(answer).await?), asked)
            }
            Ok(answer) => return Ok(answer),
            Err(error) if error.is_connect() => (error.into(), None),
            Err(error) => return Err(error.into()),
        };
        let pause = asked.unwrap_or(wait);
        let is_worth_it = failure.may_pass() || matches!(failure, Failure::Broken(_));
        if !is_worth_it || Instant::now() + pause > deadline {
            return Err(failure);
        }
        tokio::time::sleep(pause).await;
        wait *= 2;
    }
}

fn is_busy(answer: &Response) -> bool {
    let is_final = answer.headers().get("should-retry").is_some_and(|value| value == "false");
    matches!(answer.status().as_u16(), 429 | 502 | 503 | 504) && !is_final
}

/// How long the provider asks us to wait.
fn retry_after(answer: &Response) -> Option<Duration> {
    let text = answer.headers().get("retry-after")?.to_str().ok()?;
    text.trim().parse().ok().map(Duration::from_secs)
}
