//! What a server says of itself.

use rmcp::model::{Implementation, ProtocolVersion, ServerPeerInfo};

use crate::text::{TITLE_CHARS_MAX, clean};

/// Longest instructions of a server, in characters.
const INSTRUCTIONS_CHARS_MAX: usize = 16_384;

/// What a server says of itself. Untrusted, but cleaned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Name of the program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the protocol that was agreed on.
    pub protocol_version: String,
    /// How it is to be used.
    pub instructions: Option<String>,
}

impl About {
    pub(super) fn of(info: Option<&ServerPeerInfo>) -> Self {
        let program = info.and_then(|info| info.server_info.as_ref());
        let text = |field: fn(&Implementation) -> &String| {
            program.map(|program| clean(field(program), TITLE_CHARS_MAX)).unwrap_or_default()
        };
        let version = info.map_or(ProtocolVersion::LATEST_WITH_INITIALIZE, |info| info.protocol_version.clone());
        let instructions = info.and_then(|info| info.instructions.as_deref());
        Self {
            name: text(|program| &program.name),
            version: text(|program| &program.version),
            protocol_version: version.as_str().to_owned(),
            instructions: instructions.map(|text| clean(text, INSTRUCTIONS_CHARS_MAX)),
        }
    }
}
