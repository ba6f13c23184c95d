//! Bytes into a sandbox, as they come: one file as the whole body, or several as parts of a form. Nothing is gathered here.

use std::collections::HashSet;

use axum::body::Body;
use box_wire::GuestPath;
use box_wire::errand::Detail;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::form::{Form, FormTrouble, PartHead, Piece};
use super::metadata;
use super::pieces::Pieces;
use crate::body::announced;
use crate::e2b::box_files::BoxFiles;
use crate::e2b::failure::E2bFailure;
use crate::limits;

/// The name of parts that are files. Others are nothing to us.
const FILE: &str = "file";

/// Takes all files of a body. Where they go stands in the address for one, and in the form for several. Whoever is refused is first
/// let say everything: a client that still writes would see a broken connection instead of the reason.
pub(super) async fn receive(
    files: Result<BoxFiles, E2bFailure>,
    path: Option<&str>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Vec<Detail>, E2bFailure> {
    let mut pieces = Pieces::new(headers, body)?;
    let received = async {
        let files = files?;
        check_size(headers)?;
        let metadata = metadata::of(headers)?;
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        match kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            "multipart/form-data" => {
                let parts = Parts { form: Form::new(kind).map_err(broken)?, pieces: &mut pieces };
                receive_form(&files, path, metadata, parts).await
            }
            "application/octet-stream" => {
                let path = path.filter(|path| !path.is_empty());
                let path = path.ok_or_else(|| E2bFailure::invalid("path is needed: where the file goes"))?;
                let path = files.path(path).map_err(|error| files.told(error))?;
                Ok(vec![fill(&files, path, Some(metadata), &mut pieces).await?])
            }
            _ => Err(E2bFailure::invalid("send multipart/form-data or application/octet-stream")),
        }
    };
    let received = received.await;
    if received.is_err() {
        pieces.discard().await;
    }
    received
}

/// Takes a body as one file, of which nothing else is said.
pub(in crate::e2b) async fn receive_one(
    files: &BoxFiles,
    path: GuestPath,
    headers: &HeaderMap,
    body: Body,
) -> Result<Detail, E2bFailure> {
    check_size(headers)?;
    fill(files, path, None, &mut Pieces::new(headers, body)?).await
}

fn check_size(headers: &HeaderMap) -> Result<(), E2bFailure> {
    let size = announced(headers).unwrap_or(0);
    if size <= limits::FILE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("a file may have at most {} bytes; this body has {size}", limits::FILE_BYTES_MAX);
    Err(E2bFailure::new(StatusCode::PAYLOAD_TOO_LARGE, message))
}

async fn receive_form(
    files: &BoxFiles,
    path: Option<&str>,
    metadata: Vec<(String, String)>,
    mut parts: Parts<'_>,
) -> Result<Vec<Detail>, E2bFailure> {
    let (mut written, mut known) = (Vec::new(), HashSet::new());
    while let Some(head) = parts.head().await? {
        if head.name != FILE {
            while parts.next().await?.is_some() {}
            continue;
        }
        let named = path.map(str::to_owned).or(head.file_name).filter(|name| !name.is_empty());
        let named =
            named.ok_or_else(|| E2bFailure::invalid("a part of the form has no filename, and there is no path"))?;
        let to = files.path(&named).map_err(|error| files.told(error))?;
        if !known.insert(to.clone()) {
            return Err(E2bFailure::invalid(format!("{to} comes twice; send each file once")));
        }
        written.push(fill(files, to, Some(metadata.clone()), &mut parts).await?);
    }
    if written.is_empty() {
        return Err(E2bFailure::invalid("the form has no part named `file`"));
    }
    Ok(written)
}

/// Where the bytes of one file come from.
trait Source {
    /// The next of them; nothing at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, E2bFailure>;
}

impl Source for Pieces {
    async fn next(&mut self) -> Result<Option<Bytes>, E2bFailure> {
        Pieces::next(self).await
    }
}

/// A form that is still coming.
struct Parts<'a> {
    form: Form,
    pieces: &'a mut Pieces,
}

impl Parts<'_> {
    async fn piece(&mut self) -> Result<Piece, E2bFailure> {
        loop {
            if let Some(piece) = self.form.next().map_err(broken)? {
                return Ok(piece);
            }
            let bytes = self.pieces.next().await?;
            self.form.push(&bytes.ok_or_else(|| broken(FormTrouble::Short))?);
        }
    }

    /// The next part; nothing when there are no more. The one before must have been read.
    async fn head(&mut self) -> Result<Option<PartHead>, E2bFailure> {
        loop {
            match self.piece().await? {
                Piece::Head(head) => return Ok(Some(head)),
                Piece::End => return Ok(None),
                Piece::Bytes(_) | Piece::PartEnd => {}
            }
        }
    }
}

impl Source for Parts<'_> {
    async fn next(&mut self) -> Result<Option<Bytes>, E2bFailure> {
        match self.piece().await? {
            Piece::Bytes(bytes) => Ok(Some(bytes)),
            Piece::PartEnd | Piece::End | Piece::Head(_) => Ok(None),
        }
    }
}

fn broken(trouble: FormTrouble) -> E2bFailure {
    E2bFailure::invalid(trouble.to_string())
}

/// Gives a file to an errand. What breaks off ends the errand before it hears of an end.
async fn fill(
    files: &BoxFiles,
    path: GuestPath,
    metadata: Option<Vec<(String, String)>>,
    source: &mut impl Source,
) -> Result<Detail, E2bFailure> {
    let (near, far) = tokio::io::duplex(limits::UPLOAD_BUFFER_BYTES);
    let errand = files.fill(path, metadata, limits::FILE_BYTES_MAX, far);
    tokio::pin!(errand);
    let done = tokio::select! {
        done = &mut errand => done,
        fed = feed(source, near) => match fed {
            Ok(()) => errand.await,
            Err(failure) => return Err(failure),
        },
    };
    done.map_err(|error| files.told(error))
}

/// Passes bytes on to their end.
async fn feed(source: &mut impl Source, mut near: DuplexStream) -> Result<(), E2bFailure> {
    while let Some(piece) = source.next().await? {
        if near.write_all(&piece).await.is_err() {
            // Nobody takes it any more: what the errand has to say is awaited elsewhere.
            return std::future::pending().await;
        }
    }
    // Closing it now is the end that the errand waits for.
    Ok(())
}
