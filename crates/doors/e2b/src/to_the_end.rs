//! What must not be left half done when whoever asked for it leaves.

use box_core::Error;
use box_core::tasks::Start as _;

use super::failure::E2bFailure;
use crate::app::App;

/// Does something to its end, whether or not whoever asked stays. `what` names it where it cannot be told how it ended.
pub(super) async fn to_the_end<T: Send + 'static>(
    app: &App,
    what: &str,
    work: impl Future<Output = Result<T, E2bFailure>> + Send + 'static,
) -> Result<T, E2bFailure> {
    let done = app.tasks().start(work).await;
    done.unwrap_or_else(|error| Err(Error::io(what, std::io::Error::other(error)).into()))
}
