//! FileOp that is never left half done.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// FileOp that is brought to its end whether or not whoever waits for it stays. While somebody waits it runs where they are, which
/// saves two changes of thread; when they leave, it goes on in a tracked task.
pub(super) struct ToTheEnd<T: Send + 'static> {
    op: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    tasks: TaskTracker,
}

impl<T: Send + 'static> ToTheEnd<T> {
    /// The work continues in one of these tasks when its caller stops waiting.
    pub(super) fn new(op: impl Future<Output = T> + Send + 'static, tasks: TaskTracker) -> Self {
        Self { op: Some(Box::pin(op)), tasks }
    }
}

impl<T: Send + 'static> Future for ToTheEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Nobody polls again what is done.
        let Some(op) = &mut self.op else { return Poll::Pending };
        let polled = op.as_mut().poll(context);
        if polled.is_ready() {
            self.op = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for ToTheEnd<T> {
    fn drop(&mut self) {
        if let (Some(op), Ok(runtime)) = (self.op.take(), Handle::try_current()) {
            self.tasks.spawn_on(op, &runtime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn what_is_waited_for_is_answered() {
        let tasks = TaskTracker::new();
        assert_eq!(ToTheEnd::new(async { 7 }, tasks.clone()).await, 7);
        assert!(tasks.is_empty());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_goes_on() {
        let tasks = TaskTracker::new();
        let (go, wait) = oneshot::channel::<()>();
        let (done, told) = oneshot::channel();
        let op = async move {
            wait.await.unwrap();
            done.send(7).unwrap();
        };
        let mut waiting = Box::pin(ToTheEnd::new(op, tasks.clone()));
        assert!(futures_poll(&mut waiting).is_pending());
        drop(waiting);
        go.send(()).unwrap();
        assert_eq!(told.await.unwrap(), 7);
        tasks.close();
        tasks.wait().await;
    }

    fn futures_poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(std::task::Waker::noop()))
    }
}
