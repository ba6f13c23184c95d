//! The key that seals a log. It has a file of its own, so that access to the log does not give access to the key.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::hexadecimal::{hexadecimal, sha256};
use crate::{Error, Result, random};

/// Bytes of a key, which the file has in hexadecimal.
const KEY_BYTES: usize = 32;

/// Bytes that SHA-256 works on at a time.
const BLOCK_BYTES: usize = 64;

/// Length of a key's id. The id reveals nothing about the key.
const ID_CHARS: usize = 16;

/// A key.
pub(super) struct Key {
    secret: [u8; KEY_BYTES],
    id: String,
}

impl Key {
    /// A new key.
    fn random() -> io::Result<Self> {
        Ok(Self::of(random::bytes()?))
    }

    pub(super) fn of(secret: [u8; KEY_BYTES]) -> Self {
        let id = sha256(&[b"strongbox audit key ", &secret[..]].concat());
        Self { secret, id: id[..ID_CHARS].to_owned() }
    }

    /// The key in a file, if there is one.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed());
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|error| failed(path, error))?,
        };
        let mut text = String::new();
        file.take(256).read_to_string(&mut text).map_err(|error| failed(path, error))?;
        let secret = parse(text.trim()).ok_or_else(|| {
            let reason = format!("expected {} hexadecimal digits", 2 * KEY_BYTES);
            unusable(path, &reason, "restore the file from a backup")
        })?;
        Ok(Some(Self::of(secret)))
    }

    /// Identifies the key in lines and errors.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The HMAC-SHA-256 of some bytes, in hexadecimal.
    pub(super) fn seal(&self, bytes: &[u8]) -> String {
        let padded = |pad: u8| {
            let mut block = [pad; BLOCK_BYTES];
            block.iter_mut().zip(self.secret).for_each(|(byte, secret)| *byte ^= secret);
            block
        };
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(bytes).finalize();
        hexadecimal(&Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize())
    }
}

/// Shown without the secret.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A key that a log is written with.
#[derive(Debug)]
pub(super) struct KeyFile {
    pub(super) key: Key,
    path: PathBuf,
    /// Where a key waits that no log is known to be sealed with yet.
    waiting: Option<PathBuf>,
}

impl KeyFile {
    /// Reads the key, or makes one. A new key waits under another name until [`KeyFile::establish`], so that the name of the
    /// file says whether the log must be sealed.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if let Some(key) = read_private(path)? {
            return Ok(Self { key, path: path.to_owned(), waiting: None });
        }
        let waiting = path.with_added_extension("new");
        let key = match read_private(&waiting) {
            Ok(Some(key)) => key,
            // What a crash left of a key that was never used.
            _ => create(&waiting).map_err(|error| failed(&waiting, error))?,
        };
        Ok(Self { key, path: path.to_owned(), waiting: Some(waiting) })
    }

    /// Whether no log is known to be sealed with it.
    pub(super) fn is_new(&self) -> bool {
        self.waiting.is_some()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives a new key its name, once the log is sealed with it.
    pub(super) fn establish(&mut self) -> Result<()> {
        if let Some(waiting) = self.waiting.take() {
            std::fs::rename(&waiting, &self.path).map_err(|error| failed(&self.path, error))?;
        }
        Ok(())
    }
}

/// The key in a file that only its owner can read.
fn read_private(path: &Path) -> Result<Option<Key>> {
    let Some(key) = Key::read(path)? else { return Ok(None) };
    let metadata = path.symlink_metadata().map_err(|error| failed(path, error))?;
    if metadata.uid() == rustix::process::geteuid().as_raw() && matches!(metadata.mode() & 0o777, 0o400 | 0o600) {
        return Ok(Some(key));
    }
    let reason = "others can read it; expected mode 0600 and the user that runs strongbox as its owner";
    Err(unusable(path, reason, &format!("chown it and chmod 600 {}", path.display())))
}

fn create(path: &Path) -> io::Result<Key> {
    let key = Key::random()?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{}\n", hexadecimal(&key.secret)).as_bytes())?;
    file.sync_all()?;
    Ok(key)
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
        return None;
    }
    let mut secret = [0; KEY_BYTES];
    for (byte, digits) in secret.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(secret)
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::io(format!("opening the key of the audit log in {}", path.display()), error)
}

fn unusable(path: &Path, reason: &str, fix: &str) -> Error {
    let what = format!("the key of the audit log in {}", path.display());
    Error::Unavailable { what, reason: reason.to_owned(), fix: fix.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seal_is_an_hmac() {
        // RFC 4231, test case 1, whose key is shorter and hence filled up with zeros.
        let mut secret = [0; KEY_BYTES];
        secret[..20].fill(0x0b);
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(Key::of(secret).seal(b"Hi There"), expected);
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.key");
        let mut first = KeyFile::open(&path).unwrap();
        assert!(first.is_new() && !path.exists());
        let after_a_crash = KeyFile::open(&path).unwrap();
        assert_eq!(after_a_crash.key.id(), first.key.id());
        first.establish().unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let again = KeyFile::open(&path).unwrap();
        assert!(!again.is_new() && again.key.id() == first.key.id());
        assert!(!format!("{again:?}").contains(std::fs::read_to_string(&path).unwrap().trim()));
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_none_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.key");
        KeyFile::open(&path).unwrap().establish().unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let error = KeyFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for bad in ["", "00", &"g".repeat(64), &"0".repeat(65)] {
            std::fs::write(&path, bad).unwrap();
            let error = KeyFile::open(&path).unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits"), "{bad}: {error}");
        }
    }
}
