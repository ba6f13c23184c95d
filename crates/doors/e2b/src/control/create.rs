//! Sandboxes made.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use box_core::profile::TIMEOUT_SEC_MAX;
use box_core::session::{DoorRules, LoneMountPath};
use box_core::store::{SandboxRow, SessionKey};
use box_core::{Caller, Error, Network, SessionRequest, hexadecimal, random};
use box_e2b_wire::SandboxId;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;

use super::body::Sent;
use super::create_request::{CreateRequest, NetworkAsked, WayOut};
use super::lifecycle::after;
use super::metadata;
use super::origin::{self, Origin};
use super::owner::Owner;
use super::start;
use super::templates;
use super::views::SandboxView;
use crate::app::App;
use crate::failure::E2bFailure;
use crate::lifetimes;
use crate::limits;
use crate::to_the_end::to_the_end;
use crate::volumes;

/// Where the user of a sandbox is at home.
pub(crate) const HOME: &str = "/home/user";

/// Variables that say of a sandbox what it is.
pub(super) const OWN_VARIABLES: [&str; 3] = ["E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID"];

/// How long a sandbox lived by the first version of the call, where nobody said.
const FIRST_VERSION_TIMEOUT_SEC: u64 = 15;

/// What a client is told when its sandbox is there.
type CreatedSandbox = (StatusCode, Json<SandboxView>);

/// `POST /sandboxes`
pub(super) async fn first_version(
    State(app): State<App>,
    Owner(caller): Owner,
    Sent(asked): Sent<CreateRequest>,
) -> Result<CreatedSandbox, E2bFailure> {
    create(&app, caller, asked, FIRST_VERSION_TIMEOUT_SEC, None).await
}

/// `POST /v2/sandboxes`
pub(super) async fn second_version(
    State(app): State<App>,
    Owner(caller): Owner,
    headers: HeaderMap,
    Sent(asked): Sent<CreateRequest>,
) -> Result<CreatedSandbox, E2bFailure> {
    let usual_sec = app.e2b().config().default_timeout_sec;
    let key = idempotency_key(&headers)?;
    create(&app, caller, asked, usual_sec, key).await
}

async fn create(
    app: &App,
    caller: Caller,
    asked: CreateRequest,
    usual_sec: u64,
    key: Option<String>,
) -> Result<CreatedSandbox, E2bFailure> {
    let digest = key.map(|key| (key, digest(&caller, &asked)));
    let _alone = match &digest {
        Some((key, _)) => {
            let turn = format!("={key}").parse().map_err(Error::from)?;
            Some(app.e2b().turns().take(&caller.tenant, &turn).await)
        }
        None => None,
    };
    let row = if let Some(row) = made_before(app, &caller, digest.as_ref()).await? {
        row
    } else {
        let origin = origin::find(app, &caller, asked.template.as_deref().unwrap_or_default()).await?;
        make(app, caller, origin, asked, usual_sec, digest).await?
    };
    let view = SandboxView::new(&row, app.e2b().config().domain.as_deref());
    Ok((StatusCode::CREATED, Json(view)))
}

/// The sandbox that the same call made before.
async fn made_before(
    app: &App,
    caller: &Caller,
    digest: Option<&(String, String)>,
) -> Result<Option<Arc<SandboxRow>>, E2bFailure> {
    let Some((key, digest)) = digest else { return Ok(None) };
    let all = app.e2b().directory().all().await?;
    let same = |row: &&Arc<SandboxRow>| {
        row.key.tenant == caller.tenant && row.idempotency.as_ref().is_some_and(|(known, _)| known == key)
    };
    let Some(found) = all.iter().find(same) else { return Ok(None) };
    if found.idempotency.as_ref().is_some_and(|(_, known)| known == digest) {
        return Ok(Some(Arc::clone(found)));
    }
    let message = "this Idempotency-Key was used for another sandbox; use another key";
    Err(E2bFailure::new(StatusCode::UNPROCESSABLE_ENTITY, message))
}

/// Makes a sandbox to its end, whether or not whoever asked stays: one that nobody knows of would never end.
pub(super) async fn make(
    app: &App,
    caller: Caller,
    origin: Origin,
    asked: CreateRequest,
    usual_sec: u64,
    idempotency: Option<(String, String)>,
) -> Result<Arc<SandboxRow>, E2bFailure> {
    let id = new_id()?;
    let mut request = request(&caller, &origin, &asked)?;
    request.volumes = volumes::mounts(asked.volume_mounts.as_deref().unwrap_or_default())?;
    let row = SandboxRow { idempotency, ..row(app, &caller, &id, origin, asked, usual_sec)? };
    request.rules.lease_end = lifetimes::lease_end(&row);
    let env = row.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let request = SessionRequest { env, ..request };
    let making = app.clone();
    let make = async move {
        let directory = making.e2b().directory();
        directory.intend(&row).await?;
        if let Err(error) = making.service().create_session(&caller, &row.key.id, &request).await {
            directory.forget(&row.key).await?;
            return Err(refused(error, &row.template));
        }
        if let Err(failure) = start::begin(&making, &row).await {
            making.service().delete_session(&caller, &row.key.id).await?;
            directory.forget(&row.key).await?;
            return Err(failure);
        }
        Ok(directory.add(id, row).await?)
    };
    to_the_end(app, "making a sandbox", make).await
}

/// What the session of a sandbox is asked to be, but for its variables.
pub(super) fn request(caller: &Caller, origin: &Origin, asked: &CreateRequest) -> Result<SessionRequest, E2bFailure> {
    let network = asked.network.clone().unwrap_or_default();
    let way_out = network.way_out(asked.allow_internet_access)?;
    let template = &origin.template;
    let rules = DoorRules {
        lone_mount_path: LoneMountPath::Own,
        timeout_sec_max: Some(TIMEOUT_SEC_MAX),
        ..DoorRules::default()
    };
    Ok(SessionRequest {
        // Whoever is bound to a profile has that one.
        profile: caller.profile.is_none().then(|| template.profile.clone().unwrap_or_else(|| "e2b".to_owned())),
        network: (way_out == WayOut::None).then_some(Network::Off),
        image: template.image.clone(),
        host_path: Some(None),
        mount_path: Some(HOME.parse().map_err(Error::from)?),
        cpus: template.cpus,
        memory_mb: template.memory_mb,
        workspace_quota_mb: template.disk_mb,
        read_only_rootfs: template.read_only_rootfs,
        // Its door says when it ends.
        persistent: Some(true),
        archive: origin.archive.clone(),
        rules,
        ..SessionRequest::default()
    })
}

fn row(
    app: &App,
    caller: &Caller,
    id: &SandboxId,
    origin: Origin,
    asked: CreateRequest,
    usual_sec: u64,
) -> Result<SandboxRow, E2bFailure> {
    refuse_unserved(&asked)?;
    let timeout_sec = timeout(asked.timeout, usual_sec, app.e2b().config().max_timeout_sec)?;
    let metadata = asked.metadata.unwrap_or_default();
    metadata::check(&metadata)?;
    let mut env = origin.env;
    env.extend(asked.env_vars.unwrap_or_default());
    let own = OWN_VARIABLES.into_iter().zip(["true", id.as_str(), &origin.name]);
    env.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let network = asked.network.unwrap_or_default();
    let now = Timestamp::now();
    Ok(SandboxRow {
        key: SessionKey { tenant: caller.tenant.clone(), id: id.as_str().parse().map_err(Error::from)? },
        template: origin.name,
        metadata,
        env,
        started_at: now,
        ends_at: after(now, timeout_sec),
        timeout_sec,
        auto_pause: asked.auto_pause.unwrap_or(false),
        auto_resume: asked.auto_resume.unwrap_or_default().enabled,
        access_token: secret()?,
        traffic_token: guarded(&network).then(secret).transpose()?,
        allow_internet_access: asked.allow_internet_access,
        network: network.shown(),
        volume_mounts: asked.volume_mounts.unwrap_or_default(),
        defaults: origin.defaults,
        idempotency: None,
    })
}

fn guarded(network: &NetworkAsked) -> bool {
    network.allow_public_traffic == Some(false)
}

fn refuse_unserved(asked: &CreateRequest) -> Result<(), E2bFailure> {
    let is_set = |value: &Option<serde_json::Value>| value.as_ref().is_some_and(|value| !value.is_null());
    if is_set(&asked.mcp) {
        return Err(E2bFailure::not_served("mcp in a sandbox"));
    }
    if is_set(&asked.iam) {
        return Err(E2bFailure::not_served("iam"));
    }
    let resumes = asked.auto_resume.as_ref().is_some_and(|auto| auto.enabled);
    if asked.auto_pause_memory == Some(false) && resumes {
        return Err(E2bFailure::invalid(
            "autoResume needs autoPauseMemory: without memory nothing can go on by itself",
        ));
    }
    Ok(())
}

fn timeout(asked: Option<i64>, usual_sec: u64, max_sec: u64) -> Result<u64, E2bFailure> {
    let Some(asked) = asked else { return Ok(usual_sec) };
    match u64::try_from(asked) {
        Ok(seconds) if seconds > max_sec => {
            Err(E2bFailure::invalid(format!("Timeout cannot be greater than {max_sec} seconds here")))
        }
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err(E2bFailure::invalid("Timeout must be greater than 0")),
    }
}

/// A template that means an image which cannot be used is a template that is not there.
pub(super) fn refused(error: Error, template: &str) -> E2bFailure {
    match error {
        Error::BadImage { reason, .. } => templates::no_image(template, &reason),
        Error::Invalid(invalid) if invalid.field == "image" => templates::no_image(template, &invalid.to_string()),
        // Nothing else that these clients say is mounted anywhere.
        Error::Invalid(invalid) if ["mount_path", "volumes"].contains(&invalid.field) => {
            E2bFailure::from(Error::Invalid(invalid)).reworded(|words| format!("volumeMounts: {words}"))
        }
        error => error.into(),
    }
}

pub(crate) fn new_id() -> Result<SandboxId, E2bFailure> {
    let failed = |error: std::io::Error| Error::io("choosing an id", error);
    let bytes = random::bytes::<128>().map_err(failed)?;
    SandboxId::from_random(&bytes).ok_or_else(|| failed(std::io::ErrorKind::UnexpectedEof.into()).into())
}

pub(crate) fn secret() -> Result<String, E2bFailure> {
    let bytes = random::bytes::<32>().map_err(|error| Error::io("choosing a token", error))?;
    Ok(hexadecimal::hexadecimal(&bytes))
}

/// The key of a call that makes one sandbox, however often it is sent.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, E2bFailure> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = |text: &&str| (1..=limits::E2B_KEY_BYTES_MAX).contains(&text.len()) && text.bytes().all(good);
    let bad = || E2bFailure::invalid("Idempotency-Key has 1 to 255 lowercase letters, digits and dashes");
    key.to_str().ok().filter(fits).map(|text| Some(text.to_owned())).ok_or_else(bad)
}

/// What a call looked like.
fn digest(caller: &Caller, asked: &CreateRequest) -> String {
    let text = serde_json::json!([caller.subject, asked]).to_string();
    hexadecimal::sha256(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use box_core::session::UnknownImage;

    use super::*;

    #[test]
    fn an_image_that_is_not_allowed_is_not_found_and_says_which_key_to_set() {
        let error = box_core::image::ImagePolicy::default().decide("ubuntu:22.04", UnknownImage::Refused).unwrap_err();
        let told = refused(error, "ubuntu:22.04");
        assert_eq!(told.status(), 404);
        assert!(told.message().contains("'ubuntu:22.04'") && told.message().contains("allowed_images"), "{told:?}");
    }
}
