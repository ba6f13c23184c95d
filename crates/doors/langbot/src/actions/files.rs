//! Files that clients send in pieces.

use serde_json::Map;

use super::{Answer, HostCall};
use crate::uploads::Chunk;

/// Takes a piece.
pub(super) fn chunk(call: &HostCall<'_>) -> Answer {
    let length_max = call.door.settings().limits().max_rpc_file_bytes;
    let chunk = Chunk::read(&call.data, length_max)?;
    call.connection.uploads.add(&chunk, length_max)?;
    Ok(Map::new())
}
