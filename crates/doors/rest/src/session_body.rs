//! What is asked of a session, as it is written in a body.

use std::collections::BTreeMap;

use box_core::session::{ExtraMount, HostPathMode, OnTimeout};
use box_core::{Network, SessionId, SessionRequest, limits as core_limits};
use box_wire::GuestPath;
use serde::Deserialize;

use super::old_form::Form;
use super::volumes::VolumeMountBody;
use door_http::body::{self, Fields, FromFields};
use door_http::failure::Failure;

/// What a box can be asked to be. It matters when the session is made; for one that exists, what differs is a conflict.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct SessionFields {
    /// Preset of everything that is not given; `GET /v1/profiles` lists them, with what they lock.
    #[serde(default, deserialize_with = "body::optional_text")]
    profile: Option<String>,
    /// What the box can reach: `off` is its own loopback, `on` everything but the host's.
    #[schema(value_type = Option<String>, example = "off")]
    network: Option<Network>,
    /// The snapshot or template to begin with, `NAME[:TAG]` or its id. Profile and image are those of the snapshot.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schema(example = "deps:v1")]
    snapshot: Option<String>,
    /// Root file system: `host`, or a name that the operator gave to one.
    #[serde(default, deserialize_with = "body::optional_text")]
    image: Option<String>,
    /// Directory of the host that becomes the workspace; `null` asks for none.
    #[serde(default, deserialize_with = "body::maybe_null_text")]
    #[schema(value_type = Option<String>)]
    #[expect(clippy::option_option, reason = "silence, nothing and a path are three things")]
    host_path: Option<Option<String>>,
    /// What the box may do with it.
    host_path_mode: Option<HostPathMode>,
    /// Where the workspace is in the box.
    #[serde(default, deserialize_with = "body::optional_text")]
    #[schema(example = "/workspace")]
    mount_path: Option<String>,
    /// More trees of the host.
    extra_mounts: Option<Vec<MountBody>>,
    /// Volumes to mount: directories that outlive the session.
    volumes: Option<Vec<VolumeMountBody>>,
    /// Processors; fractions count.
    #[serde(default, deserialize_with = "body::number")]
    cpus: Option<f64>,
    /// Memory limit.
    #[serde(default, deserialize_with = "body::whole")]
    memory_mb: Option<u64>,
    /// Most processes at once.
    #[serde(default, deserialize_with = "body::whole")]
    pids_limit: Option<u64>,
    /// Whether everything but the work places is read-only.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    read_only_rootfs: Option<bool>,
    /// Most that the box can store, and most that a writable workspace of the host may hold; 0 is the default, and no limit there.
    #[serde(default, deserialize_with = "body::whole")]
    workspace_quota_mb: Option<u64>,
    /// Whether the session outlives idleness and a stop of the server.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    persistent: Option<bool>,
    /// Idle time after which the session is removed.
    #[serde(default, deserialize_with = "body::whole")]
    ttl_sec: Option<u64>,
}

/// One more tree of the host.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MountBody {
    /// Path on the host.
    host_path: String,
    /// Path in the box.
    mount_path: String,
    /// What the box may do with it.
    #[serde(default)]
    mode: HostPathMode,
    /// Known from LangBot, and taken only as `null`: nobody verifies it here, so nobody may rely on it.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    content_digest: (),
    /// As `content_digest`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    manifest_path: (),
}

impl SessionFields {
    /// What the service is asked.
    pub(super) fn into_request(self) -> Result<SessionRequest, Failure> {
        let mount_path = self.mount_path.map(|path| GuestPath::parse("mount_path", &path)).transpose()?;
        let mounts = self.extra_mounts.map(|mounts| mounts.into_iter().map(MountBody::into_mount).collect());
        let volumes = self.volumes.map(|volumes| volumes.into_iter().map(VolumeMountBody::into_mount).collect());
        Ok(SessionRequest {
            profile: self.profile,
            network: self.network,
            snapshot: self.snapshot,
            image: self.image,
            host_path: self.host_path,
            host_path_mode: self.host_path_mode,
            mount_path,
            extra_mounts: mounts.transpose()?,
            volumes: volumes.transpose()?,
            cpus: self.cpus,
            memory_mb: self.memory_mb,
            pids_limit: self.pids_limit,
            read_only_rootfs: self.read_only_rootfs,
            workspace_quota_mb: self.workspace_quota_mb,
            persistent: self.persistent,
            ttl_sec: self.ttl_sec,
            ..SessionRequest::default()
        })
    }
}

impl MountBody {
    fn into_mount(self) -> Result<ExtraMount, Failure> {
        let Self { host_path, mount_path, mode, content_digest: (), manifest_path: () } = self;
        Ok(ExtraMount { host_path, mount_path: GuestPath::parse("extra_mounts", &mount_path)?, mode })
    }
}

/// What only the making of a session takes.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct CreateFields {
    /// Your name for the session, where the path does not hold it. One is made up when it is missing there too.
    #[serde(default, deserialize_with = "body::optional_text")]
    session_id: Option<String>,
    /// Environment of every command of the session.
    #[serde(default, deserialize_with = "body::text_map")]
    env: Option<BTreeMap<String, String>>,
    /// What the passed deadline of a command does to the session.
    on_timeout: Option<OnTimeout>,
    /// Accepted and not used: clients of the old API send one body for everything.
    #[serde(default, deserialize_with = "body::text")]
    #[expect(dead_code, reason = "old clients send it")]
    cmd: Option<String>,
    /// Accepted and not used.
    #[serde(default, deserialize_with = "body::text")]
    #[expect(dead_code, reason = "old clients send it")]
    workdir: Option<String>,
    /// Accepted and not used.
    #[serde(default, deserialize_with = "body::fraction")]
    #[expect(dead_code, reason = "old clients send it")]
    timeout_sec: Option<f64>,
    /// Accepted and not used.
    #[serde(default, deserialize_with = "body::text")]
    #[expect(dead_code, reason = "old clients send it")]
    skill_name: Option<String>,
}

/// The body that makes a session.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct CreateBody {
    #[serde(flatten)]
    session: SessionFields,
    #[serde(flatten)]
    create: CreateFields,
    #[serde(skip)]
    form: Form,
}

impl FromFields for CreateBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        let form = Form::of(fields);
        Ok(Self { session: fields.take()?, create: fields.take()?, form })
    }
}

impl CreateBody {
    /// The id that the body asks for, if any.
    pub(super) fn session_id(&self) -> Result<Option<SessionId>, Failure> {
        Ok(self.create.session_id.as_deref().map(str::parse).transpose()?)
    }

    /// Which form it has.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// What the service is asked.
    pub(super) fn into_request(self) -> Result<SessionRequest, Failure> {
        let env = self.create.env.unwrap_or_default().into_iter().collect();
        let request = SessionRequest { env, on_timeout: self.create.on_timeout, ..self.session.into_request()? };
        Ok(self.form.session(request))
    }
}

/// The body that changes a session.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub(crate) struct PatchBody {
    /// Idle time after which the session is removed.
    #[serde(default, deserialize_with = "body::whole")]
    #[schema(required, nullable = false, minimum = 1)]
    ttl_sec: Option<u64>,
}

impl FromFields for PatchBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl PatchBody {
    /// The new idle time.
    pub(super) fn ttl_sec(&self) -> Result<u64, Failure> {
        let missing =
            || Failure::invalid("ttl_sec", format!("ttl_sec is needed: from 1 to {}", core_limits::TTL_SEC_MAX));
        self.ttl_sec.ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::{field_of, read};

    fn request(json: &str) -> Result<SessionRequest, Failure> {
        read::<CreateBody>(json)?.into_request()
    }

    #[test]
    fn the_body_of_an_old_client_is_taken_whole() {
        let body = r#"{"cmd":"","workdir":"/workspace","timeout_sec":30,"network":"off","session_id":"s","env":{"A":"b"},
            "image":"python:3.11-slim","host_path":null,"host_path_mode":"rw","mount_path":"/workspace","extra_mounts":[],
            "skill_name":null,"persistent":false,"cpus":1.0,"memory_mb":512,"pids_limit":128,"read_only_rootfs":true,
            "workspace_quota_mb":0}"#;
        let request = request(body).unwrap();
        assert_eq!(request.network, Some(Network::Off));
        assert_eq!(request.host_path, Some(None), "asked for none");
        assert_eq!(request.memory_mb, Some(512));
        assert_eq!(request.env, [], "what is in the old form is each command's own");
        assert_eq!(request.extra_mounts, Some(vec![]));
    }

    #[test]
    fn what_is_not_said_is_not_asked() {
        assert_eq!(request("{}").unwrap(), SessionRequest::default());
        assert_eq!(request("").unwrap(), SessionRequest::default());
    }

    #[test]
    fn numbers_come_as_the_old_clients_write_them() {
        let request = request(r#"{"memory_mb":"64","pids_limit":10.0,"cpus":"0.5","persistent":1}"#).unwrap();
        assert_eq!((request.memory_mb, request.pids_limit), (Some(64), Some(10)));
        assert_eq!((request.cpus, request.persistent), (Some(0.5), Some(true)));
    }

    #[test]
    fn a_bad_value_is_refused_by_the_name_of_its_field() {
        let table = [
            (r#"{"cpus":NaN}"#, "cpus"),
            (r#"{"cpus":"NaN"}"#, "cpus"),
            (r#"{"cpus":"inf"}"#, "cpus"),
            (r#"{"cpus":1e999999}"#, "cpus"),
            (r#"{"cpus":true}"#, "cpus"),
            (r#"{"cpus":[1]}"#, "cpus"),
            (r#"{"memory_mb":-1}"#, "memory_mb"),
            (r#"{"memory_mb":1.5}"#, "memory_mb"),
            (r#"{"memory_mb":18446744073709551616}"#, "memory_mb"),
            (r#"{"memory_mb":1e30}"#, "memory_mb"),
            (r#"{"memory_mb":"many"}"#, "memory_mb"),
            (r#"{"memory_mb":true}"#, "memory_mb"),
            (r#"{"memory_mb":{}}"#, "memory_mb"),
            (r#"{"network":"maybe"}"#, "network"),
            (r#"{"network":1}"#, "network"),
            (r#"{"host_path":7}"#, "host_path"),
            (r#"{"host_path_mode":"x"}"#, "host_path_mode"),
            (r#"{"mount_path":"relative"}"#, "mount_path"),
            (r#"{"mount_path":"/a/../b"}"#, "mount_path"),
            (r#"{"read_only_rootfs":"perhaps"}"#, "read_only_rootfs"),
            (r#"{"env":{"A":1}}"#, "env"),
            (r#"{"env":["A=1"]}"#, "env"),
            (r#"{"env":{"A":"1","A":"2"}}"#, "env"),
            (r#"{"extra_mounts":{}}"#, "extra_mounts"),
            (r#"{"extra_mounts":[{"host_path":"/a"}]}"#, "extra_mounts"),
            (r#"{"extra_mounts":[{"host_path":"/a","mount_path":"b"}]}"#, "extra_mounts"),
            (r#"{"extra_mounts":[{"host_path":"/a","mount_path":"/b","modes":"ro"}]}"#, "extra_mounts"),
            (r#"{"extra_mounts":[{"host_path":"/a","mount_path":"/b","content_digest":"x"}]}"#, "extra_mounts"),
            (r#"{"volumes":{}}"#, "volumes"),
            (r#"{"volumes":[{"name":"a"}]}"#, "volumes"),
            (r#"{"volumes":[{"name":"a b","path":"/b"}]}"#, "volumes"),
            (r#"{"volumes":[{"name":"a","path":"b"}]}"#, "volumes"),
            (r#"{"volumes":[{"name":"a","path":"/b","mode":"x"}]}"#, "volumes"),
            (r#"{"timeout_sec":0}"#, "timeout_sec"),
            (r#"{"cmd":1}"#, "cmd"),
            (r#"{"on_timeout":"explode"}"#, "on_timeout"),
            (r#"{"snapshot":7}"#, "snapshot"),
            (r#"{"privileged":true}"#, "privileged"),
            (r#"{"session_id":"a","session_id":"../../b"}"#, "session_id"),
        ];
        for (json, field) in table {
            assert_eq!(field_of(request(json)), field, "{json}");
        }
    }

    #[test]
    fn a_slip_is_answered_with_the_right_name() {
        let failure = request(r#"{"memory":64}"#).unwrap_err();
        let body = serde_json::to_value(failure.body(None)).unwrap();
        assert_eq!(body["error"]["hint"], "did you mean memory_mb?");
    }

    #[test]
    fn the_idle_time_must_be_said_to_be_changed() {
        assert_eq!(read::<PatchBody>(r#"{"ttl_sec":"60"}"#).unwrap().ttl_sec().unwrap(), 60);
        assert_eq!(field_of(read::<PatchBody>("{}").unwrap().ttl_sec()), "ttl_sec");
    }
}
