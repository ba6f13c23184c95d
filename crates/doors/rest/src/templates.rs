//! Templates that were built from steps, as E2B's clients build them.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use box_core::snapshots::SavedKind;
use box_core::store::{TemplateRow, TemplateState};
use jiff::Timestamp;
use serde::Serialize;

use super::snapshots::BaseView;
use super::views::DeletedView;
use crate::app::App;
use crate::extract::{OfTemplate, TemplatePath, Who};
use door_http::failure::Failure;

/// A template.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct TemplateView {
    /// Its id.
    template_id: String,
    /// What its maker called it.
    name: Option<String>,
    /// Its versions, newest first.
    versions: Vec<TemplateVersionView>,
}

/// A version of a template.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct TemplateVersionView {
    /// The id of its build.
    build_id: String,
    /// Its tags; `default` is meant where a call names none.
    tags: Vec<String>,
    /// How far it is: `waiting`, `building`, `ready` or `failed`.
    #[schema(example = "ready")]
    status: &'static str,
    /// Why its build failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    base: BaseView,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it last changed.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

impl TemplateVersionView {
    fn new(row: &TemplateRow) -> Self {
        let (status, error) = match &row.state {
            TemplateState::Waiting => ("waiting", None),
            TemplateState::Building => ("building", None),
            TemplateState::Ready => ("ready", None),
            TemplateState::Failed { message, .. } => ("failed", Some(message.clone())),
        };
        Self {
            build_id: row.build.clone(),
            tags: row.tags.clone(),
            status,
            error,
            base: BaseView::new(row),
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

/// Templates of these rows, in the order of their first rows.
fn views(rows: &[Arc<TemplateRow>]) -> Vec<TemplateView> {
    let mut views: Vec<TemplateView> = Vec::new();
    for row in rows {
        let version = TemplateVersionView::new(row);
        if let Some(view) = views.iter_mut().find(|view| view.template_id == row.template) {
            view.versions.push(version);
        } else {
            let (template_id, name) = (row.template.clone(), row.name.clone());
            views.push(TemplateView { template_id, name, versions: vec![version] });
        }
    }
    views
}

/// Lists templates
///
/// Those that callers of your tenant built, over E2B's API or `strongbox e2b prepare`. `snapshot` in the body of a new session
/// names one.
#[utoipa::path(get, path = "/v1/templates", tag = "snapshots", operation_id = "templates",
    responses((status = 200, description = "The templates", body = Vec<TemplateView>)))]
pub(crate) async fn list(State(app): State<App>, Who(caller): Who) -> Result<Json<Vec<TemplateView>>, Failure> {
    Ok(Json(views(&app.service().templates(&caller).await?)))
}

/// Shows a template with its versions
#[utoipa::path(get, path = "/v1/templates/{template}", tag = "snapshots", operation_id = "template", params(TemplatePath),
    responses((status = 200, description = "The template", body = TemplateView)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    OfTemplate(name): OfTemplate,
) -> Result<Json<TemplateView>, Failure> {
    let versions = app.service().template_versions(&caller, SavedKind::Template, &name).await?;
    views(&versions).pop().map(Json).ok_or_else(|| Failure::internal("a template without versions"))
}

/// Deletes a template
///
/// With all its versions, or the named tag of one. Sessions that were made from it keep their files.
#[utoipa::path(delete, path = "/v1/templates/{template}", tag = "snapshots", operation_id = "delete_template",
    params(TemplatePath), responses((status = 200, description = "It is gone", body = DeletedView)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    OfTemplate(name): OfTemplate,
) -> Result<Json<DeletedView>, Failure> {
    app.service().delete_template(&caller, SavedKind::Template, &name).await?;
    Ok(Json(DeletedView { deleted: name }))
}
