//! stub
use std::os::fd::OwnedFd;
use std::path::PathBuf;
#[derive(Debug)]
pub struct RootTree { pub directory: OwnedFd, pub path: PathBuf, pub owned_by_root: bool }
pub fn resolve(_image: &box_core::Image, _cache: &box_core::SafeRoot) -> box_core::Result<Option<RootTree>> { Ok(None) }
