//! Skills as callers write and read them.

use box_skills::{FileQuery, NewSkill, Preview, Selection, Skill, SkillChange, ZipRequest};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use door_http::body::{self, Fields, FromFields};
use door_http::failure::Failure;

/// A skill.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SkillView {
    /// Its name.
    name: String,
    /// What people see.
    display_name: String,
    /// What it is good for.
    description: String,
    /// What it says to do.
    instructions: String,
    /// File of the package that says all this.
    entry_file: String,
    /// Whether commands that use it get a Python environment of its own.
    python_project: bool,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was last written.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    /// Where in the archive it is; only in a preview.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_path: Option<String>,
}

impl From<Skill> for SkillView {
    fn from(skill: Skill) -> Self {
        Self {
            name: skill.name,
            display_name: skill.display_name,
            description: skill.description,
            instructions: skill.instructions,
            entry_file: skill.entry_file,
            python_project: skill.python_project,
            created_at: skill.created_at,
            updated_at: skill.updated_at,
            source_path: None,
        }
    }
}

impl From<Preview> for SkillView {
    fn from(preview: Preview) -> Self {
        Self { source_path: Some(preview.source_path), ..preview.skill.into() }
    }
}

/// What is in an archive.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct PreviewView {
    /// Names the archive by its content; an installation that is given it takes no other archive.
    pub(super) digest: String,
    /// The skills in it.
    pub(super) skills: Vec<SkillView>,
}

/// That a skill is gone.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct DeletedSkillView {
    /// Its name.
    pub(super) deleted: String,
}

/// Files of one directory of a skill.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SkillFilesView {
    /// The directory; `.` for the package itself.
    pub(super) base_path: String,
    /// What is in it, by name: `path`, `name`, `is_dir` and `size`.
    #[schema(value_type = Vec<Object>)]
    pub(super) entries: Vec<box_skills::FileEntry>,
    /// Whether there is more than was asked for.
    pub(super) truncated: bool,
}

/// A file of a skill.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SkillFileView {
    /// Path within the package.
    pub(super) path: String,
    /// Its text.
    pub(super) content: String,
}

/// That a file was written.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct WrittenView {
    /// Path within the package.
    pub(super) path: String,
    /// How many bytes.
    pub(super) bytes_written: u64,
}

/// A skill to be made, or what changes about one.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct SkillBody {
    /// Its name: letters, digits, `-` and `_`. Needed for a new skill, and fixed from then on.
    #[serde(default, deserialize_with = "body::text")]
    name: Option<String>,
    /// What people see.
    #[serde(default, deserialize_with = "body::text")]
    display_name: Option<String>,
    /// What it is good for.
    #[serde(default, deserialize_with = "body::text")]
    description: Option<String>,
    /// What it says to do.
    #[serde(default, deserialize_with = "body::text")]
    instructions: Option<String>,
}

impl FromFields for SkillBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl SkillBody {
    /// As a new skill.
    pub(super) fn into_new(self) -> NewSkill {
        NewSkill {
            name: self.name.unwrap_or_default(),
            display_name: self.display_name,
            description: self.description,
            instructions: self.instructions,
            package_root: None,
        }
    }

    /// As a change.
    pub(super) fn into_change(self) -> SkillChange {
        SkillChange {
            name: self.name,
            package_root: None,
            display_name: self.display_name,
            description: self.description,
            instructions: self.instructions,
        }
    }
}

/// Which files of a skill to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilesQuery {
    /// A directory of the package; else the package itself.
    #[serde(default, deserialize_with = "body::text")]
    path: Option<String>,
    /// Whether names that start with a dot are wanted too.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    include_hidden: Option<bool>,
    /// At most this many; 200 unless given, and never more than 1000.
    #[serde(default, deserialize_with = "body::whole")]
    max_entries: Option<u64>,
}

impl FromFields for FilesQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl FilesQuery {
    pub(super) fn into_query(self) -> FileQuery {
        let usual = FileQuery::default();
        FileQuery {
            path: self.path.unwrap_or(usual.path),
            include_hidden: self.include_hidden.unwrap_or(usual.include_hidden),
            max_entries: self.max_entries.unwrap_or(usual.max_entries),
        }
    }
}

/// A file of a skill.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilePathQuery {
    /// Path within the package.
    #[param(value_type = String)]
    #[serde(default, deserialize_with = "body::text")]
    path: Option<String>,
}

impl FromFields for FilePathQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl FilePathQuery {
    pub(super) fn into_path(self) -> Result<String, Failure> {
        self.path.ok_or_else(|| Failure::invalid("path", "path is missing: say which file of the skill"))
    }
}

/// How an archive is read, and what of it is wanted.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ArchiveQuery {
    /// What the archive is called; names the directories of its skills.
    #[serde(default, deserialize_with = "body::text")]
    pub(super) filename: Option<String>,
    /// A directory of the archive to look in, instead of all of it.
    #[serde(default, deserialize_with = "body::text")]
    source_subdir: Option<String>,
    /// What the names of the directories end in; `upload` unless given.
    #[serde(default, deserialize_with = "body::text")]
    target_suffix: Option<String>,
    /// Which skill to install, by the `source_path` of the preview. Needed when there are several.
    #[serde(default, deserialize_with = "body::text")]
    source_path: Option<String>,
    /// Several of them, with commas.
    #[serde(default, deserialize_with = "body::text")]
    source_paths: Option<String>,
    /// The digest of the preview: another archive is refused.
    #[serde(default, deserialize_with = "body::text")]
    digest: Option<String>,
}

impl FromFields for ArchiveQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl ArchiveQuery {
    /// How the archive is read. `filename` is what it is called if the caller does not say.
    pub(super) fn request(&self, filename: &str) -> ZipRequest {
        let usual = ZipRequest::default();
        ZipRequest {
            filename: self.filename.clone().unwrap_or_else(|| filename.to_owned()),
            source_subdir: self.source_subdir.clone().unwrap_or(usual.source_subdir),
            target_suffix: self.target_suffix.clone().unwrap_or(usual.target_suffix),
        }
    }

    /// Which skills of it are wanted.
    pub(super) fn selection(&self) -> Selection {
        let several = self.source_paths.as_deref().unwrap_or_default().split(',');
        Selection {
            source_paths: several.filter(|path| !path.trim().is_empty()).map(str::to_owned).collect(),
            source_path: self.source_path.clone().unwrap_or_default(),
            digest: self.digest.clone(),
        }
    }
}

/// Where skills come from that are not sent along.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct FetchBody {
    /// Address of an archive. The operator has to allow this.
    #[serde(default, deserialize_with = "body::text")]
    pub(super) url: Option<String>,
    /// A directory of the host, for instance a checkout of a git repository, below one that the operator named. Needs the scope admin.
    #[serde(default, deserialize_with = "body::text")]
    pub(super) directory: Option<String>,
    /// Whether only to say what would be installed.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    pub(super) preview: Option<bool>,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct FetchRequest {
    pub(super) from: FetchBody,
    pub(super) archive: ArchiveQuery,
}

impl FromFields for FetchRequest {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        Ok(Self { from: fields.take()?, archive: fields.take()? })
    }
}

/// The same, for the document.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the body; FetchRequest reads it")]
pub(crate) struct FetchSchema {
    /// Where from.
    #[schema(inline)]
    #[serde(flatten)]
    from: FetchBody,
    /// What the archive is called; names the directories of its skills.
    filename: Option<String>,
    /// A directory of the archive to look in, instead of all of it.
    source_subdir: Option<String>,
    /// What the names of the directories end in; `upload` unless given.
    target_suffix: Option<String>,
    /// Which skill to install, by the `source_path` of the preview. Needed when there are several.
    source_path: Option<String>,
    /// Several of them, with commas.
    source_paths: Option<String>,
    /// The digest of the preview: another archive is refused.
    digest: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::{field_of, read};

    #[test]
    fn what_is_not_said_has_the_defaults_of_the_store() {
        let query: ArchiveQuery = read("{}").unwrap();
        let request = query.request("a.zip");
        assert_eq!((request.filename.as_str(), request.target_suffix.as_str()), ("a.zip", "upload"));
        let selection = query.selection();
        assert!(selection.source_paths.is_empty() && selection.source_path.is_empty() && selection.digest.is_none());
        assert_eq!(read::<FilesQuery>("{}").unwrap().into_query().max_entries, 200);
    }

    #[test]
    fn several_paths_are_given_with_commas() {
        let query: ArchiveQuery = read(r#"{"source_paths": "a,b/c,,"}"#).unwrap();
        assert_eq!(query.selection().source_paths, ["a", "b/c"]);
    }

    #[test]
    fn what_nobody_knows_is_refused_by_name() {
        assert_eq!(field_of(read::<SkillBody>(r#"{"name": "a", "packageroot": "/"}"#)), "packageroot");
        assert_eq!(field_of(read::<SkillBody>(r#"{"name": 1}"#)), "name");
        assert_eq!(field_of(read::<FetchRequest>(r#"{"url": "x", "sudo": true}"#)), "sudo");
        assert_eq!(field_of(read::<FilePathQuery>("{}").unwrap().into_path()), "path");
    }
}
