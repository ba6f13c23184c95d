//! Points at which a test can end this process as a crash would: at a step of making an image, not at a moment.

pub use box_core::fault::VARIABLE;

/// Every step at which something of an image exists and something else does not, in order.
pub const STEPS: &[&str] = &[
    "image_blob_written",
    "image_blob_kept",
    "image_tree_unpacked",
    "image_tree_kept",
    "image_manifest_written",
    "image_reference_written",
    "image_reference_removed",
    "image_tree_removed",
];

/// A point of the images.
pub(crate) fn point(step: &str) {
    box_core::fault::crash_at(step, STEPS);
}
