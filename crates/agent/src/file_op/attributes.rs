//! Extended attributes of files: what a caller wants to be kept with one, beside its bytes.

use std::os::fd::AsFd;

use box_wire::file_op::Attributes;
use box_wire::limits::ATTRIBUTES_BYTES_MAX;
use rustix::fs::XattrFlags;
use rustix::io::Result;

use super::place::by_descriptor;

/// Room for all names of one file, as much as the system gives.
const NAMES_BYTES: usize = 64 << 10;

/// Replaces all attributes with the prefix by these.
pub(super) fn replace(file: &impl AsFd, attributes: &Attributes) -> Result<()> {
    let path = by_descriptor(file);
    for name in names(&path, &attributes.prefix) {
        let kept = |rest: &str| attributes.values.iter().any(|(wanted, _)| wanted == rest);
        if !name.strip_prefix(&attributes.prefix).is_some_and(kept) {
            rustix::fs::removexattr(&path, &name)?;
        }
    }
    for (rest, value) in &attributes.values {
        let name = format!("{}{rest}", attributes.prefix);
        rustix::fs::setxattr(&path, &name, value.as_bytes(), XattrFlags::empty())?;
    }
    Ok(())
}

/// The extended attributes of a file with this prefix, by name: those that are text, as many as an answer may hold. A
/// file system without attributes has none.
pub(super) fn read(file: &impl AsFd, prefix: &str) -> Vec<(String, String)> {
    let path = by_descriptor(file);
    let mut told = Vec::new();
    let mut bytes = 0;
    for name in names(&path, prefix) {
        let Some(value) = value(&path, &name) else { continue };
        bytes += name.len() + value.len();
        if bytes > ATTRIBUTES_BYTES_MAX {
            break;
        }
        told.push((name[prefix.len()..].to_owned(), value));
    }
    told
}

fn value(path: &str, name: &str) -> Option<String> {
    let mut value = vec![0; ATTRIBUTES_BYTES_MAX];
    let length = rustix::fs::getxattr(path, name, &mut value).ok()?;
    value.truncate(length);
    String::from_utf8(value).ok()
}

/// The names that begin like this, sorted.
fn names(path: &str, prefix: &str) -> Vec<String> {
    let mut list = vec![0_u8; NAMES_BYTES];
    let length = rustix::fs::listxattr(path, &mut list).unwrap_or(0);
    let all = list[..length].split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let mut names: Vec<_> =
        all.filter(|name| name.starts_with(prefix) && !name.is_empty()).map(str::to_owned).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::io::Errno;

    use super::*;

    fn attributes(values: &[(&str, &str)]) -> Attributes {
        let values = values.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Attributes { prefix: "user.test.".to_owned(), values }
    }

    #[test]
    fn a_set_replaces_the_set_of_before_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = by_descriptor(file.as_file());
        match rustix::fs::setxattr(&path, "user.other", b"stays", XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => {
                assert_eq!(replace(file.as_file(), &attributes(&[("a", "1")])), Err(Errno::OPNOTSUPP));
                assert!(replace(file.as_file(), &attributes(&[])).is_ok() && read(file.as_file(), "user.").is_empty());
                return crate::skip("the temporary directory has no user attributes; set TMPDIR to one on ext4");
            }
            set => set.unwrap(),
        }
        replace(file.as_file(), &attributes(&[("b", "2"), ("a", "1")])).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read(file.as_file(), "user.test."), [pair("a", "1"), pair("b", "2")]);
        replace(&File::open(file.path()).unwrap(), &attributes(&[("b", "ü")])).unwrap();
        assert_eq!(read(file.as_file(), "user.test."), [pair("b", "ü")]);
        assert_eq!(read(file.as_file(), "user.other"), [pair("", "stays")]);
    }
}
