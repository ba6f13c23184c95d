//! Starts work in tasks.
//!
//! Every type that tokio's `spawn` is called with costs some 8 kB of machine code, for both of its schedulers. The work is boxed
//! here, so that there is one type for each result and not one for each call.

use std::pin::Pin;

use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A set of tasks in which work can be started.
pub trait Start<T> {
    /// What the caller holds of the task.
    type Handle;

    /// Starts the work in a task of its own.
    fn start(self, work: impl Future<Output = T> + Send + 'static) -> Self::Handle;
}

impl<T: Send + 'static> Start<T> for &TaskTracker {
    type Handle = JoinHandle<T>;

    fn start(self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.spawn(Box::pin(work) as Boxed<T>)
    }
}

impl<T: Send + 'static> Start<T> for &mut JoinSet<T> {
    type Handle = AbortHandle;

    fn start(self, work: impl Future<Output = T> + Send + 'static) -> AbortHandle {
        self.spawn(Box::pin(work) as Boxed<T>)
    }
}

/// Starts work in a task that ends with its handle.
pub(crate) fn owned<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(tokio::spawn(Box::pin(work) as Boxed<T>))
}

/// Runs system calls on a thread where waiting harms no task.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
    tokio::task::spawn_blocking(work)
}
