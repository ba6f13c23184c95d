//! Checks of a file operation before anything is started.

use super::{Attributes, FileOp, FileRequest, detail};
use crate::{Invalid, limits};

impl FileRequest {
    /// Checks every size before anything is started.
    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        self.op.validate()
    }
}

impl FileOp {
    fn validate(&self) -> Result<(), Invalid> {
        let at_most = |field, value: u32, max: u32| {
            let fits = (1..=max).contains(&value);
            if fits { Ok(()) } else { Err(Invalid::new(field, value, format!("from 1 to {max}"))) }
        };
        match self {
            FileOp::List { depth, entries_max, .. } => {
                at_most("depth", *depth, limits::DEPTH_MAX)?;
                at_most("limit", *entries_max, limits::ENTRIES_MAX)
            }
            FileOp::Lines { lines_max, bytes_max, .. } => {
                at_most("limit", *lines_max, limits::LINES_MAX)?;
                at_most("bytes_max", *bytes_max, limits::TEXT_BYTES_MAX)
            }
            FileOp::Glob { pattern, matches_max, .. } => {
                check_pattern("pattern", pattern)?;
                at_most("limit", *matches_max, limits::MATCHES_MAX)
            }
            FileOp::Grep { pattern, include, matches_max, .. } => {
                check_pattern("pattern", pattern)?;
                check_pattern("include", include.as_deref().unwrap_or("*"))?;
                at_most("limit", *matches_max, limits::MATCHES_MAX)
            }
            FileOp::Edit { old, new, .. } if old.len() + new.len() > limits::EDIT_TEXT_BYTES_MAX => {
                let allowed = format!("old and new text of at most {} bytes together", limits::EDIT_TEXT_BYTES_MAX);
                Err(Invalid::new("old_string", old.len() + new.len(), allowed))
            }
            FileOp::Edit { old, .. } if old.is_empty() => {
                Err(Invalid::new("old_string", old, "the text that is to be replaced; to make a file, write it"))
            }
            FileOp::InDetail { op, attributes } => {
                check_prefix(attributes.as_deref())?;
                op.told_in_detail()?.validate()
            }
            FileOp::OnBehalf { op, .. } if matches!(**op, FileOp::OnBehalf { .. }) => {
                Err(Invalid::new("work", "work on behalf of two users", "work on behalf of one user"))
            }
            FileOp::OnBehalf { op, .. } => op.validate(),
            FileOp::Follow { attributes, .. } => check_prefix(attributes.as_deref()),
            FileOp::FillMany { files, .. } if !(1..=limits::FILLED_MAX).contains(&files.len()) => {
                let allowed = format!("1 to {} files", limits::FILLED_MAX);
                Err(Invalid::new("files", files.len(), allowed))
            }
            FileOp::Fill { attributes, .. } | FileOp::FillMany { attributes, .. } => {
                attributes.as_ref().map_or(Ok(()), Attributes::validate)
            }
            FileOp::Adjust { mode: Some(mode), .. } if *mode > 0o777 => {
                Err(Invalid::new("mode", format!("{mode:o}"), "permission bits from 0 to 777"))
            }
            FileOp::Join { sources, .. } if !(1..=limits::JOINED_MAX).contains(&sources.len()) => {
                let allowed = format!("1 to {} files", limits::JOINED_MAX);
                Err(Invalid::new("sources", sources.len(), allowed))
            }
            _ => Ok(()),
        }
    }
}

impl FileOp {
    /// Itself, if it is answered with entries and nothing else.
    fn told_in_detail(&self) -> Result<&Self, Invalid> {
        match self {
            Self::Stat { .. }
            | Self::List { .. }
            | Self::Write { .. }
            | Self::MakeDirectory { .. }
            | Self::Move { .. }
            | Self::Fill { .. }
            | Self::FillMany { .. }
            | Self::Relocate { .. }
            | Self::Join { .. }
            | Self::Adjust { .. } => Ok(self),
            _ => Err(Invalid::new("work", "work without entries", "work that is answered with entries")),
        }
    }
}

fn check_prefix(prefix: Option<&str>) -> Result<(), Invalid> {
    prefix.map_or(Ok(()), |prefix| detail::check_name("attributes", prefix))
}

fn check_pattern(field: &'static str, pattern: &str) -> Result<(), Invalid> {
    if pattern.is_empty() || pattern.len() > limits::PATTERN_BYTES_MAX || pattern.contains('\0') {
        let allowed = format!("1 to {} bytes without NUL", limits::PATTERN_BYTES_MAX);
        return Err(Invalid::new(field, pattern, allowed));
    }
    Ok(())
}
