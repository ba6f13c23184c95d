//! Errors as clients see them. Clients rebuild the class of an error from its text.

mod skills;

use std::fmt;

use box_core::Error;
use box_core::mount_policy::NEVER_SHOWN;
use box_core::session::Difference;
use box_wire::Invalid;

use super::tenancy::TenancyScope;

/// Longest text of an error.
const TEXT_CHARS_MAX: usize = 4096;
/// Longest text of what a backend said.
const BACKEND_TEXT_CHARS_MAX: usize = 300;
/// How everything ends by which clients recognize a kind of error, wherever it is in the text.
const MARKER_END: &str = "Error:";

/// An error as clients know it: `Class: text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The kind.
    pub(crate) class: Class,
    /// The reason.
    pub(crate) text: String,
}

/// Kinds of errors that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// No grant, or one that does not permit this.
    Admission,
    /// Isolation or the shared volume is not ready.
    Readiness,
    /// No room for more.
    Capacity,
    /// Something that was sent is wrong.
    Validation,
    /// No such session.
    SessionNotFound,
    /// The session is something else.
    SessionConflict,
    /// No such managed process.
    ProcessNotFound,
    /// The managed process is not in that state.
    ProcessConflict,
    /// There is nothing to make boxes with.
    BackendUnavailable,
    /// Any other error of the server.
    Box,
    /// Python's word for a value that makes no sense.
    Value,
    /// Python's word for something that is missing.
    Key,
    /// Python's word for something that is not allowed.
    Permission,
}

impl Class {
    /// As it is written in front of the text.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Admission => "BoxAdmissionError",
            Self::Readiness => "BoxReadinessError",
            Self::Capacity => "BoxCapacityExceededError",
            Self::Validation => "BoxValidationError",
            Self::SessionNotFound => "BoxSessionNotFoundError",
            Self::SessionConflict => "BoxSessionConflictError",
            Self::ProcessNotFound => "BoxManagedProcessNotFoundError",
            Self::ProcessConflict => "BoxManagedProcessConflictError",
            Self::BackendUnavailable => "BoxBackendUnavailableError",
            Self::Box => "BoxError",
            Self::Value => "ValueError",
            Self::Key => "KeyError",
            Self::Permission => "PermissionError",
        }
    }
}

impl Fault {
    /// An error of that kind.
    pub(crate) fn new(class: Class, text: impl Into<String>) -> Self {
        Self { class, text: text.into() }
    }

    /// An argument is missing.
    pub(crate) fn missing(name: &str) -> Self {
        Self::new(Class::Key, format!("'{name}'"))
    }

    /// An error of the service about a session, in the form that clients know. `backend` is the name under which they
    /// know the backend.
    pub(crate) fn of_session(error: &Error, place: &TenancyScope, logical: &str, backend: &str) -> Self {
        let session = place.physical(logical);
        match error {
            Error::Invalid(invalid) => invalid.clone().into(),
            Error::MountDenied { path, reason } => Self::mount_denied("host_path", path, reason),
            Error::SessionNotFound { .. } => Self::new(Class::SessionNotFound, format!("session {session} not found")),
            Error::ProcessNotFound { process, .. } => {
                let text = format!("session {session} has no managed process with process_id={process}");
                Self::new(Class::ProcessNotFound, text)
            }
            Error::ProcessConflict { process, what, .. } => {
                let stands = what.split(';').next().unwrap_or(what);
                Self::new(Class::ProcessConflict, format!("managed process {process} in session {session} {stands}"))
            }
            Error::SessionConflict { differences, .. } => {
                let differs = differences.first().map(|difference| format!(" with {}", told(difference)));
                let text = format!("Box session {session} already exists{}", differs.unwrap_or_default());
                Self::new(Class::SessionConflict, text)
            }
            Error::Capacity { what, limit, .. } => {
                Self::new(Class::Capacity, format!("Box {what} capacity reached ({limit})"))
            }
            // LangBot's own check of the same says it with this class and these words.
            Error::QuotaExceeded { .. } => Self::new(Class::Validation, error.to_string()),
            Error::Unavailable { .. }
            | Error::MissingFacility { .. }
            | Error::FloorNotHeld { .. }
            | Error::Stopping
            | Error::Disabled => Self::new(Class::BackendUnavailable, collapsed(&error.to_string())),
            Error::Forbidden { .. } => Self::new(Class::Permission, error.to_string()),
            // Setup, image, protocol and system errors; and the domain may grow.
            other => Self::new(Class::Box, format!("{backend} backend error: {}", collapsed(&other.to_string()))),
        }
    }

    /// A tree of the host may not be mounted. `field` says which one it was.
    pub(crate) fn mount_denied(field: &str, path: &str, reason: &str) -> Self {
        Self::denied("mounted", field, path, reason)
    }

    /// A host directory is not allowed.
    pub(crate) fn path_denied(field: &str, path: &str, reason: &str) -> Self {
        Self::denied("used", field, path, reason)
    }

    fn denied(what: &str, field: &str, path: &str, reason: &str) -> Self {
        let path: String = path.chars().take(BACKEND_TEXT_CHARS_MAX).collect();
        let text = if reason.contains(NEVER_SHOWN) {
            format!("{field} {path} is blocked for security")
        } else {
            format!("{field} {path} cannot be {what}: {}", collapsed(reason))
        };
        Self::new(Class::Validation, text)
    }
}

impl From<Invalid> for Fault {
    fn from(invalid: Invalid) -> Self {
        Self::new(Class::Validation, invalid.to_string())
    }
}

/// A field and what the session has in it, as Python writes that.
fn told(difference: &Difference) -> String {
    let Difference { field, existing, .. } = difference;
    let written = match (*field, existing.as_str()) {
        ("host_path", "none") => "None".to_owned(),
        ("persistent" | "read_only_rootfs", "true") => "True".to_owned(),
        ("persistent" | "read_only_rootfs", "false") => "False".to_owned(),
        ("cpus", number) if !number.contains('.') => format!("{number}.0"),
        (_, other) => other.to_owned(),
    };
    format!("{field}={written}")
}

/// One line that is not too long.
fn collapsed(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(BACKEND_TEXT_CHARS_MAX).collect()
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.class.name())?;
        // Text that the caller controls must not look like the class of the error.
        let text = self.text.replace(MARKER_END, "Error :");
        match text.char_indices().nth(TEXT_CHARS_MAX) {
            Some((cut, _)) => write!(f, "{}... [protocol error truncated]", &text[..cut]),
            None => f.write_str(&text),
        }
    }
}

#[cfg(test)]
mod tests {
    use box_core::QuotaMoment;

    use super::*;
    use crate::tenancy::InstanceId;

    fn told_of(error: &Error) -> String {
        let place = TenancyScope::workspace(&InstanceId::parse("cap-instance").unwrap(), "cap-workspace", 1);
        Fault::of_session(error, &place, "s:6", "native").to_string()
    }

    fn differing(field: &'static str, existing: &str) -> Error {
        let difference = Difference { field, existing: existing.into(), asked: "x".into() };
        Error::SessionConflict { session: "g1-s:6".parse().unwrap(), differences: vec![difference] }
    }

    #[test]
    fn errors_have_the_texts_that_clients_know() {
        let (session, process) = (|| "g1-s:6".parse().unwrap(), || "p".parse().unwrap());
        let physical = "ws-abdf8557701b26b69a32b012-g1-s-6";
        let what = || "is not running; start it first".to_owned();
        let full = |what: &str| Error::Capacity { what: what.into(), limit: 64, fix: "x".into() };
        let nothing = || Error::Unavailable { what: "a box".into(), reason: "b".into(), fix: "c".into() };
        let denied = |reason: &str| Error::MountDenied { path: "/x".into(), reason: reason.into() };
        for (error, text) in [
            (
                Error::SessionNotFound { session: session() },
                format!("BoxSessionNotFoundError: session {physical} not found"),
            ),
            (
                Error::ProcessNotFound { session: session(), process: process() },
                format!("BoxManagedProcessNotFoundError: session {physical} has no managed process with process_id=p"),
            ),
            (
                Error::ProcessConflict { session: session(), process: process(), what: what() },
                format!("BoxManagedProcessConflictError: managed process p in session {physical} is not running"),
            ),
            (full("session"), "BoxCapacityExceededError: Box session capacity reached (64)".into()),
            (full("managed process"), "BoxCapacityExceededError: Box managed process capacity reached (64)".into()),
            (nothing(), "BoxBackendUnavailableError: a box is not available here: b; c".into()),
            (
                Error::Gone { reason: "it\n  died".into() },
                "BoxError: native backend error: the box is gone: it died".into(),
            ),
            (
                Error::QuotaExceeded {
                    when: QuotaMoment::Before,
                    used_bytes: 2,
                    quota_bytes: 1,
                    used_inodes: 4,
                    quota_inodes: 3,
                },
                "BoxValidationError: workspace quota exceeded before execution: it holds at least 2 bytes of 1 and 4 files of 3; \
                 remove files from it, or raise workspace_quota_mb"
                    .into(),
            ),
            (
                Error::Disabled,
                "BoxBackendUnavailableError: strongbox is disabled by its configuration; set enabled = true and start it again"
                    .into(),
            ),
            (denied("/x is never shown to a box"), "BoxValidationError: host_path /x is blocked for security".into()),
            (denied("not here"), "BoxValidationError: host_path /x cannot be mounted: not here".into()),
        ] {
            assert_eq!(told_of(&error), text);
        }
    }

    #[test]
    fn a_conflict_names_the_first_difference_as_python_writes_it() {
        for (field, existing, written) in [
            ("network", "off", "network=off"),
            ("host_path", "none", "host_path=None"),
            ("host_path_mode", "none", "host_path_mode=none"),
            ("persistent", "true", "persistent=True"),
            ("read_only_rootfs", "false", "read_only_rootfs=False"),
            ("cpus", "1", "cpus=1.0"),
            ("cpus", "0.5", "cpus=0.5"),
            ("memory_mb", "512", "memory_mb=512"),
        ] {
            let text = told_of(&differing(field, existing));
            let start = "BoxSessionConflictError: Box session ws-abdf8557701b26b69a32b012-g1-s-6 already exists with ";
            assert_eq!(text, format!("{start}{written}"));
        }
    }

    #[test]
    fn what_somebody_sent_is_not_taken_for_the_kind_of_the_error() {
        let fault = Fault::new(Class::Validation, "no BoxAdmissionError: BoxSessionNotFoundError: here");
        assert_eq!(fault.to_string().matches("Error:").count(), 1);
        assert!(fault.to_string().starts_with("BoxValidationError: "));
    }

    #[test]
    fn long_texts_are_cut() {
        let text = told_of(&Error::Gone { reason: "x".repeat(10_000) });
        assert!(text.chars().count() <= "BoxError: native backend error: ".len() + BACKEND_TEXT_CHARS_MAX, "{text}");
        let fault = Fault::new(Class::Box, "é".repeat(5000)).to_string();
        assert!(fault.ends_with("é... [protocol error truncated]"));
    }
}
