//! Work that is never left half done.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// Work that is brought to its end whether or not whoever waits for it stays. While somebody waits it runs where they are, which
/// saves two changes of thread; when they leave, it goes on in a tracked task.
#[derive(Debug)]
pub(super) struct ToTheEnd<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    pub(super) work: Option<Pin<Box<F>>>,
    pub(super) tasks: TaskTracker,
}

impl<F> Future for ToTheEnd<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Nobody polls again what is done.
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<F> Drop for ToTheEnd<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.work.take(), Handle::try_current()) {
            self.tasks.spawn_on(work, &runtime);
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
        assert_eq!(ToTheEnd { work: Some(Box::pin(async { 7 })), tasks: tasks.clone() }.await, 7);
        assert!(tasks.is_empty());
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_goes_on() {
        let tasks = TaskTracker::new();
        let (go, wait) = oneshot::channel::<()>();
        let (done, told) = oneshot::channel();
        let work = async move {
            wait.await.unwrap();
            done.send(7).unwrap();
        };
        let mut waiting = Box::pin(ToTheEnd { work: Some(Box::pin(work)), tasks: tasks.clone() });
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
