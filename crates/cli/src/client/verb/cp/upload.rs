//! Into a session.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use http::{Method, header};
use serde::Deserialize;

use crate::client::archive::pack;
use crate::client::copy_endpoint::{BoxPath, join, question};
use crate::client::http::{Answer, Client, read};
use crate::client::transfer::{Outlet, body, progress};
use crate::fault::{self, Fault};

/// What we look at of a file in a session.
#[derive(Debug, Deserialize)]
struct Entry {
    kind: String,
    size: u64,
}

/// Copies standard input to a file.
pub(super) async fn of_stream(client: &Client, to: &BoxPath) -> Result<u8, Fault> {
    let path = to.absolute(client).await?;
    if to.path.is_empty() || path.ends_with('/') {
        return Err(Fault::new("standard input has no name: name the file that it becomes"));
    }
    let copy = |outlet: &mut Outlet| io::copy(&mut io::stdin().lock(), outlet).map(drop);
    put(client, &question(&to.session, &[], &path), None, "-", copy).await?;
    Ok(0)
}

/// Copies a file or directory of this machine.
pub(super) async fn of_path(client: &Client, from: &Path, to: &BoxPath, go_on: bool) -> Result<u8, Fault> {
    let failed = |error: io::Error| Fault::new(format!("{}: {error}", from.display()));
    let metadata = std::fs::metadata(from).map_err(failed)?;
    let path = to.absolute(client).await?;
    if metadata.is_dir() {
        let only_contents = from.as_os_str().as_encoded_bytes().ends_with(b"/.");
        let path = if only_contents { path } else { target(client, &to.session, path, from).await? };
        return directory(client, from.to_owned(), &to.session, &path).await;
    }
    if !metadata.is_file() {
        return Err(Fault::new(format!("{} is not a regular file", from.display()))
            .hint("send it through a pipe: cat FILE | strongbox cp - SESSION:PATH"));
    }
    let path = target(client, &to.session, path, from).await?;
    let source = Source { file: File::open(from).map_err(failed)?, metadata, name: from.display().to_string() };
    if go_on {
        resume(client, source, &to.session, &path).await
    } else {
        source.send(client, &to.session, &path, None).await
    }
}

/// Where a copy goes: into a directory that is there, under its own name, or to the path itself.
async fn target(client: &Client, session: &str, path: String, from: &Path) -> Result<String, Fault> {
    let is_directory = path.ends_with('/')
        || match client.get(&format!("{}&limit=1", question(session, &["list"], &path))).await {
            Ok(_) => true,
            Err(fault) if ["not_found", "not_directory"].contains(&fault.code.as_ref()) => false,
            Err(fault) => return Err(fault),
        };
    if is_directory { Ok(join(&path, &own_name(from)?)) } else { Ok(path) }
}

/// The name of a file or directory, also where only dots were typed.
fn own_name(from: &Path) -> Result<String, Fault> {
    let whole = || std::fs::canonicalize(from).ok()?.file_name().map(ToOwned::to_owned);
    let name = from.file_name().map(ToOwned::to_owned).or_else(whole);
    let name = name.and_then(|name| name.into_string().ok());
    name.ok_or_else(|| Fault::new(format!("{} has no name that a box could take", from.display())))
}

async fn directory(client: &Client, from: PathBuf, session: &str, path: &str) -> Result<u8, Fault> {
    let question = format!("{}&archive=tar", question(session, &[], path));
    let name = from.display().to_string();
    let work = move |outlet: &mut Outlet| {
        let skipped = pack(&from, outlet)?;
        if skipped > 0 {
            fault::say(&format!("{skipped} special files were left out"));
        }
        Ok(())
    };
    put(client, &question, None, &name, work).await?;
    Ok(0)
}

/// Goes on behind what is in the session already.
async fn resume(client: &Client, source: Source, session: &str, path: &str) -> Result<u8, Fault> {
    let there = match client.get(&question(session, &["stat"], path)).await {
        Ok(answer) => match answer.read::<Entry>()? {
            Entry { kind, size } if kind == "file" => size,
            Entry { .. } => return Err(Fault::new(format!("{path} is not a regular file"))),
        },
        Err(fault) if fault.code == "not_found" => 0,
        Err(fault) => return Err(fault),
    };
    if there > source.metadata.len() {
        let message = format!("{path} has {there} bytes, more than {}", source.name);
        return Err(Fault::new(message).hint("without --continue it is replaced"));
    }
    source.send(client, session, path, Some(there)).await
}

/// A file of this machine.
struct Source {
    file: File,
    metadata: Metadata,
    name: String,
}

impl Source {
    fn question(&self, session: &str, path: &str) -> String {
        let mode = self.metadata.permissions().mode() & 0o777;
        format!("{}&mode={mode:04o}", question(session, &[], path))
    }

    /// Sends a file, from an offset on where it is written in place.
    async fn send(self, client: &Client, session: &str, path: &str, offset: Option<u64>) -> Result<u8, Fault> {
        let question = match offset {
            Some(offset) => format!("{}&offset={offset}", self.question(session, path)),
            None => self.question(session, path),
        };
        let start = offset.unwrap_or(0);
        let length = self.metadata.len().saturating_sub(start);
        let mut file = self.file;
        let work = move |outlet: &mut Outlet| {
            file.seek(SeekFrom::Start(start))?;
            let copied = io::copy(&mut file.take(length), outlet)?;
            if copied < length { Err(io::Error::other("the file became shorter while it was read")) } else { Ok(()) }
        };
        put(client, &question, Some(length), &self.name, work).await?;
        Ok(0)
    }
}

/// Sends a body that a thread writes.
async fn put(
    client: &Client,
    question: &str,
    length: Option<u64>,
    name: &str,
    work: impl FnOnce(&mut Outlet) -> io::Result<()> + Send + 'static,
) -> Result<Answer, Fault> {
    let bar = progress(name, length);
    let (body, error) = body(bar.clone(), work);
    let mut request = client.request(Method::PUT, question)?.map(|_| body);
    if let Some(length) = length {
        request.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    let answered = async { read(client.open_well(request).await?).await }.await;
    bar.finish_and_clear();
    answered.map_err(|fault| error.explain(fault))
}
