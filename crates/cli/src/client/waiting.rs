//! A sign of life on a terminal while something takes longer than a moment.

use std::future::Future;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;
use tokio_util::task::AbortOnDropHandle;

/// How long something may take in silence.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the sign moves.
const TICK: Duration = Duration::from_millis(100);

/// Shows that something is awaited, once it takes long, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    bar: Arc<Mutex<Option<ProgressBar>>>,
    _timer: Option<AbortOnDropHandle<()>>,
}

impl Waiting {
    /// Starts to wait for something.
    pub(crate) fn start(what: &str) -> Self {
        let bar = Arc::new(Mutex::new(None));
        let timer = std::io::stderr().is_terminal().then(|| {
            let (bar, what) = (Arc::clone(&bar), what.to_owned());
            AbortOnDropHandle::new(tokio::spawn(async move {
                tokio::time::sleep(PATIENCE).await;
                let shown = ProgressBar::new_spinner().with_message(what);
                shown.enable_steady_tick(TICK);
                *bar.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
            }))
        });
        Self { bar, _timer: timer }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish_and_clear();
        }
    }
}

/// Waits for something and shows so when it takes long.
pub(crate) async fn wait<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    let _waiting = Waiting::start(what);
    awaited.await
}
