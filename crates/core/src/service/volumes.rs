//! What can be asked of volumes: create, list, show and delete; mount by name; read and write without a session of the
//! caller's own.

use std::sync::Arc;

use box_wire::{Answer, FileOp, GuestPath, Invalid, User};

use super::file_ops::{FileCall, NO_INPUT};
use super::{Inner, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::caller::{Caller, Scope, TenantId};
use crate::session::{DoorRules, HostPathMode, SessionConfig, SessionId, SessionRequest, VanishedBox};
use crate::store::VolumeRow;
use crate::volumes::{Hold, VolumeDirectory, VolumeInfo, VolumeKey, VolumeMount, VolumeName};
use crate::{BackendName, Error, Network, Result, limits};

/// Where a volume appears in the box through which it is read and written.
pub const VOLUME_ROOT: &str = "/mnt/volume";

/// The profile of that box: root of it may give files to other users.
const FILES_PROFILE: &str = "e2b";

/// How the files of a volume are reached: through a session of the volume's own, whose box is created when it is first
/// used and removed when it is idle.
#[derive(Debug, Clone)]
pub struct VolumeFiles {
    /// Who uses that session.
    pub caller: Caller,
    /// The session.
    pub session: SessionId,
    /// What it is asked to be.
    pub request: SessionRequest,
    /// Where the volume is in its box.
    pub root: GuestPath,
}

/// The volumes that a session is about to mount. None of them is removed while this lives.
#[derive(Debug, Default)]
pub(super) struct HeldVolumes {
    pub(super) directories: Vec<VolumeDirectory>,
    _holds: Vec<Hold>,
}

impl Service {
    /// Creates a volume.
    pub async fn create_volume(&self, caller: &Caller, name: &VolumeName) -> Result<VolumeInfo> {
        self.inner.may_use_volumes(caller)?;
        self.inner.check_writable()?;
        let (inner, caller, name) = (Arc::clone(&self.inner), caller.clone(), name.clone());
        let created = async move {
            let row = inner.volumes.create(caller.tenant.clone(), name).await?;
            inner.audit_volume(&caller, "create_volume", &row).await;
            Ok(inner.volume_info(&caller, row))
        };
        self.inner.to_the_end(created).await
    }

    /// The volumes of the caller's tenant, oldest first.
    pub async fn volumes(&self, caller: &Caller) -> Result<Vec<VolumeInfo>> {
        self.inner.may_use_volumes(caller)?;
        let rows = self.inner.volumes.all(&caller.tenant).await?;
        Ok(rows.into_iter().map(|row| self.inner.volume_info(caller, row)).collect())
    }

    /// One volume.
    pub async fn volume(&self, caller: &Caller, key: &VolumeKey) -> Result<VolumeInfo> {
        self.inner.may_use_volumes(caller)?;
        let row = self.inner.volumes.get(&caller.tenant, key).await?;
        Ok(self.inner.volume_info(caller, row))
    }

    /// Deletes a volume with its content. Refused while a session mounts it.
    pub async fn delete_volume(&self, caller: &Caller, key: &VolumeKey) -> Result<()> {
        self.inner.may_use_volumes(caller)?;
        let (service, caller, key) = (self.clone(), caller.clone(), key.clone());
        let deleted = async move {
            let inner = &service.inner;
            let mounted_in = |row: &VolumeRow| inner.sessions_with_volume(&caller.tenant, row);
            let row = inner.volumes.forget(&caller.tenant, &key, mounted_in).await?;
            service.clear_volume(&row).await;
            inner.volumes.drop_deleted(&row.id).await;
            inner.audit_volume(&caller, "delete_volume", &row).await;
            Ok(())
        };
        self.inner.to_the_end(deleted).await
    }

    /// The volume with an id, of whichever tenant. For doors that let in by the token of a volume.
    pub async fn volume_of_any_tenant(&self, id: &str) -> Result<Arc<VolumeRow>> {
        self.inner.enabled()?;
        self.inner.volumes.by_id(id).await
    }

    /// How the files of a volume are read and written without a session of the caller's own.
    pub fn volume_files(&self, row: &VolumeRow) -> Result<VolumeFiles> {
        let root: GuestPath = VOLUME_ROOT.parse()?;
        let volume = VolumeKey::Id(row.id.clone());
        let mount = VolumeMount { volume, path: root.clone(), mode: HostPathMode::Rw };
        let rules = DoorRules { vanished_box: VanishedBox::Replaced, ..DoorRules::default() };
        let request = SessionRequest {
            profile: Some(FILES_PROFILE.to_owned()),
            network: Some(Network::Off),
            host_path: Some(None),
            memory_mb: Some(limits::VOLUME_BOX_MEMORY_MB),
            pids_limit: Some(limits::VOLUME_BOX_PIDS),
            ttl_sec: Some(limits::VOLUME_BOX_IDLE_SEC),
            volumes: Some(vec![mount]),
            rules,
            ..SessionRequest::default()
        };
        let caller = Caller {
            subject: format!("volume:{}", row.id),
            tenant: row.tenant.clone(),
            scopes: [Scope::Exec, Scope::Files].into(),
            ..Caller::local()
        };
        Ok(VolumeFiles { caller, session: own_session(row).parse()?, request, root })
    }

    /// Removes what is left of a deleted volume: the session of its own, and its directory. The next start tries again
    /// what fails.
    async fn clear_volume(&self, row: &VolumeRow) {
        let stays = |error: &Error| {
            tracing::warn!(volume.id = row.id, %error, "failed to remove the remains of a volume; the next start tries again");
        };
        if let Err(error) = self.end_volume_session(row).await {
            stays(&error);
        }
        let Err(error) = self.inner.volumes.remove_directory(&row.id).await else { return };
        // A server that is not root may not remove what users of its boxes created. Root of a box may.
        let emptied = async {
            self.empty_volume(row).await?;
            self.end_volume_session(row).await?;
            self.inner.volumes.remove_directory(&row.id).await
        };
        if emptied.await.is_err() {
            stays(&error);
        }
    }

    async fn end_volume_session(&self, row: &VolumeRow) -> Result<()> {
        let VolumeFiles { caller, session, .. } = self.volume_files(row)?;
        match self.delete_session(&caller, &session).await {
            Err(Error::SessionNotFound { .. }) => Ok(()),
            ended => ended,
        }
    }

    async fn empty_volume(&self, row: &VolumeRow) -> Result<()> {
        let VolumeFiles { caller, session, request, root } = self.volume_files(row)?;
        let ask = async |op: FileOp| {
            let call = FileCall { root: root.clone(), user: Some(User::ROOT), ..FileCall::new(op) };
            Ok::<_, Error>(self.file_op(&caller, &session, &request, call, NO_INPUT).await?.0)
        };
        let entries_max = box_wire::limits::ENTRIES_MAX;
        if let Answer::Entries { entries, .. } = ask(FileOp::List { path: root.clone(), depth: 1, entries_max }).await?
        {
            for entry in entries {
                ask(FileOp::Remove { path: entry.path.parse()?, recursive: true }).await?;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Refuses callers who may not use volumes. A token that is bound to sessions would reach the files of others.
    fn may_use_volumes(&self, caller: &Caller) -> Result<()> {
        caller.require(Scope::Exec)?;
        self.enabled()?;
        match &caller.session {
            None => Ok(()),
            Some(bound) => {
                let allowed = "a token that is not bound to sessions: volumes are shared by all of the tenant";
                Err(Invalid::new("volumes", format!("token bound to {bound}"), allowed).into())
            }
        }
    }

    /// Finds the volumes that a session asks for, and keeps them from being removed.
    pub(super) async fn hold_volumes(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
    ) -> Result<HeldVolumes> {
        let asked = request.volumes.as_deref().unwrap_or_default();
        if asked.is_empty() {
            return Ok(HeldVolumes::default());
        }
        self.may_use_volumes(caller)?;
        let is_own = |row: &VolumeRow| own_session(row) == id.as_str();
        let quota_mb = self.config().volume_mb;
        let (directories, holds) = self.volumes.find(&caller.tenant, asked, quota_mb, is_own).await?;
        Ok(HeldVolumes { directories, _holds: holds })
    }

    /// Reads the volumes at the start, so that what a `kill -9` left of others is removed.
    pub(super) async fn open_volumes(&self) {
        if self.volumes.are_served()
            && let Err(error) = self.volumes.open().await
        {
            tracing::error!(%error, "failed to open the volumes");
        }
    }

    /// Refuses volumes on a backend whose boxes do not see the directories of this machine.
    pub(super) async fn check_volumes(&self, config: &SessionConfig, backend: BackendName) -> Result<()> {
        if config.volumes.is_empty() {
            return Ok(());
        }
        let member = self.backend_of(backend);
        // This is known once it is open.
        member.attempt().await?;
        if member.shares_volumes() {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: "mounting a volume".to_owned(),
            reason: format!("boxes of the backend {backend} do not see directories of this machine, or copies only"),
            fix: "leave out volumes, or use a profile whose backend is native, nsjail, docker or podman".to_owned(),
        })
    }

    /// The sessions that mount a volume, in order of their ids, without the volume's own.
    fn sessions_with_volume(&self, tenant: &TenantId, row: &VolumeRow) -> Vec<SessionId> {
        let sessions: Vec<_> =
            self.lock_sessions().values().filter(|session| session.key.tenant == *tenant).cloned().collect();
        let own = own_session(row);
        let has = |session: &super::Session| {
            session.with_config(|config| config.volumes.iter().any(|volume| volume.id() == Some(&row.id)))
        };
        let all = sessions.iter().filter(|session| session.key.id.as_str() != own && has(session));
        let mut ids: Vec<_> = all.map(|session| session.key.id.clone()).collect();
        ids.sort();
        ids
    }

    fn volume_info(&self, caller: &Caller, row: Arc<VolumeRow>) -> VolumeInfo {
        let mut sessions = self.sessions_with_volume(&caller.tenant, &row);
        sessions.retain(|session| caller.sees_session(session));
        VolumeInfo { quota_mb: self.config().volume_mb, sessions, row }
    }

    async fn audit_volume(&self, caller: &Caller, operation: &'static str, row: &VolumeRow) {
        let entry = AuditEntry::new(caller, operation, Outcome::Completed, jiff::Timestamp::now());
        self.audit(AuditEntry { target: Some(row.name.clone()), ..entry }).await;
    }
}

/// The session through which the files of a volume are reached.
fn own_session(row: &VolumeRow) -> String {
    format!("volume-{}", row.id)
}
