//! Messages of the service that knows the files of a sandbox. What is as it is when nobody says is not written.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::int64;

/// The name of the service, as it stands in paths.
pub const SERVICE: &str = "filesystem.Filesystem";

/// Asks about one path: `Stat`, `MakeDir` and `Remove`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathRequest {
    /// Which.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

/// Asks to give something another name: `Move`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveRequest {
    /// What.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Its new name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub destination: String,
}

/// Asks what is in a directory: `ListDir`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListDirRequest {
    /// Which.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Levels to go down. 0 is 1.
    #[serde(skip_serializing_if = "is_default")]
    pub depth: u32,
}

/// Asks to be told of changes: `WatchDir` and `CreateWatcher`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatchDirRequest {
    /// Of which directory.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Whether directories below count.
    #[serde(skip_serializing_if = "is_default")]
    pub recursive: bool,
    /// Whether what is there after a change is told too.
    #[serde(alias = "include_entry", skip_serializing_if = "is_default")]
    pub include_entry: bool,
    /// Whether directories of other machines may be watched, which are not told of everything.
    #[serde(alias = "allow_network_mounts", skip_serializing_if = "is_default")]
    pub allow_network_mounts: bool,
}

/// Asks about a watcher that was made before: `GetWatcherEvents` and `RemoveWatcher`. Also the answer to `CreateWatcher`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WatcherId {
    /// Which.
    #[serde(alias = "watcher_id", skip_serializing_if = "String::is_empty")]
    pub watcher_id: String,
}

/// Nothing to tell: the answer to `Remove` and `RemoveWatcher`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// One thing: the answer to `Stat`, `MakeDir` and `Move`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EntryResponse {
    /// What is there.
    pub entry: EntryInfo,
}

/// What is in a directory: the answer to `ListDir`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListDirResponse {
    /// The things, by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<EntryInfo>,
}

/// What happened since somebody asked: the answer to `GetWatcherEvents`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WatcherEvents {
    /// In the order in which it happened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<FilesystemEvent>,
}

/// What a stream of `WatchDir` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchDirResponse {
    /// From now on nothing is missed.
    Start(Empty),
    /// Something happened.
    Filesystem(Box<FilesystemEvent>),
    /// Nothing happened.
    Keepalive(Empty),
}

/// Something that happened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesystemEvent {
    /// To what, from the watched directory on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: EventType,
    /// What is there now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryInfo>,
}

/// A file, directory or link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EntryInfo {
    /// The last part of its path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it is; of a link, what it leads to.
    #[serde(rename = "type", skip_serializing_if = "is_default")]
    pub kind: FileType,
    /// Its path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// How many bytes it has.
    #[serde(with = "int64", skip_serializing_if = "is_default")]
    pub size: i64,
    /// Permission bits; of a link, of what it leads to.
    #[serde(skip_serializing_if = "is_default")]
    pub mode: u32,
    /// The same in letters, such as `-rw-r--r--`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub permissions: String,
    /// Name of its owner.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Name of its group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// When it was last changed, as RFC 3339 writes it.
    #[serde(alias = "modified_time", skip_serializing_if = "Option::is_none")]
    pub modified_time: Option<String>,
    /// Where a link leads.
    #[serde(alias = "symlink_target", skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
    /// What was said of it when it was uploaded.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Whether it is a link.
    #[serde(alias = "is_symlink", skip_serializing_if = "is_default")]
    pub is_symlink: bool,
}

/// Makes an enum of names and numbers. What nobody knows is the first of them.
macro_rules! named_numbers {
    ($(#[$doc:meta])* $kind:ident { $($(#[$of:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub enum $kind {
            $($(#[$of])* $variant,)*
        }

        impl $kind {
            const ALL: &[(Self, &str)] = &[$((Self::$variant, $name)),*];

            /// As it is written.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let found = match Written::deserialize(deserializer)? {
                    Written::Number(number) => Self::ALL.get(number),
                    Written::Name(name) => Self::ALL.iter().find(|(_, known)| *known == name),
                };
                Ok(found.map(|(value, _)| *value).unwrap_or_default())
            }
        }
    };
}

named_numbers! {
    /// What a thing is.
    FileType {
        /// Something else, or not there.
        #[default]
        Unspecified = "FILE_TYPE_UNSPECIFIED",
        /// A regular file.
        File = "FILE_TYPE_FILE",
        /// A directory.
        Directory = "FILE_TYPE_DIRECTORY",
        /// A link.
        Symlink = "FILE_TYPE_SYMLINK",
    }
}

named_numbers! {
    /// What happened.
    EventType {
        /// Nobody knows.
        #[default]
        Unspecified = "EVENT_TYPE_UNSPECIFIED",
        /// It is new.
        Create = "EVENT_TYPE_CREATE",
        /// It was written.
        Write = "EVENT_TYPE_WRITE",
        /// It is gone.
        Remove = "EVENT_TYPE_REMOVE",
        /// It has another name.
        Rename = "EVENT_TYPE_RENAME",
        /// Its permission bits, owner or times are others.
        Chmod = "EVENT_TYPE_CHMOD",
    }
}

/// How a value with a name comes: by name, or by number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(usize),
    Name(String),
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_written_with_what_there_is_to_say() {
        let entry = EntryInfo {
            name: "a".to_owned(),
            kind: FileType::File,
            path: "/home/user/a".to_owned(),
            size: 1 << 40,
            mode: 0o644,
            permissions: "-rw-r--r--".to_owned(),
            owner: "user".to_owned(),
            group: "user".to_owned(),
            modified_time: Some("2026-01-02T03:04:05Z".to_owned()),
            symlink_target: None,
            metadata: BTreeMap::new(),
            is_symlink: false,
        };
        let text = concat!(
            r#"{"name":"a","type":"FILE_TYPE_FILE","path":"/home/user/a","size":"1099511627776","mode":420,"#,
            r#""permissions":"-rw-r--r--","owner":"user","group":"user","modifiedTime":"2026-01-02T03:04:05Z"}"#
        );
        assert_eq!(serde_json::to_string(&entry).unwrap(), text);
        assert_eq!(serde_json::from_str::<EntryInfo>(text).unwrap(), entry);
        assert_eq!(serde_json::to_string(&EntryInfo::default()).unwrap(), "{}");
        let link = r#"{"type":2,"size":4,"symlink_target":"/x","is_symlink":true,"new":1,"metadata":{"a":"b"}}"#;
        let link: EntryInfo = serde_json::from_str(link).unwrap();
        assert_eq!((link.kind, link.size, link.is_symlink), (FileType::Directory, 4, true));
        assert_eq!((link.symlink_target.as_deref(), &link.metadata["a"][..]), (Some("/x"), "b"));
    }

    #[test]
    fn names_of_values_come_as_names_or_numbers() {
        let read = |text: &str| serde_json::from_str::<EventType>(text).unwrap();
        assert_eq!(read("\"EVENT_TYPE_RENAME\""), EventType::Rename);
        assert_eq!(read("5"), EventType::Chmod);
        assert_eq!((read("99"), read("\"EVENT_TYPE_NEW\"")), (EventType::Unspecified, EventType::Unspecified));
    }

    #[test]
    fn requests_are_understood_with_either_spelling_and_without_fields() {
        let watch = |text: &str| serde_json::from_str::<WatchDirRequest>(text).unwrap();
        assert_eq!(watch("{}"), WatchDirRequest::default());
        assert_eq!(watch(r#"{"include_entry":true}"#), watch(r#"{"includeEntry":true}"#));
        let id: WatcherId = serde_json::from_str(r#"{"watcher_id":"7"}"#).unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), r#"{"watcherId":"7"}"#);
        assert_eq!(serde_json::from_str::<ListDirRequest>(r#"{"path":"/"}"#).unwrap().depth, 0);
    }

    #[test]
    fn a_stream_says_one_thing_at_a_time() {
        let event = FilesystemEvent { name: "a".to_owned(), kind: EventType::Create, entry: None };
        for (message, text) in [
            (WatchDirResponse::Start(Empty {}), r#"{"start":{}}"#),
            (WatchDirResponse::Keepalive(Empty {}), r#"{"keepalive":{}}"#),
            (
                WatchDirResponse::Filesystem(Box::new(event)),
                r#"{"filesystem":{"name":"a","type":"EVENT_TYPE_CREATE"}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
            assert_eq!(serde_json::from_str::<WatchDirResponse>(text).unwrap(), message);
        }
    }
}
