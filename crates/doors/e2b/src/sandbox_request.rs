//! A request that is meant for one sandbox, and may be: found, opened by the right token, and running.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Query};
use box_core::session::SessionState;
use box_core::store::{SandboxRow, TemplateDefaults};
use box_core::{Caller, Error, Scope, SessionId, TenantId};
use box_e2b_wire::signature::{Operation, Signed};
use box_e2b_wire::{BoxUser, SandboxId};
use box_wire::User;
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Uri};
use jiff::{SignedDuration, Timestamp};
use subtle::ConstantTimeEq;

use super::lifetimes;
use super::refusal::Refusal;
use crate::app::App;
use door_http::body::ChargedTo;
use door_http::seats;

/// The header with what opens the inside of a sandbox.
pub(crate) const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");

/// The header with what opens ports of a sandbox that are not for everybody.
const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");

/// A request meant for one sandbox that runs.
#[derive(Debug, Clone)]
pub(crate) struct SandboxRequest {
    /// On whose behalf: whoever has the sandbox's token may do in it what its maker may.
    pub(crate) caller: Caller,
    /// The session that the sandbox is.
    pub(crate) session: SessionId,
    /// The same in E2B's words.
    pub(crate) sandbox: SandboxId,
    /// The port that is meant.
    pub(crate) port: u16,
    /// Variables of everything that runs in the sandbox. Its session has them too.
    pub(crate) env: Arc<BTreeMap<String, String>>,
    /// What holds in the sandbox where nobody says otherwise.
    pub(crate) defaults: Arc<TemplateDefaults>,
}

impl SandboxRequest {
    /// Who acts where nobody is named.
    pub(crate) fn usual_user(&self) -> BoxUser {
        usual_user(&self.defaults)
    }
}

/// The same for what clients ask without an access token. Whoever knows the id may, which nobody can guess; unless the sandbox takes
/// no public traffic: then it takes the token for that. A token that is shown must be right all the same.
#[derive(Debug, Clone)]
pub(crate) struct OpenSandboxRequest(pub(crate) SandboxRequest);

/// Which sandbox is meant, and which of its ports. Routing puts it into the extensions of a request.
#[derive(Debug, Clone)]
pub(super) struct SandboxTarget {
    pub(super) sandbox: SandboxId,
    pub(super) row: Arc<SandboxRow>,
    pub(super) port: u16,
}

/// As whom something is done, in the words of our agent.
pub(crate) trait Acting {
    /// Nothing for the user to whom the session belongs.
    fn wire(self) -> Option<User>;
}

impl Acting for BoxUser {
    fn wire(self) -> Option<User> {
        match self {
            Self::User => None,
            Self::Root => Some(User::ROOT),
        }
    }
}

impl FromRequestParts<App> for SandboxRequest {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let target = target(parts)?;
        check_access(&target.row, parts)?;
        seats::trust(&parts.extensions);
        let sandbox_request = target.reach(app).await?;
        parts.extensions.insert(ChargedTo::new(app.service(), &sandbox_request.caller));
        Ok(sandbox_request)
    }
}

impl FromRequestParts<App> for OpenSandboxRequest {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let target = target(parts)?;
        if parts.headers.contains_key(ACCESS_TOKEN) {
            check_access(&target.row, parts)?;
        } else {
            target.admits(&parts.headers)?;
        }
        // The name of a sandbox cannot be guessed, and clients that have nothing else keep their connections too.
        seats::trust(&parts.extensions);
        target.reach(app).await.map(Self)
    }
}

/// What routing found. A request that did not come by it is meant for nobody.
fn target(parts: &Parts) -> Result<SandboxTarget, Refusal> {
    parts.extensions.get::<SandboxTarget>().cloned().ok_or(Refusal::Unauthorized)
}

impl SandboxTarget {
    /// The sandbox, once it runs: one that is stopped goes on if its maker said so.
    pub(super) async fn reach(self, app: &App) -> Result<SandboxRequest, Refusal> {
        let caller = caller_of(&self.row);
        let session = self.row.key.id.clone();
        match app.service().session_state(&caller, &session) {
            Ok(SessionState::Running) => {}
            Ok(SessionState::Paused) if self.row.auto_resume => self.wake(app, &caller).await?,
            Err(error @ Error::Unavailable { .. }) => return Err(error.into()),
            _ => return Err(self.absent()),
        }
        let env = Arc::new(self.row.env.clone());
        let defaults = Arc::new(self.row.defaults.clone());
        Ok(SandboxRequest { caller, session, sandbox: self.sandbox, port: self.port, env, defaults })
    }

    /// Whether somebody without an access token may ask: everybody who knows the name, unless the maker said otherwise.
    pub(super) fn admits(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.row.traffic_token else { return Ok(()) };
        let shown = headers.get(TRAFFIC_TOKEN).map_or(&b""[..], http::HeaderValue::as_bytes);
        if bool::from(shown.ct_eq(token.as_bytes())) {
            return Ok(());
        }
        Err(Refusal::PortGuarded(self.sandbox.to_string()))
    }

    /// Whether it runs now. Nothing is done about it.
    pub(super) fn is_running(&self, app: &App) -> bool {
        let state = app.service().session_state(&caller_of(&self.row), &self.row.key.id);
        matches!(state, Ok(SessionState::Running))
    }

    /// What SDKs understand as: it does not run.
    pub(super) fn absent(&self) -> Refusal {
        Refusal::NotFound(self.sandbox.to_string())
    }

    async fn wake(&self, app: &App, caller: &Caller) -> Result<(), Refusal> {
        let _turn = app.e2b().turns().take(&caller.tenant, &self.row.key.id).await;
        let gone = |error: Error| {
            tracing::warn!(session.id = %self.row.key.id, %error, "a sandbox cannot go on");
            self.absent()
        };
        // Its time first: were it to run before, its old end would stop it again.
        let seconds = i64::try_from(self.row.timeout_sec).unwrap_or(i64::MAX);
        let ends_at = Timestamp::now().checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        let changed = lifetimes::change_end(app, &self.sandbox, |row| row.ends_at = ends_at).await;
        changed.map_err(gone)?.ok_or_else(|| self.absent())?;
        app.service().resume_session(caller, &self.row.key.id).await.map(drop).map_err(gone)
    }
}

/// Who acts in a sandbox.
pub(super) fn caller_of(row: &SandboxRow) -> Caller {
    inhabitant(format!("sandbox:{}", row.key.id), &row.key.tenant)
}

/// Somebody who may do what can be done in a box of a tenant, and nothing else.
pub(super) fn inhabitant(subject: String, tenant: &TenantId) -> Caller {
    Caller { subject, tenant: tenant.clone(), scopes: [Scope::Exec, Scope::Files].into(), ..Caller::local() }
}

/// Who acts where nobody is named.
pub(super) fn usual_user(defaults: &TemplateDefaults) -> BoxUser {
    defaults.user.as_deref().and_then(BoxUser::named).unwrap_or_default()
}

/// A token in the header decides alone; without one, files can be opened by a signature.
fn check_access(row: &SandboxRow, parts: &Parts) -> Result<(), Refusal> {
    if parts.headers.contains_key(ACCESS_TOKEN) {
        let shown = access_token(&parts.headers).unwrap_or_default();
        let is_same = bool::from(shown.as_bytes().ct_eq(row.access_token.as_bytes()));
        return if is_same { Ok(()) } else { Err(Refusal::Unauthorized) };
    }
    let signature = Signature::of(&parts.method, &parts.uri).ok_or(Refusal::Unauthorized)?;
    if !signature.is_made_with(&row.access_token) {
        return Err(Refusal::Unauthorized);
    }
    let now = Timestamp::now().as_second();
    if signature.expires.is_some_and(|expires| expires < now) {
        return Err(Refusal::Expired);
    }
    Ok(())
}

/// The access token that a request shows, if it shows one.
pub(super) fn access_token(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(ACCESS_TOKEN).iter();
    match (all.next(), all.next()) {
        (Some(token), None) => token.to_str().ok(),
        _ => None,
    }
}

/// A signature in the address of a file.
#[derive(Debug)]
pub(super) struct Signature {
    path: String,
    user: String,
    operation: Operation,
    expires: Option<i64>,
    text: String,
}

impl Signature {
    /// The signature in an address, where one counts.
    pub(super) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let operation = match *method {
            Method::GET | Method::HEAD => Operation::Read,
            Method::POST => Operation::Write,
            _ => return None,
        };
        if uri.path() != "/files" {
            return None;
        }
        let Query(mut query) = Query::<BTreeMap<String, String>>::try_from_uri(uri).ok()?;
        let expires = query.remove("signature_expiration").map(|text| text.parse()).transpose().ok()?;
        let mut take = |name| query.remove(name);
        Some(Self {
            text: take("signature")?,
            path: take("path").unwrap_or_default(),
            user: take("username").unwrap_or_default(),
            operation,
            expires,
        })
    }

    /// Whether the owner of a token made it.
    pub(super) fn is_made_with(&self, token: &str) -> bool {
        let Self { path, user, operation, expires, text } = self;
        Signed { path, operation: *operation, user, expires: *expires }.is_signed(token, text)
    }
}
