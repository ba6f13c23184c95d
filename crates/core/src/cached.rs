//! Something that is asked for often and read again only after a while, by one reader at a time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

/// A value that is at most so old.
#[derive(Debug)]
pub struct Cached<T> {
    age_max: Duration,
    last: Mutex<Option<(Instant, T)>>,
    reader: Semaphore,
}

impl<T: Clone> Cached<T> {
    /// Nothing yet.
    pub fn new(age_max: Duration) -> Self {
        Self { age_max, last: Mutex::new(None), reader: Semaphore::new(1) }
    }

    /// The value, read when what is here is too old. Whoever comes meanwhile waits for that reading. A failure is not kept.
    pub async fn get<E>(&self, read: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        if let Some(value) = self.fresh() {
            return Ok(value);
        }
        let turn = self.reader.acquire().await;
        if let Some(value) = self.fresh() {
            return Ok(value);
        }
        let read_at = Instant::now();
        let value = read.await?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((read_at, value.clone()));
        drop(turn);
        Ok(value)
    }

    /// What was read last, however old it is.
    pub fn last(&self) -> Option<T> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|(_, value)| value.clone())
    }

    /// Forgets what was read: it is known to have changed.
    pub fn forget(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn fresh(&self) -> Option<T> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(read_at, _)| read_at.elapsed() < self.age_max).map(|(_, value)| value.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_read_once_until_it_is_too_old() {
        let (reads, cached) = (AtomicU32::new(0), Cached::new(Duration::from_secs(1)));
        let read = || async { Ok::<_, ()>(reads.fetch_add(1, Ordering::Relaxed)) };
        let together = tokio::join!(cached.get(read()), cached.get(read()), cached.get(read()));
        assert_eq!(together, (Ok(0), Ok(0), Ok(0)));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(cached.get(read()).await, Ok(0));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cached.get(read()).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_and_not_kept() {
        let cached = Cached::new(Duration::from_secs(1));
        assert_eq!(cached.get(async { Err::<u32, _>("no") }).await, Err("no"));
        assert_eq!(cached.get(async { Ok::<_, &str>(1) }).await, Ok(1));
    }
}
