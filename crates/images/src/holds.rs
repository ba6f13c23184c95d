//! Which tree a box stands on. A box outlives the process that made it, so this is a file and not a lock.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use box_core::Result;
use box_wire::Invalid;

use crate::store::Store;

/// Longest name of a holder.
const HOLDER_BYTES_MAX: usize = 200;
/// Longest name of a tree.
const KEY_BYTES_MAX: u64 = 200;

/// Records that a tree is in use. The caller has the lock, so that the tree cannot be removed in between.
pub(crate) fn hold(store: &Store, holder: &str, key: &str) -> Result<()> {
    let place = place(holder)?;
    store.root.remove_file(&place)?;
    // A note that was cut off by a crash of the machine is that of a box which is gone, too.
    let mut file = store.root.create_new_file(&place, 0o600)?;
    std::io::Write::write_all(&mut file, key.as_bytes()).map_err(|error| box_core::Error::io("holding an image", error))
}

pub(crate) fn release(store: &Store, holder: &str) -> Result<()> {
    store.root.remove_file(place(holder)?)
}

pub(crate) fn release_the_dead(store: &Store, is_alive: impl Fn(&str) -> bool) -> Result<()> {
    for name in store.root.list("holds")? {
        if !name.to_str().is_some_and(&is_alive) {
            store.root.remove_file(Path::new("holds").join(name))?;
        }
    }
    Ok(())
}

/// The trees in use.
pub(crate) fn held(store: &Store) -> Result<BTreeSet<String>> {
    let mut keys = BTreeSet::new();
    for name in store.root.list("holds")? {
        match store.root.read_to_end(Path::new("holds").join(name), KEY_BYTES_MAX) {
            Ok(key) => drop(keys.insert(String::from_utf8_lossy(&key).into_owned())),
            Err(box_core::Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(keys)
}

fn place(holder: &str) -> Result<PathBuf> {
    if holder.ends_with('~') || holder.contains('/') || holder.len() > HOLDER_BYTES_MAX {
        return Err(Invalid::new("holder of an image", holder, "one plain file name").into());
    }
    Ok(Path::new("holds").join(holder))
}
