//! What can be asked of files, as it comes in queries and bodies.

use box_wire::file_op::{WriteHow, path_below};
use box_wire::{FileOp, GuestPath};
use http::StatusCode;
use serde::Deserialize;

use crate::limits;
use door_http::body::{self, Fields, FromFields};
use door_http::failure::Failure;

/// Most that permission bits can say without giving somebody else's rights away.
const MODE_MAX: u32 = 0o777;

/// Takes the fields of a type as they are.
macro_rules! take_fields {
    ($($name:ident),*) => {
        $(impl FromFields for $name {
            fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
                fields.take()
            }
        })*
    };
}
take_fields!(DownloadQuery, UploadQuery, RemoveQuery, StatQuery, ListQuery, WatchQuery, MakeDirectoryBody, MoveBody);

/// The path that a caller means. The file API is for the whole box: what is refused here is what cannot be a path at all.
fn path(field: &'static str, text: Option<&str>) -> Result<GuestPath, Failure> {
    let missing = || Failure::invalid(field, format!("{field} is needed: a path in the box, such as /workspace/note"));
    let text = text.ok_or_else(missing)?;
    path_below(&GuestPath::root(), text).map_err(|error| Failure::from(error).field(field))
}

/// A form in which many files are one stream of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Archive {
    /// A tar archive.
    Tar,
}

/// What to download.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DownloadQuery {
    /// Which file. Links are followed, within the box.
    #[serde(default, deserialize_with = "body::text")]
    #[param(value_type = String, example = "/workspace/note")]
    path: Option<String>,
    /// `tar`: as an archive; the only way for directories.
    #[param(value_type = Option<String>)]
    pub(super) archive: Option<Archive>,
}

impl DownloadQuery {
    pub(super) fn path(&self) -> Result<GuestPath, Failure> {
        path("path", self.path.as_deref())
    }
}

/// What to upload, and how.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UploadQuery {
    /// Which file; of an archive, into which directory.
    #[serde(default, deserialize_with = "body::text")]
    #[param(value_type = String, example = "/workspace/note")]
    path: Option<String>,
    /// Permission bits of a new file, in octal; those of the old one, or the usual ones, when not given.
    #[serde(default, deserialize_with = "body::text")]
    #[param(example = "0644")]
    mode: Option<String>,
    /// Whether the file must be new.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    create: Option<bool>,
    /// Write in place from this byte on; what was behind it goes. The file must be at least that long.
    #[serde(default, deserialize_with = "body::whole")]
    offset: Option<u64>,
    /// `tar`: the body is an archive, to be unpacked into the directory.
    #[param(value_type = Option<String>)]
    archive: Option<Archive>,
}

impl UploadQuery {
    /// What there is to do, and the status of success.
    pub(super) fn op(&self) -> Result<(FileOp, StatusCode), Failure> {
        let path = path("path", self.path.as_deref())?;
        let mode = self.mode.as_deref().map(mode_of).transpose()?;
        let create = self.create.unwrap_or(false);
        if self.archive.is_some() {
            let given = [("mode", mode.is_some()), ("create", create), ("offset", self.offset.is_some())];
            return match given.into_iter().find(|(_, is_given)| *is_given) {
                Some((field, _)) => Err(Failure::invalid(field, format!("{field} makes no sense with an archive"))),
                None => Ok((FileOp::Unpack { path, bytes_max: limits::FILE_BYTES_MAX }, StatusCode::OK)),
            };
        }
        let (how, status) = match self.offset {
            Some(_) if create => return Err(Failure::invalid("offset", "give create or offset, not both")),
            Some(offset) => (WriteHow::From(offset), StatusCode::OK),
            None if create => (WriteHow::Create, StatusCode::CREATED),
            None => (WriteHow::Replace, StatusCode::OK),
        };
        Ok((FileOp::Write { path, how, mode, bytes_max: limits::FILE_BYTES_MAX }, status))
    }

    /// How much of the file stays before what is sent.
    pub(super) fn offset(&self) -> u64 {
        self.offset.unwrap_or(0)
    }
}

fn mode_of(text: &str) -> Result<u32, Failure> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    let mode = plain.then(|| u32::from_str_radix(digits, 8).ok()).flatten().filter(|mode| *mode <= MODE_MAX);
    mode.ok_or_else(|| {
        let shown: String = text.chars().take(16).collect();
        Failure::invalid("mode", format!("invalid mode: {shown:?} (octal, from 0 to 0777, such as 0644)"))
    })
}

/// What to remove.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveQuery {
    /// What.
    #[serde(default, deserialize_with = "body::text")]
    #[param(value_type = String, example = "/workspace/note")]
    path: Option<String>,
    /// Whether a directory may have something in it.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    recursive: Option<bool>,
}

impl RemoveQuery {
    pub(super) fn op(&self) -> Result<FileOp, Failure> {
        let path = path("path", self.path.as_deref())?;
        Ok(FileOp::Remove { path, recursive: self.recursive.unwrap_or(false) })
    }
}

/// What to look at.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatQuery {
    /// What.
    #[serde(default, deserialize_with = "body::text")]
    #[param(value_type = String, example = "/workspace/note")]
    path: Option<String>,
}

impl StatQuery {
    pub(super) fn op(&self) -> Result<FileOp, Failure> {
        Ok(FileOp::Stat { path: path("path", self.path.as_deref())? })
    }
}

/// What to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Which directory.
    #[serde(default, deserialize_with = "body::text")]
    #[param(value_type = String, example = "/workspace")]
    path: Option<String>,
    /// Levels to go down; 1, the directory itself, when not given.
    #[serde(default, deserialize_with = "body::number_u32")]
    depth: Option<u32>,
    /// Most entries; 1000 when not given, never more than 10,000.
    #[serde(default, deserialize_with = "body::number_u32")]
    limit: Option<u32>,
}

impl ListQuery {
    pub(super) fn op(&self) -> Result<FileOp, Failure> {
        let path = path("path", self.path.as_deref())?;
        let entries_max = self.limit.unwrap_or(limits::LISTED_ENTRIES);
        Ok(FileOp::List { path, depth: self.depth.unwrap_or(1), entries_max })
    }
}

/// What to watch.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WatchQuery {
    /// Which file or directory.
    #[serde(default, deserialize_with = "body::text")]
    #[param(value_type = String, example = "/workspace")]
    path: Option<String>,
    /// Whether directories below count.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    recursive: Option<bool>,
}

impl WatchQuery {
    pub(super) fn op(&self) -> Result<FileOp, Failure> {
        let path = path("path", self.path.as_deref())?;
        Ok(FileOp::Watch { path, recursive: self.recursive.unwrap_or(false) })
    }
}

/// Which directory to make.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct MakeDirectoryBody {
    /// Which.
    #[serde(default, deserialize_with = "body::text")]
    #[schema(value_type = String, example = "/workspace/data")]
    path: Option<String>,
    /// Whether it is an error that it exists; `false` when not given.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    exclusive: Option<bool>,
}

impl MakeDirectoryBody {
    pub(super) fn op(&self) -> Result<FileOp, Failure> {
        let path = path("path", self.path.as_deref())?;
        Ok(FileOp::MakeDirectory { path, exclusive: self.exclusive.unwrap_or(false) })
    }
}

/// What to give another name.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct MoveBody {
    /// What.
    #[serde(default, deserialize_with = "body::text")]
    #[schema(value_type = String, example = "/workspace/note")]
    from: Option<String>,
    /// Its new name, in full.
    #[serde(default, deserialize_with = "body::text")]
    #[schema(value_type = String, example = "/workspace/old-note")]
    to: Option<String>,
    /// Whether a file of that name is replaced; `false` when not given.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    replace: Option<bool>,
}

impl MoveBody {
    pub(super) fn op(&self) -> Result<FileOp, Failure> {
        let (from, to) = (path("from", self.from.as_deref())?, path("to", self.to.as_deref())?);
        Ok(FileOp::Move { from, to, replace: self.replace.unwrap_or(false) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(change: impl FnOnce(&mut UploadQuery)) -> Result<(FileOp, StatusCode), Failure> {
        let path = Some("/workspace/a".to_owned());
        let mut query = UploadQuery { path, mode: None, create: None, offset: None, archive: None };
        change(&mut query);
        query.op()
    }

    #[test]
    fn an_upload_replaces_creates_or_goes_on() {
        let how = |change: fn(&mut UploadQuery)| match upload(change) {
            Ok((FileOp::Write { how, mode, .. }, status)) => Some((how, mode, status.as_u16())),
            _ => None,
        };
        assert_eq!(how(|_| {}), Some((WriteHow::Replace, None, 200)));
        assert_eq!(how(|query| query.create = Some(true)), Some((WriteHow::Create, None, 201)));
        assert_eq!(how(|query| query.offset = Some(7)), Some((WriteHow::From(7), None, 200)));
        assert_eq!(how(|query| query.mode = Some("0600".into())), Some((WriteHow::Replace, Some(0o600), 200)));
        assert!(upload(|query| (query.create, query.offset) = (Some(true), Some(0))).is_err());
        let archive = upload(|query| query.archive = Some(Archive::Tar)).unwrap().0;
        assert!(matches!(archive, FileOp::Unpack { bytes_max: limits::FILE_BYTES_MAX, .. }));
        assert!(upload(|query| (query.archive, query.offset) = (Some(Archive::Tar), Some(0))).is_err());
    }

    #[test]
    fn modes_are_octal_and_give_no_rights_of_others_away() {
        for (text, mode) in [("0644", 0o644), ("755", 0o755), ("0o600", 0o600), ("0", 0), ("00777", 0o777)] {
            assert_eq!(mode_of(text).unwrap(), mode, "{text}");
        }
        for bad in ["", "8", "+644", "-1", "0x1ff", "4755", "1777", "0o", "rw", "77777777777777"] {
            assert!(mode_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_is_needed_and_may_name_everything_in_the_box() {
        assert_eq!(path("path", Some("/etc//passwd")).unwrap().as_str(), "/etc/passwd");
        assert_eq!(path("path", Some("etc")).unwrap().as_str(), "/etc");
        for (text, status) in [(None, 400), (Some(""), 400), (Some("/a/../b"), 400), (Some("a\0b"), 400)] {
            assert_eq!(path("from", text).unwrap_err().status().as_u16(), status, "{text:?}");
        }
    }
}
