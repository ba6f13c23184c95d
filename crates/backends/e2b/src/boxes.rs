//! The boxes that this process made or found again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::{Error, Result};
use box_wire::{BoxId, Invalid};

use crate::sandbox::LiveSandbox;

/// The boxes that this process made or found again. Never locked while something is waited for.
#[derive(Debug, Default)]
pub(crate) struct Boxes(Mutex<HashMap<BoxId, Slot>>);

#[derive(Debug, Clone)]
enum Slot {
    /// It is being created.
    Taken,
    /// It is there.
    Live(Arc<LiveSandbox>),
}

impl Boxes {
    /// Takes an id for a box that is about to be made.
    pub(crate) fn take(&self, id: &BoxId) -> Result<()> {
        match self.lock().entry(id.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Slot::Taken);
                Ok(())
            }
            Entry::Occupied(_) => Err(Error::from(Invalid::new("id", id.as_str(), "an id that no box has"))),
        }
    }

    pub(crate) fn insert(&self, id: &BoxId, live: Arc<LiveSandbox>) {
        self.lock().insert(id.clone(), Slot::Live(live));
    }

    pub(crate) fn find(&self, id: &BoxId) -> Option<Arc<LiveSandbox>> {
        match self.lock().get(id)? {
            Slot::Live(live) => Some(Arc::clone(live)),
            Slot::Taken => None,
        }
    }

    /// Forgets a box.
    pub(crate) fn remove(&self, id: &BoxId) -> Option<Arc<LiveSandbox>> {
        match self.lock().remove(id)? {
            Slot::Live(live) => Some(live),
            Slot::Taken => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoxId, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
