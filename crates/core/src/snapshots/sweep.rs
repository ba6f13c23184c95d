//! What an earlier run of the server left: rows and archives that belong together stay, everything else is removed.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use super::archive;
use crate::store::{Change, Store, TemplateRow, TemplateState, Wait};
use crate::{Error, Result};

/// Compares rows with archives, and returns the rows that stay.
pub(super) async fn sweep(store: &dyn Store, directory: Option<&Path>) -> Result<Vec<TemplateRow>> {
    let rows = store.templates().await?;
    let Some(directory) = directory.map(Path::to_owned) else { return Ok(rows) };
    let known = rows.iter().filter(|row| row.state == TemplateState::Ready).map(|row| row.key.id.clone()).collect();
    let there = crate::tasks::blocking(move || archives(&directory, &known));
    let there = there.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    let there = there.map_err(|error| Error::io("listing the archives of snapshots", error))?;
    let mut kept = Vec::new();
    for row in rows {
        match row.state {
            TemplateState::Ready if !there.contains(&row.key.id) => {
                tracing::warn!(template.id = row.key.id, "removed a snapshot whose archive is missing");
                store.write(Change::DeleteTemplate(row.key), Wait::Committed).await?;
            }
            TemplateState::Waiting | TemplateState::Building => {
                let message = "the server was restarted during the build; build it again".to_owned();
                let row = TemplateRow { state: TemplateState::Failed { message, step: None }, ..row };
                store.write(Change::PutTemplate(Box::new(row.clone())), Wait::Committed).await?;
                kept.push(row);
            }
            TemplateState::Ready | TemplateState::Failed { .. } => kept.push(row),
        }
    }
    Ok(kept)
}

/// The ids of known archives in the directory. All other files in it are removed.
fn archives(directory: &Path, known: &HashSet<String>) -> io::Result<HashSet<String>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
        entries => entries?,
    };
    let mut there = HashSet::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let id = name.to_str().and_then(archive::id_of).filter(|id| known.contains(*id));
        match id {
            Some(id) => drop(there.insert(id.to_owned())),
            None if entry.file_type()?.is_dir() => {}
            None => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(there)
}
