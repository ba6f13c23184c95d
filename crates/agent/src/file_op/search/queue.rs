//! FileOp that the threads of a walk share.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Batches that wait at most. A thread with more searches them itself, which bounds memory and open directories.
const BATCHES_MAX: usize = 64;

/// Folders to read and batches of files to look into.
#[derive(Debug)]
pub(super) struct Queue<Folder, Batch> {
    state: Mutex<State<Folder, Batch>>,
    news: Condvar,
}

#[derive(Debug)]
struct State<Folder, Batch> {
    /// The last one is read first: a walk goes down before it goes on, and so has few of them waiting.
    folders: Vec<Folder>,
    batches: VecDeque<Batch>,
    /// Threads that work and may still find more.
    busy: usize,
    stopped: bool,
}

/// A piece of work.
#[derive(Debug)]
pub(super) enum Job<Folder, Batch> {
    Folder(Folder),
    Batch(Batch),
}

impl<Folder, Batch> Queue<Folder, Batch> {
    pub(super) fn new(first: Folder) -> Self {
        let state = State { folders: vec![first], batches: VecDeque::new(), busy: 0, stopped: false };
        Self { state: Mutex::new(state), news: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<Folder, Batch>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece of work; nothing when all is done or stopped. Must be followed by [`Self::done`].
    pub(super) fn take(&self) -> Option<Job<Folder, Batch>> {
        let mut state = self.state();
        loop {
            if state.stopped {
                return None;
            }
            let batch = state.batches.pop_front().map(Job::Batch);
            if let Some(job) = batch.or_else(|| state.folders.pop().map(Job::Folder)) {
                state.busy += 1;
                return Some(job);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Says that a piece of work is done.
    pub(super) fn done(&self) {
        let mut state = self.state();
        state.busy -= 1;
        if state.busy == 0 {
            self.news.notify_all();
        }
    }

    /// Adds folders.
    pub(super) fn add(&self, folders: &mut Vec<Folder>) {
        if !folders.is_empty() {
            self.state().folders.append(folders);
            self.news.notify_all();
        }
    }

    /// Offers a batch to the others; gives it back when there are enough.
    pub(super) fn offer(&self, batch: Batch) -> Result<(), Batch> {
        let mut state = self.state();
        if state.batches.len() >= BATCHES_MAX {
            return Err(batch);
        }
        state.batches.push_back(batch);
        drop(state);
        self.news.notify_one();
        Ok(())
    }

    /// Ends all work.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        state.folders.clear();
        state.batches.clear();
        drop(state);
        self.news.notify_all();
    }
}
