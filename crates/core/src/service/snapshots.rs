//! Snapshots of sessions, sessions that are made from them, and templates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use box_wire::{FileOp, Invalid, User};
use jiff::Timestamp;
use tokio::time::timeout;
use uuid::Uuid;

use super::file_ops::{FileBytes, FileCall};
use super::session::Phase;
use super::sessions::{Created, Lost, entry};
use super::{Inner, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::caller::{Caller, Scope};
use crate::hexadecimal::hexadecimal;
use crate::session::{
    DoorRules, HostPathMode, LoneMountPath, SessionConfig, SessionId, SessionInfo, SessionRequest, SkillMounts,
};
use crate::snapshots::{
    ArchivePipe, DEFAULT_TAG, PART, Part, Reference, Room, SavedKind, SnapshotConfig, SnapshotError, SnapshotStore,
    check_tag,
};
use crate::store::{TemplateBase, TemplateDefaults, TemplateKey, TemplateOrigin, TemplateRow, TemplateState};
use crate::tasks::Start as _;
use crate::volumes::{MountedVolume, VolumeKey, VolumeMount};
use crate::{Error, Result, limits, random, skills};

/// How a session is to be saved.
#[derive(Debug, Clone, Default)]
pub struct SaveRequest {
    /// The name of the snapshot, `NAME[:TAG]`. Without one it has an id only.
    pub name: Option<String>,
    /// Variables of boxes that are made from it, when not those of the session.
    pub env: Option<BTreeMap<String, String>>,
    /// Default user, directory and commands of such boxes.
    pub defaults: TemplateDefaults,
}

/// A session whose files are on their way to one copy of it. Dropping it breaks them off.
#[derive(Debug)]
pub struct ForkSource {
    pipe: ArchivePipe,
    config: SessionConfig,
}

impl ForkSource {
    /// The archive from which the copy is made: a pipe, which can be read once.
    pub fn archive(&self) -> &Path {
        self.pipe.path()
    }

    /// What the box was made from.
    pub fn base(&self) -> TemplateBase {
        TemplateBase::of(&self.config)
    }

    /// Why the files broke off, which explains better than the backend why no copy was made.
    pub fn error(&self) -> Option<Error> {
        self.pipe.error().map(Error::replica)
    }
}

impl Service {
    /// Says where snapshots are kept. Only the first call counts.
    pub fn serve_snapshots(&self, config: SnapshotConfig) {
        if self.inner.snapshots.set(SnapshotStore::new(Arc::clone(&self.inner.store), config)).is_err() {
            tracing::warn!("the service has a place for snapshots already; another one is ignored");
            return;
        }
        let inner = Arc::clone(&self.inner);
        self.inner.tasks.start(async move { inner.snapshots().clear().await });
    }

    /// The saved boxes of all tenants, for doors that build templates.
    pub fn snapshot_store(&self) -> &SnapshotStore {
        self.inner.snapshots()
    }

    /// Saves a running session as a snapshot. The session goes on meanwhile.
    #[boxed]
    pub async fn save_snapshot(&self, caller: &Caller, id: &SessionId, asked: SaveRequest) -> Result<Arc<TemplateRow>> {
        let (inner, caller, id) = (Arc::clone(&self.inner), caller.clone(), id.clone());
        let saved = async move {
            let saved = inner.save_snapshot(&caller, &id, asked).await;
            let saved = inner.noting(&caller, "save_snapshot", &id, saved).await?;
            let target = Some(saved.key.id.clone());
            inner.audit(AuditEntry { target, ..entry(&caller, "save_snapshot", Outcome::Completed, &id) }).await;
            Ok(saved)
        };
        // Half of an archive is of no use.
        self.inner.to_the_end(saved).await
    }

    /// The snapshots of sessions that the caller may use, newest first.
    #[boxed]
    pub async fn snapshots(&self, caller: &Caller) -> Result<Vec<Arc<TemplateRow>>> {
        caller.require(Scope::Exec)?;
        self.inner.snapshots().list(caller, SavedKind::Snapshot).await
    }

    /// One snapshot, by `NAME[:TAG]` or `ID[:TAG]`.
    #[boxed]
    pub async fn snapshot(&self, caller: &Caller, name: &str) -> Result<Arc<TemplateRow>> {
        caller.require(Scope::Exec)?;
        self.inner.snapshots().get(caller, SavedKind::Snapshot, name).await
    }

    /// Deletes a snapshot, or the tag of it that is named when it has others.
    #[boxed]
    pub async fn delete_snapshot(&self, caller: &Caller, name: &str) -> Result<()> {
        let row = self.snapshot(caller, name).await?;
        let (inner, caller, tag) = (Arc::clone(&self.inner), caller.clone(), Reference::read(name).tag().to_owned());
        let deleted = async move {
            inner.snapshots().take_tags(&row, &[tag]).await?;
            inner.audit_saved(&caller, "delete_snapshot", &row.key).await;
            Ok(())
        };
        self.inner.to_the_end(deleted).await
    }

    /// The versions of all templates that the caller may use, newest first. Those that are being built are among them.
    #[boxed]
    pub async fn templates(&self, caller: &Caller) -> Result<Vec<Arc<TemplateRow>>> {
        caller.require(Scope::Exec)?;
        self.inner.snapshots().list(caller, SavedKind::Template).await
    }

    /// The versions of one template of a kind, newest first.
    #[boxed]
    pub async fn template_versions(
        &self,
        caller: &Caller,
        kind: SavedKind,
        name: &str,
    ) -> Result<Vec<Arc<TemplateRow>>> {
        caller.require(Scope::Exec)?;
        self.inner.snapshots().versions_of(caller, kind, name).await
    }

    /// Deletes a template with all its versions, or the tag that is named.
    #[boxed]
    pub async fn delete_template(&self, caller: &Caller, kind: SavedKind, name: &str) -> Result<()> {
        caller.require(Scope::Exec)?;
        let tag = Reference::read(name).tag;
        let store = self.inner.snapshots();
        let found = match &tag {
            Some(_) => vec![store.get(caller, kind, name).await?],
            None => store.versions_of(caller, kind, name).await?,
        };
        let (inner, caller) = (Arc::clone(&self.inner), caller.clone());
        let deleted = async move {
            for row in found {
                match &tag {
                    Some(tag) => inner.snapshots().take_tags(&row, std::slice::from_ref(tag)).await?,
                    None => inner.snapshots().remove(&row.key).await?,
                }
                inner.audit_saved(&caller, "delete_template", &row.key).await;
            }
            Ok(())
        };
        self.inner.to_the_end(deleted).await
    }

    /// Gives more tags to a version of a template or snapshot. Other versions lose them.
    #[boxed]
    pub async fn tag_template(&self, caller: &Caller, name: &str, tags: &[String]) -> Result<Arc<TemplateRow>> {
        caller.require(Scope::Exec)?;
        self.inner.snapshots().tag(caller, name, tags).await
    }

    /// Takes tags from all versions of a template or snapshot. A version without tags is deleted.
    #[boxed]
    pub async fn untag_template(&self, caller: &Caller, name: &str, tags: &[String]) -> Result<()> {
        for row in self.template_versions(caller, SavedKind::Any, name).await? {
            if row.state == TemplateState::Ready && row.tags.iter().any(|tag| tags.contains(tag)) {
                self.inner.snapshots().take_tags(&row, tags).await?;
            }
        }
        Ok(())
    }

    /// Saves a running session for copies of it, which the caller makes.
    #[boxed]
    pub async fn begin_fork(&self, caller: &Caller, id: &SessionId) -> Result<ForkSource> {
        let begun = self.inner.begin_fork(caller, id).await;
        self.inner.noting(caller, "fork_session", id, begun).await
    }

    /// Makes a session that begins with the files of another one, and is like it in everything else.
    #[boxed]
    pub async fn fork(&self, caller: &Caller, from: &SessionId, to: &SessionId) -> Result<SessionInfo> {
        let (inner, caller, from, to) = (Arc::clone(&self.inner), caller.clone(), from.clone(), to.clone());
        let forked = async move {
            let forked = inner.fork(&caller, &from, &to).await;
            let forked = inner.noting(&caller, "fork_session", &from, forked).await?;
            let target = Some(to.to_string());
            inner.audit(AuditEntry { target, ..entry(&caller, "fork_session", Outcome::Completed, &from) }).await;
            Ok(forked)
        };
        self.inner.to_the_end(forked).await
    }

    /// Writes the archive of a running session, under an id. The room that comes back counts for it until it has a row.
    #[boxed]
    pub async fn save_archive(&self, caller: &Caller, session: &SessionId, archive: &str) -> Result<Room> {
        self.inner.save_archive(caller, session, archive).await
    }
}

impl Inner {
    /// The saved boxes. Where no place was named, rows can be listed and nothing can be saved.
    pub(super) fn snapshots(&self) -> &SnapshotStore {
        self.snapshots.get_or_init(|| SnapshotStore::new(Arc::clone(&self.store), SnapshotConfig::default()))
    }

    async fn audit_saved(&self, caller: &Caller, operation: &'static str, key: &TemplateKey) {
        let entry = AuditEntry::new(caller, operation, Outcome::Completed, Timestamp::now());
        self.audit(AuditEntry { target: Some(key.id.clone()), ..entry }).await;
    }

    async fn save_snapshot(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        asked: SaveRequest,
    ) -> Result<Arc<TemplateRow>> {
        let (name, tag) = self.snapshot_name(asked.name.as_deref())?;
        let config = self.savable(caller, id)?;
        let (own, now) = (new_id()?, Timestamp::now());
        let room = self.save_archive(caller, id, &own).await?;
        let row = TemplateRow {
            template: self.snapshots().template_id(caller, name.as_deref(), &own).await?,
            key: TemplateKey { tenant: caller.tenant.clone(), id: own },
            build: Uuid::now_v7().to_string(),
            name,
            tags: vec![tag],
            origin: TemplateOrigin::Snapshot(id.as_str().to_owned()),
            state: TemplateState::Ready,
            base: TemplateBase::of(&config),
            archive_bytes: room.bytes(),
            env: asked.env.unwrap_or_else(|| config.env.into_iter().collect()),
            defaults: asked.defaults,
            created_at: now,
            updated_at: Timestamp::now(),
        };
        self.snapshots().publish(row).await
    }

    /// Name and tag of a new snapshot.
    fn snapshot_name(&self, name: Option<&str>) -> Result<(Option<String>, String)> {
        let Some(name) = name else { return Ok((None, DEFAULT_TAG.to_owned())) };
        let reference = Reference::read(name);
        self.snapshots().check_free(&reference.template)?;
        check_tag(reference.tag())?;
        let tag = reference.tag().to_owned();
        Ok((Some(reference.template), tag))
    }

    /// The configuration of a session that can be saved. The files of a paused one may be half written.
    fn savable(&self, caller: &Caller, id: &SessionId) -> Result<SessionConfig> {
        let session = self.find(caller, id)?;
        if matches!(session.phase(), Phase::Paused(_)) {
            let what = format!("session {id} is paused, and its files may be half written");
            return Err(Error::Conflict { what, fix: "resume it first".to_owned() });
        }
        Ok(session.config())
    }

    async fn save_archive(self: &Arc<Self>, caller: &Caller, id: &SessionId, archive: &str) -> Result<Room> {
        let config = self.savable(caller, id)?;
        let to = self.snapshots().archive(archive)?;
        let mut room = self.snapshots().room(&caller.tenant, archive_bytes_max(&config)).await?;
        self.check_writable()?;
        let file = Part::make(to.with_extension(PART)).await?;
        let written = timeout(limits::SAVE_TIME_MAX, self.write_archive(caller, id, &config, &file, &mut room));
        written.await.map_err(|_| SnapshotError::Stalled)??;
        file.finish(to).await?;
        Ok(room)
    }

    async fn write_archive(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        config: &SessionConfig,
        file: &Part,
        room: &mut Room,
    ) -> Result<()> {
        let mut bytes = self.read_archive(caller, id, config).await?;
        // A box that is paused meanwhile sends nothing.
        while let Some(piece) =
            timeout(limits::SAVE_PAUSE_MAX, bytes.next()).await.map_err(|_| SnapshotError::Stalled)??
        {
            room.take(piece.len() as u64)?;
            self.check_writable()?;
            file.write(piece).await?;
        }
        Ok(())
    }

    /// Begins to read the archive of a session. Nothing has come of it yet.
    async fn read_archive(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        config: &SessionConfig,
    ) -> Result<FileBytes> {
        // Root of the box reads everything that is in it.
        let call = FileCall { user: config.root_capabilities.then_some(User::ROOT), ..FileCall::new(FileOp::Save) };
        // Who may run commands in a box may read all of it.
        let scopes = caller.scopes.iter().copied().chain([Scope::Files]).collect();
        let saver = Caller { scopes, ..caller.clone() };
        let (_, bytes) = self.run_file_op(&saver, id, &SessionRequest::of_existing(), call, None).await?;
        Ok(bytes)
    }

    async fn begin_fork(self: &Arc<Self>, caller: &Caller, id: &SessionId) -> Result<ForkSource> {
        let config = self.savable(caller, id)?;
        let path = self.snapshots().archive(&format!("fork-{}", new_id()?))?;
        let bytes = self.read_archive(caller, id, &config).await?;
        Ok(ForkSource { pipe: ArchivePipe::open(path, bytes).await?, config })
    }

    async fn fork(self: &Arc<Self>, caller: &Caller, from: &SessionId, to: &SessionId) -> Result<SessionInfo> {
        let exists = || Error::Conflict {
            what: format!("session {to} already exists"),
            fix: "choose another session_id for the fork, or delete it first".to_owned(),
        };
        if self.savable(caller, from)?.kept.is_some() {
            let what = format!("session {from} runs MCP servers, whose directory one box can have");
            return Err(Error::Conflict { what, fix: "fork another session".to_owned() });
        }
        caller.check_session(to)?;
        match self.find(caller, to) {
            Err(Error::SessionNotFound { .. }) => {}
            found => return Err(found.err().unwrap_or_else(exists)),
        }
        let source = self.begin_fork(caller, from).await?;
        let mut request = copy_of(&source.config, source.archive().to_owned());
        request.rules.skills = self.skills_of(caller, &source.config).await?;
        request.rules.backend = Some(self.find(caller, from)?.backend());
        match self.obtain(caller, to, &request, Lost::Rebuild).await {
            Ok((session, Created::New)) => Ok(session.info()),
            Ok((_, Created::Existing)) => Err(exists()),
            Err(error) => Err(source.error().unwrap_or(error)),
        }
    }

    /// The skills that a session shows.
    async fn skills_of(&self, caller: &Caller, config: &SessionConfig) -> Result<Option<SkillMounts>> {
        let mut mounts = config.extra_mounts.clone();
        mounts.retain(|mount| is_skill(config, mount));
        match self.skills.get() {
            Some(skills) if !mounts.is_empty() => {
                Ok(Some(SkillMounts { root: skills.root(&caller.tenant).await?, mounts }))
            }
            _ => Ok(None),
        }
    }

    /// What a request means that names a snapshot: the archive, and what the box of it was. A session that exists is compared
    /// by the name alone, so the snapshot need not exist any more.
    pub(super) async fn resolve_snapshot(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
    ) -> Result<Option<SessionRequest>> {
        let Some(name) = &request.snapshot else { return Ok(None) };
        match self.snapshots().get(caller, SavedKind::Any, name).await {
            Ok(row) => Ok(Some(from_snapshot(request, &row, self.snapshots().archive(&row.key.id)?)?)),
            Err(Error::Snapshot(_)) if self.find(caller, id).is_ok() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A request with what the snapshot says. It can differ from the saved box in its limits, and in what is mounted.
fn from_snapshot(request: &SessionRequest, row: &TemplateRow, archive: PathBuf) -> Result<SessionRequest> {
    let base = &row.base;
    for (field, asked, saved) in [("profile", &request.profile, &base.profile), ("image", &request.image, &base.image)]
    {
        if let (Some(asked), Some(saved)) = (asked, saved)
            && asked != saved
        {
            let allowed = format!("{saved}, as in the snapshot; leave it out");
            return Err(Invalid::new(field, asked, allowed).into());
        }
    }
    let mut env = row.env.clone();
    env.extend(request.env.iter().cloned());
    let mut made = SessionRequest {
        profile: request.profile.clone().or_else(|| base.profile.clone()),
        image: request.image.clone().or_else(|| base.image.clone()),
        cpus: request.cpus.or(base.cpus),
        memory_mb: request.memory_mb.or(base.memory_mb),
        workspace_quota_mb: request.workspace_quota_mb.or(base.disk_mb),
        read_only_rootfs: request.read_only_rootfs.or(base.read_only_rootfs),
        env: env.into_iter().collect(),
        archive: Some(archive),
        ..request.clone()
    };
    if let (None, None, Some(home)) = (&request.mount_path, &request.host_path, &base.mount_path) {
        made.mount_path = Some(home.clone());
        made.host_path = Some(None);
        made.rules.lone_mount_path = LoneMountPath::Own;
    }
    Ok(made)
}

/// A request for a session like another one, with an archive of its files.
fn copy_of(config: &SessionConfig, archive: PathBuf) -> SessionRequest {
    let is_mounted = config.host_path.is_some() && config.host_path_mode != HostPathMode::None;
    let mut mounts = config.extra_mounts.clone();
    mounts.retain(|mount| !is_skill(config, mount));
    SessionRequest {
        profile: Some(config.profile.clone()),
        network: Some(config.network),
        image: Some(config.image.clone()),
        host_path: Some(config.host_path.clone()),
        host_path_mode: Some(config.host_path_mode),
        mount_path: Some(config.mount_path.clone()),
        extra_mounts: Some(mounts),
        cpus: Some(config.cpus),
        memory_mb: Some(config.memory_mb),
        pids_limit: Some(config.pids_limit),
        read_only_rootfs: Some(config.read_only_rootfs),
        workspace_quota_mb: Some(config.workspace_quota_mb),
        persistent: Some(config.persistent),
        ttl_sec: Some(config.ttl_sec),
        on_timeout: Some(config.on_timeout),
        env: config.env.clone(),
        volumes: (!config.volumes.is_empty()).then(|| config.volumes.iter().filter_map(mount_of).collect()),
        snapshot: None,
        archive: Some(archive),
        rules: DoorRules {
            timeout_sec_max: Some(config.timeout_sec_max),
            lone_mount_path: if is_mounted { LoneMountPath::Refused } else { LoneMountPath::Own },
            ..DoorRules::default()
        },
    }
}

fn mount_of(mounted: &MountedVolume) -> Option<VolumeMount> {
    let volume = VolumeKey::Id(mounted.id()?.to_owned());
    Some(VolumeMount { volume, path: mounted.path.clone(), mode: mounted.mode })
}

fn is_skill(config: &SessionConfig, mount: &crate::session::ExtraMount) -> bool {
    Some(mount.mount_path.parent()) == skills::directory(&config.mount_path)
}

/// Most bytes of the archive of a box: what it can store, and a quarter for the names and attributes of its files.
fn archive_bytes_max(config: &SessionConfig) -> u64 {
    let disk_mb = if config.workspace_quota_mb == 0 { limits::DISK_MB_DEFAULT } else { config.workspace_quota_mb };
    (disk_mb + disk_mb / 4) << 20
}

/// The id of a new snapshot. The name of its archive is made of it.
fn new_id() -> Result<String> {
    let bytes = random::bytes::<8>().map_err(|error| Error::io("choosing an id", error))?;
    Ok(hexadecimal(&bytes))
}
