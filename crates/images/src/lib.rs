//! Root file systems by name: pulled from registries, or brought as OCI layouts and docker archives; verified, unpacked once,
//! shared.
//!
//! Start with [`Images`]; `store` has what is where on disk and why.

mod archive;
mod blob;
mod build;
mod config;
mod digest;
mod failure;
mod gc;
mod holds;
mod images;
mod import;
mod layer;
mod manifest;
mod measured;
mod pull;
mod record;
mod registry;
mod store;
mod tar_file;
mod tree;
mod unpack;
mod whiteout;

pub mod fault;
pub mod limits;

pub use config::{ImageLimits, ImagesConfig};
pub use digest::Digest;
pub use images::Images;
pub use manifest::Metadata;
pub use record::ImageRecord;
pub use tree::RootTree;
