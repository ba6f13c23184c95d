//! Removal of data that no name refers to and no box uses.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use box_core::{Error, Result};
use rustix::fs::FileType;

use crate::fault;
use crate::store::{LockMode, Store};
use crate::{holds, record, tar_file};

/// Removes what is unused, and says how many bytes that were; an error while images are made.
pub(crate) fn collect(store: &Arc<Store>) -> Result<u64> {
    try_collect(store)?.ok_or_else(|| Error::Conflict {
        what: "image garbage collection must wait: an image is being pulled or imported".to_owned(),
        fix: "try again when it is done".to_owned(),
    })
}

/// The same; nothing while images are made.
pub(crate) fn try_collect(store: &Arc<Store>) -> Result<Option<u64>> {
    let Some(_quiet) = store.try_quiet()? else { return Ok(None) };
    let _lock = store.lock(LockMode::Alone)?;
    let named = record::named(store)?;
    let manifests = named.iter().map(|record| record.manifest.digits().to_owned()).collect();
    let blobs = named.iter().flat_map(|record| &record.layers).map(|layer| layer.digits().to_owned()).collect();
    let mut trees = holds::held(store)?;
    trees.extend(named.iter().map(|record| record::tree_key(&record.tree)));
    trees.extend(tar_file::trees_in_place(store)?);
    // What names the parts goes first, so that nothing is ever named that is not there.
    let mut freed = remove_others(store, "manifests", &manifests)?;
    freed += remove_others(store, "trees", &trees)?;
    freed += remove_others(store, "blobs", &blobs)?;
    Ok(Some(freed))
}

fn remove_others(store: &Store, directory: &str, kept: &BTreeSet<String>) -> Result<u64> {
    let mut freed = 0;
    for name in store.root.list(directory)? {
        if name.to_str().is_some_and(|name| kept.contains(name)) {
            continue;
        }
        let path = Path::new(directory).join(name);
        freed += size(store, &path)?;
        store.root.remove_tree(&path)?;
        fault::point("image_tree_removed");
    }
    Ok(freed)
}

/// Bytes that something occupies. A file with two names is counted twice, which is a little too much.
fn size(store: &Store, path: &Path) -> Result<u64> {
    let (mut bytes, mut places) = (0, vec![path.to_owned()]);
    while let Some(place) = places.pop() {
        let Some(found) = store.root.look(&place)? else { continue };
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            places.extend(store.root.list(&place)?.into_iter().map(|name| place.join(name)));
        } else {
            bytes += u64::try_from(found.st_size).unwrap_or(0);
        }
    }
    Ok(bytes)
}
