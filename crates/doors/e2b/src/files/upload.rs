//! Streams bytes into a sandbox: one file as the whole body, or several as parts of a form. Small files of a form are
//! gathered and written together; they use no more memory than one large file.

use std::collections::HashSet;

use axum::body::Body;
use box_core::service::files::{Source, pass_on};
use box_wire::GuestPath;
use box_wire::file_op::Detail;
use box_wire::limits::FILLED_MAX;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};

use super::form::{Form, FormError, PartHead, Piece};
use super::metadata;
use super::pieces::Pieces;
use crate::box_files::BoxFiles;
use crate::failure::E2bFailure;
use crate::limits;
use door_http::body::announced;

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
pub(crate) async fn receive_one(
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
    let (mut batch, mut known) = (Batch { files, metadata, small: Vec::new(), written: Vec::new() }, HashSet::new());
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
        batch.take(to, &mut parts).await?;
    }
    batch.flush().await?;
    if batch.written.is_empty() {
        return Err(E2bFailure::invalid("the form has no part named `file`"));
    }
    Ok(batch.written)
}

/// Files of a form on their way into the box.
struct Batch<'a> {
    files: &'a BoxFiles,
    /// Metadata of each file.
    metadata: Vec<(String, String)>,
    /// Complete files that wait to be written together.
    small: Vec<(GuestPath, Bytes)>,
    /// Written files, in the order of the form.
    written: Vec<Detail>,
}

impl Batch<'_> {
    /// Takes one file: buffers it, or streams it if it is too large for that.
    async fn take(&mut self, path: GuestPath, parts: &mut Parts<'_>) -> Result<(), E2bFailure> {
        let held: usize = self.small.iter().map(|(_, bytes)| bytes.len()).sum();
        let room = limits::UPLOAD_BUFFER_BYTES.saturating_sub(held);
        let mut bytes = BytesMut::new();
        while bytes.len() <= room {
            let Some(piece) = parts.next().await? else {
                self.small.push((path, bytes.freeze()));
                return if self.small.len() < FILLED_MAX { Ok(()) } else { self.flush().await };
            };
            bytes.extend_from_slice(&piece);
        }
        self.flush().await?;
        let mut whole = Rest { begun: Some(bytes.freeze()), parts };
        self.written.push(fill(self.files, path, Some(self.metadata.clone()), &mut whole).await?);
        Ok(())
    }

    /// Writes the buffered files.
    async fn flush(&mut self) -> Result<(), E2bFailure> {
        let small = std::mem::take(&mut self.small);
        let written = self.files.fill_many(&small, &self.metadata).await;
        self.written.append(&mut written.map_err(|error| self.files.told(error))?);
        Ok(())
    }
}

/// A part whose beginning was already read.
struct Rest<'a, 'b> {
    begun: Option<Bytes>,
    parts: &'a mut Parts<'b>,
}

impl Source for Rest<'_, '_> {
    type Error = E2bFailure;

    async fn next(&mut self) -> Result<Option<Bytes>, E2bFailure> {
        match self.begun.take() {
            Some(bytes) => Ok(Some(bytes)),
            None => self.parts.next().await,
        }
    }
}

impl Source for Pieces {
    type Error = E2bFailure;

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
            self.form.push(&bytes.ok_or_else(|| broken(FormError::Short))?);
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
    type Error = E2bFailure;

    async fn next(&mut self) -> Result<Option<Bytes>, E2bFailure> {
        match self.piece().await? {
            Piece::Bytes(bytes) => Ok(Some(bytes)),
            Piece::PartEnd | Piece::End | Piece::Head(_) => Ok(None),
        }
    }
}

fn broken(error: FormError) -> E2bFailure {
    E2bFailure::invalid(error.to_string())
}

/// Gives a file to a file operation.
async fn fill(
    files: &BoxFiles,
    path: GuestPath,
    metadata: Option<Vec<(String, String)>>,
    source: &mut impl Source<Error = E2bFailure>,
) -> Result<Detail, E2bFailure> {
    let filled = pass_on(source, |input| files.fill(path, metadata, limits::FILE_BYTES_MAX, input)).await?;
    filled.map_err(|error| files.told(error))
}
