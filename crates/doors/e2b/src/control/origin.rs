//! What a sandbox begins as: a template of the operator, an image, or a saved box.

use std::collections::BTreeMap;
use std::path::PathBuf;

use box_core::Caller;
use box_core::snapshots::Reference;
use box_core::store::{TemplateBase, TemplateDefaults, TemplateRow};

use super::templates;
use crate::app::App;
use crate::failure::E2bFailure;

/// What a sandbox begins as.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// What clients are told it is.
    pub(super) name: String,
    /// A profile of ours, and what differs from it.
    pub(super) template: TemplateBase,
    /// The archive of a saved box.
    pub(super) archive: Option<PathBuf>,
    /// Variables of everything that runs in it.
    pub(super) env: BTreeMap<String, String>,
    /// What holds in it where nobody says otherwise.
    pub(super) defaults: TemplateDefaults,
}

impl Origin {
    /// Nothing but a template.
    pub(super) fn plain(name: String, template: TemplateBase) -> Self {
        Self { name, template, archive: None, env: BTreeMap::new(), defaults: TemplateDefaults::default() }
    }
}

/// Resolves a caller's name. The operator's templates come first, then what the caller's tenant saved; the rest are images. The
/// code interpreter template is the tenant's own once it has built one.
pub(super) async fn find(app: &App, caller: &Caller, name: &str) -> Result<Origin, E2bFailure> {
    let config = app.e2b().config();
    let (known, template) = templates::named(config, name)?;
    if config.templates.contains_key(&known) && !config.is_starter(&known) {
        return Ok(Origin::plain(known, template));
    }
    let reference = Reference::read(name);
    if let Some(row) = app.snapshots().find(caller, &reference).await? {
        return of_saved(app, &row);
    }
    let versions = app.snapshots().versions(caller, &reference).await?;
    if versions.is_empty() || config.is_starter(&known) {
        return Ok(Origin::plain(known, template));
    }
    let tags: Vec<&str> = versions.iter().flat_map(|row| &row.tags).map(String::as_str).collect();
    let shown: String = name.chars().take(64).collect();
    Err(E2bFailure::not_found(format!("template '{shown}' is not ready; its tags are: {}", tags.join(", "))))
}

/// What a saved box means.
fn of_saved(app: &App, row: &TemplateRow) -> Result<Origin, E2bFailure> {
    Ok(Origin {
        name: row.template.clone(),
        template: row.base.clone(),
        archive: Some(app.snapshots().archive(&row.key.id)?),
        env: row.env.clone(),
        defaults: row.defaults.clone(),
    })
}
