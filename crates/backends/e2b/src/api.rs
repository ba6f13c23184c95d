//! What is asked of the provider: sandboxes, by its control plane.

use std::sync::atomic::{AtomicBool, Ordering};

use box_core::Result;
use box_e2b_wire::SandboxId;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde::Serialize;

use crate::config::Secret;
use crate::failure::Failure;
use crate::limits::PAGES_MAX;
use crate::words::{CreateRequest, Detail, Listed, Metric, Sandbox};
use crate::{http, retry};

/// The provider's control plane.
#[derive(Debug)]
pub(crate) struct Api {
    client: Client,
    base: String,
    key: Secret,
    /// Whether the provider has shown that it only knows the first version of making and connecting.
    only_v1: AtomicBool,
}

/// The body of a request that has none.
const NOTHING: Option<&()> = None;

impl Api {
    pub(crate) fn new(client: Client, base: String, key: Secret) -> Self {
        Self { client, base, key, only_v1: AtomicBool::new(false) }
    }

    /// Makes a sandbox. `once` names this wish, so that it is granted only once.
    pub(crate) async fn create(&self, request: &CreateRequest, once: &str) -> Result<Sandbox, Failure> {
        if !self.only_v1.load(Ordering::Relaxed) {
            let wish = || self.request(Method::POST, "/v2/sandboxes").json(request).header("Idempotency-Key", once);
            match http::read(retry::send(wish).await?).await {
                Err(failure) if is_unknown(&failure) => {}
                made => return made,
            }
        }
        let request = CreateRequest { secure: Some(true), ..request.clone() };
        let made = self.ask(Method::POST, "/sandboxes", Some(&request)).await?;
        let made = http::read(made).await?;
        self.only_v1.store(true, Ordering::Relaxed);
        Ok(made)
    }

    /// Makes a sandbox run for so long from now on, and returns its address. A paused one is woken.
    pub(crate) async fn connect(&self, id: &SandboxId, timeout_sec: u64) -> Result<Sandbox, Failure> {
        let body = serde_json::json!({ "timeout": timeout_sec });
        if !self.only_v1.load(Ordering::Relaxed) {
            let answer = self.ask(Method::POST, &format!("/v2/sandboxes/{id}/connect"), Some(&body)).await?;
            match http::read(answer).await {
                Err(failure) if is_unknown(&failure) => {}
                connected => return connected,
            }
        }
        let answer = self.ask(Method::POST, &format!("/sandboxes/{id}/connect"), Some(&body)).await?;
        http::read(answer).await.map_err(|failure| gone_if_unknown(failure, id))
    }

    /// Lets a sandbox live for so long from now on.
    pub(crate) async fn set_timeout(&self, id: &SandboxId, timeout_sec: u64) -> Result<(), Failure> {
        let body = serde_json::json!({ "timeout": timeout_sec });
        let answer = self.ask(Method::POST, &format!("/sandboxes/{id}/timeout"), Some(&body)).await?;
        http::done(answer).await.map_err(|failure| gone_if_unknown(failure, id))
    }

    /// Ends a sandbox. One that is gone already is fine.
    pub(crate) async fn delete(&self, id: &SandboxId) -> Result<(), Failure> {
        match http::done(self.ask(Method::DELETE, &format!("/sandboxes/{id}"), NOTHING).await?).await {
            Err(failure) if is_unknown(&failure) => Ok(()),
            ended => ended,
        }
    }

    /// Stops a sandbox where it is. One that is stopped already is fine.
    pub(crate) async fn pause(&self, id: &SandboxId) -> Result<(), Failure> {
        let body = serde_json::json!({});
        match http::done(self.ask(Method::POST, &format!("/sandboxes/{id}/pause"), Some(&body)).await?).await {
            Err(failure) if failure.status() == Some(409) => Ok(()),
            stopped => stopped.map_err(|failure| gone_if_unknown(failure, id)),
        }
    }

    /// Everything that is known of a sandbox.
    pub(crate) async fn detail(&self, id: &SandboxId) -> Result<Detail, Failure> {
        let answer = self.ask(Method::GET, &format!("/sandboxes/{id}"), NOTHING).await?;
        http::read(answer).await.map_err(|failure| gone_if_unknown(failure, id))
    }

    /// What a sandbox consumes, as far as that was measured.
    pub(crate) async fn metrics(&self, id: &SandboxId) -> Result<Option<Metric>, Failure> {
        let answer = self.ask(Method::GET, &format!("/sandboxes/{id}/metrics"), NOTHING).await?;
        let all: Vec<Metric> = http::read(answer).await.map_err(|failure| gone_if_unknown(failure, id))?;
        Ok(all.last().copied())
    }

    /// All sandboxes whose metadata has these pairs. Names and values are of letters, digits, dashes and underscores, so that
    /// nothing in them has to be escaped, however often the provider undoes that.
    pub(crate) async fn list(&self, metadata: &[(&str, &str)]) -> Result<Vec<Listed>, Failure> {
        let pairs: Vec<String> = metadata.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let wanted = pairs.join("&");
        let (mut all, mut token) = (Vec::new(), None::<String>);
        for _ in 0..PAGES_MAX {
            let query = [("metadata", wanted.as_str()), ("state", "running,paused"), ("limit", "100")];
            let query = query.into_iter().chain(token.as_deref().map(|token| ("nextToken", token)));
            let path = http::with_query("/v2/sandboxes", query);
            let answer = self.ask(Method::GET, &path, NOTHING).await?;
            let next = answer.headers().get("x-next-token").and_then(|token| token.to_str().ok()).map(str::to_owned);
            let listed: Vec<Listed> = http::read(answer).await?;
            all.extend(listed.into_iter().filter(|one| has_all(one, metadata)));
            token = next.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(all);
            }
        }
        Err(Failure::Broken(format!("E2B lists more than {PAGES_MAX} pages of sandboxes")))
    }

    /// Whether the key is good for anything.
    pub(crate) async fn look(&self) -> Result<(), Failure> {
        let answer = self.ask(Method::GET, "/v2/sandboxes?limit=1", NOTHING).await?;
        http::read::<Vec<Listed>>(answer).await.map(drop)
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> Result<Response, Failure> {
        retry::send(|| {
            let request = self.request(method.clone(), path);
            match body {
                Some(body) => request.json(body),
                None => request,
            }
        })
        .await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base)).header("X-API-KEY", self.key.reveal())
    }
}

/// Whether the provider really looked at what was asked for: filters are easily passed over.
fn has_all(one: &Listed, metadata: &[(&str, &str)]) -> bool {
    metadata.iter().all(|(name, value)| one.metadata.get(*name).is_some_and(|found| found == value))
}

/// Whether the path, or what it names, is not known.
fn is_unknown(failure: &Failure) -> bool {
    matches!(failure.status(), Some(404 | 405))
}

fn gone_if_unknown(failure: Failure, id: &SandboxId) -> Failure {
    if is_unknown(&failure) { Failure::Gone(format!("E2B does not know its sandbox {id} any more")) } else { failure }
}
