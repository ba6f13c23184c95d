//! The tree of an image, made once from its layers.

use std::path::Path;
use std::sync::Arc;

use box_core::{Error, Progress};
use tokio_util::sync::CancellationToken;

use crate::ImageLimits;
use crate::digest::{Digest, DigestingReader};
use crate::failure::Failure;
use crate::fault;
use crate::layer::Layer;
use crate::manifest::Config;
use crate::measured::{Measure, Measured};
use crate::record::tree_place;
use crate::store::{Store, Turn};
use crate::tree::check_landmarks;
use crate::unpack::{Marks, Unpacker};

/// The directory of an incomplete tree.
const PARTIAL: &str = "tree";

/// Layers, and the tree to make of them.
pub(crate) struct Building<'a> {
    /// The layers as they are stored, from the lowest up, with their sizes.
    pub(crate) layers: &'a [(Digest, u64)],
    /// Has the digests of the uncompressed layers.
    pub(crate) config: &'a Config,
    /// Whether it has to look like a root file system, because nothing else says that it is one.
    pub(crate) is_plain: bool,
    pub(crate) limits: &'a ImageLimits,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) progress: &'a Progress,
}

impl Building<'_> {
    /// Makes the tree unless it exists, and returns its name.
    pub(crate) fn build(&self, store: &Arc<Store>) -> Result<Digest, Failure> {
        let tree = self.config.chain();
        let _turn = store.turn_now(Turn::Tree, tree.digits())?;
        if !store.has(tree_place(&tree))? {
            self.unpack(store, &tree_place(&tree))?;
        }
        fault::point("image_tree_kept");
        Ok(tree)
    }

    fn unpack(&self, store: &Arc<Store>, place: &Path) -> Result<(), Failure> {
        let work = store.work()?;
        store.root.make_directory(work.join(PARTIAL), 0o755)?;
        let tree = store.root.below(work.join(PARTIAL))?;
        let limits = self.limits;
        let mut unpacker = Unpacker::new(&tree, Marks::Obeyed, limits.entries_max, limits.unpacked_bytes_max)?;
        let total: u64 = self.layers.iter().map(|(_, size)| size).sum();
        let mut done_bytes = 0;
        let unpacking =
            |done_bytes| Measure { progress: self.progress, part: "unpacking", done_bytes, total_bytes: total };
        for ((stored, size), contents) in self.layers.iter().zip(&self.config.layers) {
            self.unpack_layer(store, stored, contents, &mut unpacker, unpacking(done_bytes))?;
            done_bytes += size;
        }
        if self.is_plain {
            check_landmarks(tree.directory())?;
        }
        // The name says that the tree is whole, so the tree has to be on disk before the name.
        rustix::fs::syncfs(tree.directory()).map_err(|errno| Error::io("storing an unpacked image", errno))?;
        fault::point("image_tree_unpacked");
        unpacking(total).tell(0);
        Ok(work.keep(PARTIAL, place)?)
    }

    fn unpack_layer(
        &self,
        store: &Store,
        stored: &Digest,
        contents: &Digest,
        unpacker: &mut Unpacker<'_>,
        measure: Measure<'_>,
    ) -> Result<(), Failure> {
        let damaged =
            |error: std::io::Error| Failure::from(format!("layer {} cannot be unpacked: {error}", stored.short()));
        let file = Measured::new(store.root.open(Store::blob(stored))?, measure);
        let layer = Layer::open(file, self.limits.decoded_bytes_max(), self.cancel.clone()).map_err(damaged)?;
        let mut layer = DigestingReader::new(layer);
        unpacker.unpack(&mut layer)?;
        let found = layer.finish().map_err(damaged)?;
        if found != *contents {
            let reason = format!("a layer unpacks to {found}, but the configuration of the image says {contents}");
            return Err(reason.into());
        }
        Ok(())
    }
}
