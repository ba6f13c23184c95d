//! What strangers put into packages and archives, for programs that make it up. Each function takes any bytes and must come back; what
//! must hold is asserted.

use crate::archive::{Archive, Node};
use crate::front_matter::Document;
use crate::limits::{ZIP_NODES_MAX, ZIP_TOTAL_BYTES_MAX};

/// The text of a `SKILL.md`: read, written again with what was read, and read once more.
pub fn front_matter(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let document = Document::split(&text);
    let Ok(header) = document.header("SKILL.md") else { return };
    let Ok(again) = document.rewritten(&header, document.instructions) else { return };
    let Ok(read) = Document::split(&again).header("SKILL.md") else { panic!("what we write can be read: {again:?}") };
    let trimmed = |value: Option<String>| value.map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
    assert_eq!(trimmed(read.name), trimmed(header.name));
    assert_eq!(trimmed(read.display_name), trimmed(header.display_name));
    assert_eq!(trimmed(read.description), trimmed(header.description));
}

/// An archive: refused, or within every bound and with paths that lead nowhere but down.
pub fn archive(bytes: &[u8]) {
    let Ok(archive) = Archive::read(bytes) else { return };
    let mut total = 0;
    let nodes: Vec<_> = archive.tree().below("").collect();
    assert!(nodes.len() <= ZIP_NODES_MAX);
    for (path, node) in nodes {
        assert!(!path.starts_with('/') && path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path}");
        if let Node::File { bytes, .. } = node {
            total += bytes;
        }
    }
    assert!(total <= ZIP_TOTAL_BYTES_MAX);
}
