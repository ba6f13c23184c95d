//! Out of a session.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use box_core::SafeRoot;
use http::{HeaderMap, Method, StatusCode, header};

use super::partial::Partial;
use crate::client::archive::{Unpacked, unpack};
use crate::client::copy_endpoint::{BoxPath, last_name, question};
use crate::client::http::{Client, Opened};
use crate::client::transfer::{progress, receive};
use crate::exit::EXIT_OUTPUT_CLOSED;
use crate::fault::{self, Fault};

/// Permission bits of a directory that is made for a copy.
const DIRECTORY_MODE: u32 = 0o755;

/// What a path of a session is.
enum RemotePath {
    File(Opened),
    /// As an archive.
    Directory(Opened),
}

/// Copies to standard output: a file as it is, a directory as an archive.
pub(super) async fn to_stream(client: &Client, from: &BoxPath) -> Result<u8, Fault> {
    let path = from.absolute(client).await?;
    let (RemotePath::File(opened) | RemotePath::Directory(opened)) =
        fetch(client, from, &path, HeaderMap::new()).await?;
    let bar = progress(&path, length(&opened));
    receive(opened, bar, |inlet| {
        let mut stdout = io::stdout().lock();
        match io::copy(inlet, &mut stdout).and_then(|_| stdout.flush()) {
            Ok(()) => Ok(0),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(EXIT_OUTPUT_CLOSED),
            Err(error) => Err(Fault::new(error.to_string())),
        }
    })
    .await
}

/// Copies to a path of this machine.
pub(super) async fn to_path(client: &Client, from: &BoxPath, to: &Path, go_on: bool) -> Result<u8, Fault> {
    let path = from.absolute(client).await?;
    let name = last_name(&path).unwrap_or_default().to_owned();
    let target = if is_directory(to) { to.join(&name) } else { to.to_owned() };
    // Where a directory is in the way, the source may still be one.
    let partial = Partial::look(&target, go_on);
    let mut wanted = HeaderMap::new();
    if let Some(begun) = partial.as_ref().ok().and_then(|partial| partial.begun.as_ref()) {
        wanted.extend(format!("bytes={}-", begun.bytes).parse().map(|range| (header::RANGE, range)));
        wanted.insert(header::IF_RANGE, begun.tag.clone());
    }
    match fetch(client, from, &path, wanted).await {
        Ok(RemotePath::File(opened)) => file(opened, partial?, &target).await,
        Ok(RemotePath::Directory(opened)) => directory(opened, &path, to).await,
        // There is nothing behind what we have: that is all of it.
        Err(fault) if fault.code == "range_not_satisfiable" => partial?.complete().map(|()| 0),
        Err(fault) => Err(fault),
    }
}

/// Whether a copy gets a name of its own there.
fn is_directory(to: &Path) -> bool {
    to.is_dir() || to.as_os_str().as_encoded_bytes().ends_with(b"/")
}

async fn fetch(client: &Client, from: &BoxPath, path: &str, headers: HeaderMap) -> Result<RemotePath, Fault> {
    let question = question(&from.session, &[], path);
    let mut request = client.request(Method::GET, &question)?;
    request.headers_mut().extend(headers);
    match client.open_well(request).await {
        Ok(opened) => Ok(RemotePath::File(opened)),
        Err(fault) if fault.code == "is_directory" => {
            let request = client.request(Method::GET, &format!("{question}&archive=tar"))?;
            Ok(RemotePath::Directory(client.open_well(request).await?))
        }
        Err(fault) => Err(fault),
    }
}

fn length(opened: &Opened) -> Option<u64> {
    let length = opened.headers().get(header::CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

async fn file(opened: Opened, mut partial: Partial, target: &Path) -> Result<u8, Fault> {
    let continues = opened.status() == StatusCode::PARTIAL_CONTENT;
    let resumed = if continues { partial.resume() } else { None };
    if resumed.is_none() && partial.begun.is_some() {
        fault::say("the file has changed; its copy starts anew");
    }
    let mut file = match resumed {
        Some(file) => file.map_err(|error| Fault::new(error.to_string()))?,
        None => partial.begin(opened.headers())?,
    };
    let bar = progress(&target.display().to_string(), length(&opened));
    receive(opened, bar, move |inlet| match io::copy(inlet, &mut file) {
        Ok(_) => partial.complete().map(|()| 0),
        Err(error) => {
            let fault = Fault::new(error.to_string());
            Err(match partial.hint() {
                Some(hint) => fault.hint(hint),
                None => fault,
            })
        }
    })
    .await
}

async fn directory(opened: Opened, path: &str, to: &Path) -> Result<u8, Fault> {
    let root = prepare(path, to)?;
    let bar = progress(&to.display().to_string(), None);
    let Unpacked { skipped, .. } = receive(opened, bar, move |inlet| unpack(inlet, &root)).await?;
    if skipped > 0 {
        fault::say(&format!("{skipped} links and special files were left out"));
    }
    Ok(0)
}

/// The directory into which another is copied: of the same name where there is one to put it into, else a new one.
fn prepare(path: &str, to: &Path) -> Result<SafeRoot, Fault> {
    let only_contents = path.ends_with("/.");
    let failed = |error: io::Error| Fault::new(format!("{}: {error}", to.display()));
    match std::fs::metadata(to) {
        Ok(found) if !found.is_dir() => Err(failed(ErrorKind::NotADirectory.into())),
        Ok(_) => {
            let root = SafeRoot::open_path(to)?;
            match last_name(path).filter(|_| !only_contents) {
                Some(name) => {
                    root.make_directory_all(name, DIRECTORY_MODE)?;
                    Ok(root.below(PathBuf::from(name))?)
                }
                None => Ok(root),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            std::fs::create_dir(to).map_err(failed)?;
            Ok(SafeRoot::open_path(to)?)
        }
        Err(error) => Err(failed(error)),
    }
}
