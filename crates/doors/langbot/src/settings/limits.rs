//! How much there may be of everything, as clients set it.

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use crate::fault::{Class, Fault};

/// How much there may be of everything.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "they are called what clients call them")]
pub(crate) struct Limits {
    /// Sessions at once, of all workspaces.
    pub(crate) max_sessions: usize,
    /// Running managed processes at once, of all workspaces.
    pub(crate) max_managed_processes: usize,
    /// Ended managed processes that are remembered; only shown, since the service has a rule of its own.
    pub(crate) max_completed_processes: usize,
    /// Workspaces that are remembered.
    pub(crate) max_admission_records: usize,
    /// Bytes of one uploaded file.
    pub(crate) max_rpc_file_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_sessions: 64,
            max_managed_processes: 64,
            max_completed_processes: 256,
            max_admission_records: 100_000,
            max_rpc_file_bytes: 20 << 20,
        }
    }
}

impl Limits {
    /// Reads them; absent ones have their default.
    pub(super) fn read(given: Option<&Map<String, Value>>) -> Result<Self, Fault> {
        let nothing = Map::new();
        let given = given.unwrap_or(&nothing);
        let default = Self::default();
        read(given, "completed_process_retention_sec", 300, 0..=86_400)?;
        Ok(Self {
            max_sessions: read(given, "max_sessions", default.max_sessions, 0..=5000)?,
            max_managed_processes: read(given, "max_managed_processes", default.max_managed_processes, 0..=1024)?,
            max_completed_processes: read(
                given,
                "max_completed_processes",
                default.max_completed_processes,
                0..=10_000,
            )?,
            max_admission_records: read(given, "max_admission_records", default.max_admission_records, 1..=250_000)?,
            max_rpc_file_bytes: read(given, "max_rpc_file_bytes", default.max_rpc_file_bytes, 1..=100 << 20)?,
        })
    }

    /// The reply to clients.
    pub(crate) fn shown(&self) -> Value {
        json!({
            "max_sessions": self.max_sessions,
            "max_managed_processes": self.max_managed_processes,
            "max_completed_processes": self.max_completed_processes,
            "max_admission_records": self.max_admission_records,
            "max_rpc_file_bytes": self.max_rpc_file_bytes,
        })
    }
}

fn read(given: &Map<String, Value>, name: &str, default: usize, range: RangeInclusive<usize>) -> Result<usize, Fault> {
    let Some(value) = given.get(name) else { return Ok(default) };
    let whole = value.is_i64() || value.is_u64();
    if !whole {
        return Err(Fault::new(Class::Value, format!("box.limits.{name} must be an integer")));
    }
    let found = value.as_u64().and_then(|number| usize::try_from(number).ok());
    found.filter(|number| range.contains(number)).ok_or_else(|| {
        let text = format!("box.limits.{name} must be between {} and {}", range.start(), range.end());
        Fault::new(Class::Value, text)
    })
}
