//! A registry client, and its limits on answers.
//!
//! Every answer is verified by its digest, except the manifest of a tag, whose size is bounded. Credentials go only to
//! the registry and to its token server, over TLS or to this machine, and never into a message: of an error response
//! only the code is shown.

mod challenge;
mod credentials;
mod http;

use std::net::SocketAddr;
use std::sync::Arc;

use ::http::{HeaderMap, HeaderValue, StatusCode, header};
use box_core::public_address::{Reach, is_public};
use box_core::{Error, ImageName, Progress, PullStep};
use box_http_client::{Address, Client};
use bytes::Bytes;
use tokio::sync::{OnceCell, mpsc};

use self::challenge::Challenge;
pub(crate) use self::credentials::Credentials;
use self::http::Answer;
use crate::blob::BlobWriter;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::limits::{ANSWER_BYTES_MAX, ATTEMPTS_MAX, MANIFEST_BYTES_MAX, REDIRECTS_MAX};
use crate::manifest::{ACCEPTED, Descriptor};
use crate::store::{Store, Turn};

/// Pieces of a blob that wait to be written.
const PIECES_MAX: usize = 32;

/// A repository of a registry.
pub(crate) struct Registry {
    client: Client,
    /// The registry's address.
    place: Address,
    /// The addresses that it may have.
    reach: Reach,
    /// Its addresses: resolved once, for all requests.
    found: OnceCell<Vec<SocketAddr>>,
    repository: String,
    credentials: Option<Credentials>,
    /// The credentials for the registry, once it has asked for some.
    authorization: tokio::sync::Mutex<Option<HeaderValue>>,
}

impl Registry {
    pub(crate) fn new(name: &ImageName, reach: Reach, credentials: Option<Credentials>) -> Result<Self, Failure> {
        let host = if name.registry() == "docker.io" { "registry-1.docker.io" } else { name.registry() };
        // Only loopback registries are used without TLS.
        let scheme = if name.is_loopback() { "http" } else { "https" };
        Ok(Self {
            client: http::client(),
            place: http::address(None, &format!("{scheme}://{host}/v2/"))?,
            reach: if name.is_loopback() { Reach::Loopback } else { reach },
            found: OnceCell::new(),
            repository: name.repository().to_owned(),
            credentials,
            authorization: tokio::sync::Mutex::default(),
        })
    }

    /// A manifest or a list of them, by tag or by digest.
    pub(crate) async fn manifest(&self, tag: &str, digest: Option<&Digest>) -> Result<Vec<u8>, Failure> {
        let answer = self.ask(&format!("/v2/{}/manifests/{tag}", self.repository), Some(ACCEPTED)).await?;
        let bytes = answer.read(MANIFEST_BYTES_MAX).await?;
        verified(bytes, digest, "its manifest")
    }

    /// A blob that is read into memory.
    pub(crate) async fn small_blob(&self, digest: &Digest, size_bytes: u64) -> Result<Vec<u8>, Failure> {
        let answer = self.ask(&self.blob_path(digest), None).await?;
        verified(answer.read(size_bytes).await?, Some(digest), "its configuration")
    }

    /// Puts a blob into the store, unless it is there or another task is fetching it.
    pub(crate) async fn keep_blob(
        &self,
        store: &Arc<Store>,
        layer: &Descriptor,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let _turn = store.turn(Turn::Blob, layer.digest.digits()).await?;
        if store.has(Store::blob(&layer.digest))? {
            report(progress, layer, layer.size);
            return Ok(());
        }
        let mut attempt = 1;
        loop {
            match self.fetch_blob(store, layer, progress).await {
                // A connection that breaks is tried again; what is wrong stays wrong.
                Err(Failure::Unavailable(..)) if attempt < ATTEMPTS_MAX => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    async fn fetch_blob(&self, store: &Arc<Store>, layer: &Descriptor, progress: &Progress) -> Result<(), Failure> {
        let mut answer = self.ask(&self.blob_path(&layer.digest), None).await?;
        let (pieces, written) = start_writing(store, layer);
        let copied = copy(&mut answer, pieces, layer, progress).await;
        // Waiting for the writer after a failure too means that an attempt leaves nothing behind when it returns.
        let written = written.await.map_err(|error| Error::io("storing a layer", std::io::Error::other(error)))?;
        copied.and(written)
    }

    fn blob_path(&self, digest: &Digest) -> String {
        format!("/v2/{}/blobs/{digest}", self.repository)
    }

    /// Asks the registry, once more with a proof of who we are if it wants one.
    async fn ask(&self, path: &str, accept: Option<&'static str>) -> Result<Answer, Failure> {
        let address = http::address(Some(&self.place), path)?;
        let shown = self.authorization.lock().await.clone();
        let answer = self.follow(address.clone(), shown.clone(), accept).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return checked(answer).await;
        }
        let mut authorization = self.authorization.lock().await;
        if *authorization == shown {
            *authorization = Some(self.authorize(answer.headers()).await?);
        }
        let proof = authorization.clone();
        drop(authorization);
        checked(self.follow(address, proof, accept).await?).await
    }

    /// Follows redirects. Credentials go to the registry alone.
    async fn follow(
        &self,
        mut address: Address,
        authorization: Option<HeaderValue>,
        accept: Option<&'static str>,
    ) -> Result<Answer, Failure> {
        for _ in 0..=REDIRECTS_MAX {
            let found = self.resolve(&address).await?;
            let proof = authorization.as_ref().filter(|_| address.is_same_origin(&self.place));
            let answer = http::get(&self.client, &address, &found, proof, accept).await?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
            let location = answer.headers().get(header::LOCATION);
            let location = location.and_then(|location| location.to_str().ok()).unwrap_or_default();
            address = http::address(Some(&address), location)?;
        }
        Err("its registry leads from one address to the next without end".into())
    }

    /// Resolves an address, if it is allowed: that of the registry itself, or one that it names for blobs and tokens.
    async fn resolve(&self, address: &Address) -> Result<Vec<SocketAddr>, Failure> {
        self.check(address)?;
        let own = self.found.get_or_try_init(|| http::resolve(&self.place, self.reach)).await?;
        if address.is_same_origin(&self.place) {
            return Ok(own.clone());
        }
        // A registry on a private network names others there. One that is not there has no say about that network.
        let is_inside = self.reach == Reach::Any && !own.iter().all(|found| is_public(found.ip()));
        let reach = match self.reach {
            Reach::Loopback if address.is_loopback() => Reach::Loopback,
            _ if is_inside => Reach::PublicOrPrivate,
            _ => Reach::Public,
        };
        http::resolve(address, reach).await
    }

    /// Refuses addresses without TLS, except loopback addresses of a loopback registry.
    fn check(&self, address: &Address) -> Result<(), Failure> {
        if address.is_encrypted() || (address.is_loopback() && self.place.is_loopback()) {
            return Ok(());
        }
        Err(format!("its registry leads to {}, which is not encrypted", address.host()).into())
    }

    /// Finds out what the registry wants to see.
    async fn authorize(&self, asked: &HeaderMap) -> Result<HeaderValue, Failure> {
        let challenges = asked.get_all(header::WWW_AUTHENTICATE).iter().filter_map(Challenge::parse);
        let challenges: Vec<Challenge> = challenges.collect();
        if let Some(realm) = challenges.iter().find_map(Challenge::bearer) {
            return self.token(&realm.address(&self.repository)?).await;
        }
        let is_basic = challenges.iter().any(Challenge::is_basic);
        match &self.credentials {
            Some(credentials) if is_basic => Ok(credentials.header()?),
            _ => Err(denied("it is not given to strangers")),
        }
    }

    async fn token(&self, address: &Address) -> Result<HeaderValue, Failure> {
        let found = self.resolve(address).await?;
        let proof = self.credentials.as_ref().map(Credentials::header).transpose()?;
        let answer = http::get(&self.client, address, &found, proof.as_ref(), None).await?;
        if answer.status() != StatusCode::OK {
            return Err(denied(&format!("{} gives no token for it ({})", address.host(), answer.status())));
        }
        let bytes = answer.read(ANSWER_BYTES_MAX as u64).await?;
        challenge::read_token(&bytes)
    }
}

/// Hands a blob to its writer piece by piece. Without [`Piece::End`] the writer discards what it has.
async fn copy(
    answer: &mut Answer,
    pieces: mpsc::Sender<Piece>,
    layer: &Descriptor,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut done = 0;
    while let Some(piece) = answer.piece().await? {
        done += piece.len() as u64;
        // A writer that has ended returns its own error.
        if pieces.send(Piece::Bytes(piece)).await.is_err() {
            return Ok(());
        }
        report(progress, layer, done);
    }
    drop(pieces.send(Piece::End).await);
    Ok(())
}

fn report(progress: &Progress, layer: &Descriptor, done_bytes: u64) {
    let part = layer.digest.short().to_owned();
    progress(&PullStep { part, done_bytes, total_bytes: Some(layer.size) });
}

fn verified(bytes: Vec<u8>, digest: Option<&Digest>, what: &str) -> Result<Vec<u8>, Failure> {
    let found = Digest::of(&bytes);
    match digest.filter(|expected| **expected != found) {
        Some(expected) => {
            Err(format!("{what} is not what it was said to be: {expected} was expected, {found} came").into())
        }
        None => Ok(bytes),
    }
}

/// What goes to the writer of a blob. A channel that closes without `End` means that the download was canceled.
enum Piece {
    Bytes(Bytes),
    End,
}

type Written = tokio::task::JoinHandle<Result<(), Failure>>;

/// Starts a writer that outlives a canceled download, and then removes what it wrote.
fn start_writing(store: &Arc<Store>, layer: &Descriptor) -> (mpsc::Sender<Piece>, Written) {
    let (pieces, mut coming) = mpsc::channel(PIECES_MAX);
    let (store, layer) = (Arc::clone(store), layer.clone());
    let written = box_core::tasks::blocking(move || {
        let mut writer = BlobWriter::begin(&store, layer.size)?;
        loop {
            match coming.blocking_recv() {
                Some(Piece::Bytes(bytes)) => writer.write(&bytes)?,
                Some(Piece::End) => return writer.finish(Some(&layer.digest)).map(drop),
                None => return Err(broken_off()),
            }
        }
    });
    (pieces, written)
}

fn broken_off() -> Failure {
    Failure::Unavailable("the connection to its registry broke off".to_owned(), "try again")
}

fn denied(reason: &str) -> Failure {
    let fix = "check its name, and that image_auth_file has a name and password for its registry";
    Failure::Unavailable(format!("access was denied: {reason}"), fix)
}

/// Turns an answer that is none into the reason.
async fn checked(answer: Answer) -> Result<Answer, Failure> {
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(answer);
    }
    let codes =
        answer.read(ANSWER_BYTES_MAX as u64).await.map(|body| challenge::error_codes(&body)).unwrap_or_default();
    let codes = if codes.is_empty() { String::new() } else { format!(", {codes}") };
    match status {
        StatusCode::NOT_FOUND => Err(format!("its registry does not have it ({status}{codes})").into()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(denied(&format!("its registry answers {status}{codes}")))
        }
        StatusCode::TOO_MANY_REQUESTS => {
            let reason = format!("its registry answers {status}{codes}");
            Err(Failure::Unavailable(reason, "wait, or use a name and password with image_auth_file"))
        }
        _ => Err(Failure::Unavailable(format!("its registry answers {status}{codes}"), "try again later")),
    }
}
