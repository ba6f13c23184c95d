//! What a server before this one left: rows and archives that belong together stay, everything else goes.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use box_core::store::{Change, TemplateRow, TemplateState, Wait};
use box_core::{Error, Result, Store};

use super::archive;

/// Brings rows and archives together, and says which rows there are.
pub(super) async fn sweep(store: &dyn Store, directory: Option<&Path>) -> Result<Vec<TemplateRow>> {
    let rows = store.templates().await?;
    let Some(directory) = directory.map(Path::to_owned) else { return Ok(rows) };
    let known = rows.iter().filter(|row| row.state == TemplateState::Ready).map(|row| row.key.id.clone()).collect();
    let there = box_core::tasks::blocking(move || archives(&directory, &known));
    let there = there.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    let there = there.map_err(|error| Error::io("looking at the archives of saved sandboxes", error))?;
    let mut kept = Vec::new();
    for row in rows {
        match row.state {
            TemplateState::Ready if !there.contains(&row.key.id) => {
                tracing::warn!(
                    template.id = row.key.id,
                    "the archive of a saved sandbox is gone, and so it is forgotten"
                );
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

/// The ids of archives that are there. What is none of those that are known is removed.
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
