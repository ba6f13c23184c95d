//! Archives of strangers: read strictly, counted while they are inflated, and never written anywhere by the library.
//!
//! Nothing of an archive is used before all of it has been looked at and inflated once. So what a preview shows is what an
//! installation writes, and an archive that another program could read differently is refused whole.

mod frame;
mod tree;

use std::io::{Cursor, Read, Write};

use zip::read::{ArchiveOffset, Config};
use zip::{CompressionMethod, ZipArchive};

use crate::error::{Error, Result, shown};
use crate::limits::{TEXT_BYTES_MAX, ZIP_BYTES_MAX, ZIP_ENTRY_BYTES_MAX, ZIP_RATIO_MAX, ZIP_TOTAL_BYTES_MAX};

pub(crate) use tree::{Node, Tree, join};

/// How much is inflated at a time.
const PIECE_BYTES: usize = 64 << 10;

/// An archive that was looked at from end to end.
pub(crate) struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    tree: Tree,
}

impl<'a> Archive<'a> {
    /// Reads and checks an archive.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Err(Error::UploadEmpty);
        }
        if bytes.len() > ZIP_BYTES_MAX {
            return Err(Error::UploadTooLarge);
        }
        let end = frame::End::find(bytes)?;
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let mut zip = ZipArchive::with_config(config, Cursor::new(bytes)).map_err(|error| not_zip(&error))?;
        if zip.has_duplicate_names() {
            return Err(Error::ArchiveDuplicate { path: "two entries have one name".into() });
        }
        zip.validate_header_consistency().map_err(|error| not_zip(&error))?;
        frame::check_tiles(bytes, &end, &mut zip)?;
        let tree = Tree::of(&zip)?;
        let mut archive = Self { zip, tree };
        archive.inflate_all()?;
        Ok(archive)
    }

    /// The files and directories in it.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Inflates one file.
    pub(crate) fn inflate(&mut self, index: usize, out: &mut impl Write) -> Result<u64> {
        let mut entry = self.zip.by_index(index).map_err(|error| not_zip(&error))?;
        let path = shown(&String::from_utf8_lossy(entry.name_raw()));
        let (declared, packed) = (entry.size(), entry.compressed_size());
        let mut piece = vec![0; PIECE_BYTES];
        let mut inflated = 0;
        loop {
            let count = entry.read(&mut piece).map_err(|error| not_zip(&error))?;
            if count == 0 {
                break;
            }
            inflated += count as u64;
            if inflated > ZIP_ENTRY_BYTES_MAX {
                return Err(Error::ArchiveEntrySize { path });
            }
            if inflated > packed.saturating_mul(ZIP_RATIO_MAX) {
                return Err(Error::ArchiveRatio { path: Some(path) });
            }
            out.write_all(&piece[..count])
                .map_err(|error| box_core::Error::io("writing a file of an archive", error))?;
        }
        if inflated != declared {
            return Err(Error::NotZip { reason: format!("{path} is not as large as the archive says") });
        }
        Ok(inflated)
    }

    /// The text of a file in the archive.
    pub(crate) fn text(&mut self, path: &str) -> Result<String> {
        let Some(Node::File { index, bytes, .. }) = self.tree.get(path) else {
            return Err(Error::FileNotFound { path: shown(path) });
        };
        crate::package::check_text_size(std::path::Path::new(path), usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let mut content = Vec::new();
        self.inflate(index, &mut content)?;
        debug_assert!(content.len() as u64 <= TEXT_BYTES_MAX, "the size was checked when all was inflated");
        String::from_utf8(content).map_err(|_| Error::NotText { path: shown(path) })
    }

    /// Inflates everything into nothing: sizes, ratios and checksums are then known to be true.
    fn inflate_all(&mut self) -> Result<()> {
        let (mut packed, mut total) = (0, 0);
        for index in 0..self.zip.len() {
            let entry = self.zip.by_index_data(index).map_err(|error| not_zip(&error))?;
            let path = || shown(&String::from_utf8_lossy(entry.name_raw()));
            if entry.encrypted() {
                return Err(Error::ArchiveEntry { what: "an encrypted entry", path: path() });
            }
            if !matches!(entry.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
                return Err(Error::ArchiveEntry { what: "an entry that is neither stored nor deflated", path: path() });
            }
            if entry.size() > ZIP_ENTRY_BYTES_MAX {
                return Err(Error::ArchiveEntrySize { path: path() });
            }
            packed += entry.compressed_size();
            total += self.inflate(index, &mut std::io::sink())?;
            if total > ZIP_TOTAL_BYTES_MAX {
                return Err(Error::ArchiveSize);
            }
        }
        if total > packed.saturating_mul(ZIP_RATIO_MAX) {
            return Err(Error::ArchiveRatio { path: None });
        }
        Ok(())
    }
}

fn not_zip(error: &dyn std::fmt::Display) -> Error {
    Error::NotZip { reason: shown(&error.to_string()) }
}
