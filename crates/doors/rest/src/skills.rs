//! Skill packages of a tenant: listed, made, shown, changed, removed, and their files.

use axum::Json;
use axum::extract::State;
use box_skills::SkillStore;
use http::StatusCode;

use super::skill_body::{
    DeletedSkillView, FilePathQuery, FilesQuery, SkillBody, SkillFileView, SkillFilesView, SkillView, WrittenView,
};
use crate::app::App;
use crate::extract::{OfSkill, SkillPath, Who};
use crate::skill_door::told;
use crate::views::Binary;
use door_http::body::{Body, Params, Raw};
use door_http::failure::Failure;

/// Lists skills, the one that changed last first
///
/// Packages that cannot be read are left out.
#[utoipa::path(get, path = "/v1/skills", tag = "skills",
    responses((status = 200, description = "The skills", body = Vec<SkillView>)))]
pub(crate) async fn list(State(app): State<App>, Who(caller): Who) -> Result<Json<Vec<SkillView>>, Failure> {
    let skills = app.skills().with_store(&caller, SkillStore::list).await?;
    Ok(Json(skills.into_iter().map(SkillView::from).collect()))
}

/// Makes a skill of a text
#[utoipa::path(post, path = "/v1/skills", tag = "skills", request_body = SkillBody,
    responses((status = 201, description = "The skill", body = SkillView)))]
pub(crate) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    Body(body): Body<SkillBody>,
) -> Result<(StatusCode, Json<SkillView>), Failure> {
    let new = body.into_new();
    let skill = app.skills().adding(app.service(), &caller, move |store| store.create(&new)).await?;
    Ok((StatusCode::CREATED, Json(skill.into())))
}

/// Shows a skill
#[utoipa::path(get, path = "/v1/skills/{skill_name}", tag = "skills", params(SkillPath),
    responses((status = 200, description = "The skill", body = SkillView)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    OfSkill(name): OfSkill,
) -> Result<Json<SkillView>, Failure> {
    let asked = name.clone();
    let found = app.skills().with_store(&caller, move |store| store.get(&asked)).await?;
    let missing = || told(box_skills::Error::NotFound { name: name.chars().take(64).collect() });
    Ok(Json(found.ok_or_else(missing)?.into()))
}

/// Changes what a skill says
///
/// What is not said stays. Its name is fixed.
#[utoipa::path(patch, path = "/v1/skills/{skill_name}", tag = "skills", params(SkillPath), request_body = SkillBody,
    responses((status = 200, description = "The skill", body = SkillView)))]
pub(crate) async fn update(
    State(app): State<App>,
    Who(caller): Who,
    OfSkill(name): OfSkill,
    Body(body): Body<SkillBody>,
) -> Result<Json<SkillView>, Failure> {
    let change = body.into_change();
    let skill = app.skills().adding(app.service(), &caller, move |store| store.update(&name, &change)).await?;
    Ok(Json(skill.into()))
}

/// Removes a skill with its package
///
/// One that cannot be read is removed by the name of its directory.
#[utoipa::path(delete, path = "/v1/skills/{skill_name}", tag = "skills", params(SkillPath),
    responses((status = 200, description = "It is gone", body = DeletedSkillView)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    OfSkill(name): OfSkill,
) -> Result<Json<DeletedSkillView>, Failure> {
    let asked = name.clone();
    app.skills().with_store(&caller, move |store| store.delete(&asked)).await?;
    Ok(Json(DeletedSkillView { deleted: name }))
}

/// Lists the files of one directory of a skill
#[utoipa::path(get, path = "/v1/skills/{skill_name}/files", tag = "skills", params(SkillPath, FilesQuery),
    responses((status = 200, description = "The files", body = SkillFilesView)))]
pub(crate) async fn files(
    State(app): State<App>,
    Who(caller): Who,
    OfSkill(name): OfSkill,
    Params(query): Params<FilesQuery>,
) -> Result<Json<SkillFilesView>, Failure> {
    let query = query.into_query();
    let list = app.skills().with_store(&caller, move |store| store.list_files(&name, &query)).await?;
    Ok(Json(SkillFilesView { base_path: list.base_path, entries: list.entries, truncated: list.truncated }))
}

/// Reads a file of a skill, which must be text
#[utoipa::path(get, path = "/v1/skills/{skill_name}/file", tag = "skills", params(SkillPath, FilePathQuery),
    responses((status = 200, description = "The file", body = SkillFileView)))]
pub(crate) async fn read_file(
    State(app): State<App>,
    Who(caller): Who,
    OfSkill(name): OfSkill,
    Params(query): Params<FilePathQuery>,
) -> Result<Json<SkillFileView>, Failure> {
    let path = query.into_path()?;
    let read = move |store: &SkillStore| {
        let content = store.read_file(&name, &path)?;
        Ok(SkillFileView { path: SkillStore::normal_path(&path)?, content })
    };
    Ok(Json(app.skills().with_store(&caller, read).await?))
}

/// Writes a file of a skill, with the directories on the way to it
///
/// The body is the text, at most 1 MiB. Readers see the old text or the new one.
#[utoipa::path(post, path = "/v1/skills/{skill_name}/file", tag = "skills", params(SkillPath, FilePathQuery),
    request_body(content((String = "text/plain"), (inline(Binary) = "application/octet-stream"))),
    responses((status = 200, description = "It was written", body = WrittenView)))]
pub(crate) async fn write_file(
    State(app): State<App>,
    Who(caller): Who,
    OfSkill(name): OfSkill,
    Params(query): Params<FilePathQuery>,
    Raw(bytes): Raw,
) -> Result<Json<WrittenView>, Failure> {
    let path = query.into_path()?;
    let content = String::from_utf8(bytes.into());
    let content = content.map_err(|_| Failure::invalid("body", "the body is not UTF-8, and skills hold text only"))?;
    let write = move |store: &SkillStore| {
        let bytes_written = store.write_file(&name, &path, &content)?;
        Ok(WrittenView { path: SkillStore::normal_path(&path)?, bytes_written })
    };
    Ok(Json(app.skills().adding(app.service(), &caller, write).await?))
}

#[cfg(test)]
mod tests;
