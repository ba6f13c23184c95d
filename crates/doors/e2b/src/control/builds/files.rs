//! Files for COPY steps: clients ask where to send them, and send them there as one archive.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Extension, Path, State};
use box_core::Error;
use box_core::limits::UPLOAD_BYTES_MAX;
use box_core::snapshots::{Part, Reference, Room, remove_archive};
use box_core::store::TemplateState;
use flate2::read::MultiGzDecoder;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::create::{new_id, secret};
use super::super::owner::Owner;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::limits;
use door_http::blocking;
use door_http::body::{announced, discard, next_piece};
use door_http::gate::Scheme;

/// Hexadecimal digits of a digest of files.
const HASH_CHARS_MAX: usize = 128;

/// Bytes that are inflated at once.
const PIECE_BYTES: usize = 256 << 10;

/// How a compressed archive begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// `GET /templates/{id}/files/{hash}`
pub(in super::super) async fn link(
    State(app): State<App>,
    Owner(caller): Owner,
    Path((template, hash)): Path<(String, String)>,
    scheme: Option<Extension<Scheme>>,
    headers: HeaderMap,
) -> Result<(StatusCode, Json<Value>), E2bFailure> {
    check_hash(&hash)?;
    let versions = app.snapshots().versions(&caller, &Reference::read(&template)).await?;
    let waiting = versions.iter().find(|row| row.state == TemplateState::Waiting);
    let row = waiting.ok_or_else(|| E2bFailure::not_found("no build of this template waits for files"))?;
    let uploads = app.e2b().builds().uploads();
    let present = uploads.is_there(&caller.tenant, &row.template, &hash);
    if present {
        return Ok((StatusCode::CREATED, Json(json!({ "present": true }))));
    }
    let token = secret()?;
    let expected = uploads.expect(&caller.tenant, &row.template, &hash, token.clone());
    expected.map_err(|error| E2bFailure::invalid(error.to_string()))?;
    let base = address(scheme.map(|Extension(scheme)| scheme).unwrap_or_default(), &headers)?;
    let url = format!("{base}/templates/{}/files/{hash}/{token}", row.template);
    Ok((StatusCode::CREATED, Json(json!({ "present": false, "url": url }))))
}

fn check_hash(hash: &str) -> Result<(), E2bFailure> {
    let good = (1..=HASH_CHARS_MAX).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if good { Ok(()) } else { Err(E2bFailure::invalid("the hash of the files has hexadecimal digits")) }
}

/// Where the client reaches us, which is where it just did. A proxy before us says whether it was by TLS.
fn address(scheme: Scheme, headers: &HeaderMap) -> Result<String, E2bFailure> {
    let forwarded = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    let scheme = if forwarded { Scheme::Https } else { scheme };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.ok_or_else(|| E2bFailure::invalid("the header Host is missing"))?;
    Ok(format!("{}://{host}", scheme.as_str()))
}

/// `PUT` where the client was told to.
pub(in super::super) async fn upload(
    State(app): State<App>,
    Path((template, hash, token)): Path<(String, String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, E2bFailure> {
    let mut pieces = body.into_data_stream();
    let received = async {
        if announced(&headers).unwrap_or(0) > UPLOAD_BYTES_MAX {
            return Err(too_large());
        }
        app.service().check_writable()?;
        let uploads = app.e2b().builds().uploads();
        let begun = uploads.begin(&template, &hash, &token);
        let tenant = begun.map_err(|error| E2bFailure::new(StatusCode::FORBIDDEN, error.to_string()))?;
        let place = app.snapshots().directory()?.join(format!("upload-{}", new_id()?));
        let (sent_room, room) =
            (app.snapshots().upload_room(&tenant).await?, app.snapshots().upload_room(&tenant).await?);
        let sent = Part::make(place.with_extension("sent")).await?;
        let received = timeout(limits::E2B_UPLOAD_TIME_MAX, receive(&app, &mut pieces, &sent, sent_room)).await;
        let sent_room =
            received.map_err(|_| E2bFailure::new(StatusCode::REQUEST_TIMEOUT, "the files came too slowly"))??;
        let plain = Part::make(place.with_extension("part")).await?;
        let room = inflate(&app, &sent, &plain, room).await?;
        drop((sent, sent_room));
        let kept = place.with_extension("files");
        plain.finish(kept.clone()).await?;
        if let Some(unneeded) = uploads.finish(&tenant, &template, &hash, kept, room) {
            remove_archive(unneeded).await;
        }
        Ok(StatusCode::OK)
    };
    let received = received.await;
    if received.is_err() {
        discard(&mut pieces).await;
    }
    received
}

async fn receive(app: &App, pieces: &mut BodyDataStream, file: &Part, mut room: Room) -> Result<Room, E2bFailure> {
    while let Some(piece) = next_piece(pieces).await? {
        room.take(piece.len() as u64)?;
        app.service().check_writable()?;
        file.write(piece).await?;
    }
    Ok(room)
}

/// Writes the archive as it was before it was compressed, if it was. Each piece has room before it is written.
async fn inflate(app: &App, sent: &Part, to: &Part, mut room: Room) -> Result<Room, E2bFailure> {
    let (sent, to): (PathBuf, PathBuf) = (sent.path().to_owned(), to.path().to_owned());
    let service = app.service().clone();
    let inflate = move || -> Result<Room, E2bFailure> {
        let mut start = [0; GZIP.len()];
        let is_gzip = File::open(&sent).map_err(failed)?.read_exact(&mut start).is_ok() && start == GZIP;
        let sent = File::open(&sent).map_err(failed)?;
        let mut bytes: Box<dyn Read> = if is_gzip { Box::new(MultiGzDecoder::new(sent)) } else { Box::new(sent) };
        let mut plain = OpenOptions::new().write(true).open(&to).map_err(failed)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = bytes.read(&mut piece).map_err(failed)?;
            let Some(read) = piece.get(..count).filter(|read| !read.is_empty()) else { return Ok(room) };
            room.take(count as u64)?;
            service.check_writable()?;
            plain.write_all(read).map_err(failed)?;
        }
    };
    blocking(inflate).await?
}

fn failed(error: io::Error) -> E2bFailure {
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            E2bFailure::invalid(format!("the archive is not gzip, or ended too early: {error}"))
        }
        _ => Error::io("keeping files for a build", error).into(),
    }
}

fn too_large() -> E2bFailure {
    let mb = UPLOAD_BYTES_MAX >> 20;
    let message =
        format!("files of a COPY step may have {mb} MiB, and all of a tenant e2b_door.saved_mb_max; copy less");
    E2bFailure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}
