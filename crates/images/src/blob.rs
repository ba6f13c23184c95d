//! Layers on their way into the cache: counted, hashed, and kept only if they are what they were said to be.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use box_core::Error;

use crate::digest::{Digest, Digesting};
use crate::failure::Failure;
use crate::fault;
use crate::store::{Store, Work};

/// Name of the blob in its place on the way.
const PARTIAL: &str = "blob";

/// A blob that is being written.
#[derive(Debug)]
pub(crate) struct BlobWriter {
    store: Arc<Store>,
    work: Work,
    file: File,
    digesting: Digesting,
    left: u64,
}

impl BlobWriter {
    /// Begins a blob of which the size is known.
    pub(crate) fn begin(store: &Arc<Store>, size_bytes: u64) -> Result<Self, Failure> {
        let work = store.work()?;
        let file = store.root.create_new_file(work.join(PARTIAL), 0o600)?;
        Ok(Self { store: Arc::clone(store), work, file, digesting: Digesting::default(), left: size_bytes })
    }

    /// Adds to it.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or("a layer is larger than its manifest says")?;
        self.digesting.update(bytes);
        Ok(self.file.write_all(bytes).map_err(|error| Error::io("storing a layer", error))?)
    }

    /// Keeps the blob if it is complete and has the expected digest, if one is given; returns its digest.
    pub(crate) fn finish(self, expected: Option<&Digest>) -> Result<Digest, Failure> {
        if self.left > 0 {
            return Err(format!("a layer broke off; {} bytes of it are missing", self.left).into());
        }
        let digest = self.digesting.finish();
        if let Some(expected) = expected.filter(|expected| **expected != digest) {
            return Err(format!("a layer is not what it was said to be: {expected} was expected, {digest} came").into());
        }
        self.file.sync_all().map_err(|error| Error::io("storing a layer", error))?;
        fault::point("image_blob_written");
        if !self.store.has(Store::blob(&digest))? {
            self.work.keep(PARTIAL, &Store::blob(&digest))?;
        }
        fault::point("image_blob_kept");
        Ok(digest)
    }
}

/// Copies a blob from a file of the host's.
pub(crate) fn copy(
    store: &Arc<Store>,
    mut source: impl Read,
    size_bytes: u64,
    expected: Option<&Digest>,
) -> Result<Digest, Failure> {
    let _turn = expected.map(|digest| store.turn_now(crate::store::Turn::Blob, digest.digits())).transpose()?;
    if let Some(expected) = expected
        && store.has(Store::blob(expected))?
    {
        return Ok(expected.clone());
    }
    let mut writer = BlobWriter::begin(store, size_bytes)?;
    let mut buffer = vec![0; 1 << 17];
    loop {
        let length = source.read(&mut buffer).map_err(|error| format!("it cannot be read: {error}"))?;
        if length == 0 {
            return writer.finish(expected);
        }
        writer.write(&buffer[..length])?;
    }
}
