//! Files that are sent into sandboxes.

use std::io::Write;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::failure::Failure;

/// A file that is sent into sandboxes, compressed once however many there are.
#[derive(Debug)]
pub(crate) struct Parcel {
    /// As it is.
    pub(crate) plain: Bytes,
    packed: OnceLock<Bytes>,
}

impl Parcel {
    /// A file with these bytes.
    pub(crate) const fn new(plain: Bytes) -> Self {
        Self { plain, packed: OnceLock::new() }
    }

    /// Our agent.
    pub(crate) fn agent() -> &'static Self {
        static AGENT: OnceLock<Parcel> = OnceLock::new();
        AGENT.get_or_init(|| Self::new(Bytes::from_static(box_agent_image::AGENT)))
    }

    /// As it is sent where that is understood.
    pub(crate) fn compressed(&self) -> Result<Bytes, Failure> {
        if let Some(packed) = self.packed.get() {
            return Ok(packed.clone());
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let packed = encoder.write_all(&self.plain).and_then(|()| encoder.finish());
        let packed = packed.map_err(|error| Failure::Broken(format!("a file cannot be packed: {error}")))?;
        Ok(self.packed.get_or_init(|| packed.into()).clone())
    }
}
