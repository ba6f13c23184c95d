//! A `/tmp` of its own for programs that run beside others, in a mount namespace that they already have.

use anyhow::{Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Where directories lie that must stay visible when `/tmp` is covered.
pub(crate) const PLACE: &str = "/var/tmp";

/// Defines the shell function `cover_tmp DIRECTORY CHECKOUT`, which shows DIRECTORY as `/tmp`. A checkout that lies in `/tmp` stays
/// visible.
pub(crate) const COVER: &str = r#"cover_tmp() {
    case "$2" in
    /tmp/*) mkdir -p "$1/${2#/tmp/}" && mount --bind "$2" "$1/${2#/tmp/}" || return 1 ;;
    esac
    mount --rbind "$1" /tmp
}
"#;

/// Lets every user write to a directory that is to become `/tmp`.
pub(crate) fn open_to_all(directory: &Path) -> Result<()> {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o1777))
        .with_context(|| format!("cannot change the mode of {}", directory.display()))
}
