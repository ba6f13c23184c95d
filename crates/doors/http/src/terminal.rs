//! The size of a terminal, as callers write it in a body or a message.

use box_wire::WindowSize;
use serde::Deserialize;

use crate::body::{self, Fields, FromFields};
use crate::failure::Failure;

/// The size of a terminal in character cells.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeBody {
    /// Lines.
    #[serde(default, deserialize_with = "body::number_u16")]
    #[schema(example = 24)]
    rows: Option<u16>,
    /// Characters in a line.
    #[serde(default, deserialize_with = "body::number_u16")]
    #[schema(example = 80)]
    columns: Option<u16>,
}

impl SizeBody {
    /// Both sides, in range.
    pub fn into_size(self) -> Result<WindowSize, Failure> {
        let missing =
            || Failure::invalid("tty", "a terminal needs rows and columns, such as {\"rows\": 24, \"columns\": 80}");
        let size = WindowSize { rows: self.rows.ok_or_else(missing)?, columns: self.columns.ok_or_else(missing)? };
        size.validate()?;
        Ok(size)
    }
}

impl FromFields for SizeBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}
