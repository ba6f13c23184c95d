//! How much a tenant may save. What is being written counts before it is written, and so do files that wait for a build.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::TenantId;
use box_core::store::{TemplateRow, TemplateState};
use http::StatusCode;

use super::SnapshotStore;
use crate::failure::E2bFailure;
use crate::limits;

/// What all tenants have and are writing.
#[derive(Debug)]
pub(super) struct Rooms {
    bytes_max: u64,
    by_tenant: Mutex<HashMap<TenantId, TenantUsage>>,
}

/// What a tenant has.
#[derive(Debug, Default, Clone, Copy)]
struct TenantUsage {
    /// Archives that are being written.
    archives: usize,
    /// Bytes that are being written, and bytes of files that wait for a build.
    bytes: u64,
    /// Bytes of archives that have a row.
    kept_bytes: u64,
}

/// Room for one file. It is free again when this is dropped; an archive counts by its row then.
#[derive(Debug)]
pub(crate) struct Room {
    rooms: Arc<Rooms>,
    tenant: TenantId,
    archives: usize,
    bytes: u64,
    bytes_max: u64,
}

impl Rooms {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes_max, by_tenant: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, TenantUsage>> {
        // Every change is one step, so what a panicking thread left is whole.
        self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts archives that have a row.
    pub(super) fn keep<'a>(&self, tenant: &TenantId, rows: impl Iterator<Item = &'a TemplateRow>) {
        self.lock().entry(tenant.clone()).or_default().kept_bytes = rows.map(|row| row.archive_bytes).sum();
    }
}

impl SnapshotStore {
    /// Room for an archive of so many bytes at most, if the tenant may have one more.
    pub(crate) async fn room(&self, tenant: &TenantId, bytes_max: u64) -> Result<Room, E2bFailure> {
        self.directory()?;
        let mut rows = self.of(tenant).await?;
        rows.retain(|row| matches!(row.state, TemplateState::Ready | TemplateState::Waiting));
        let mut by_tenant = self.rooms.lock();
        let taken = by_tenant.entry(tenant.clone()).or_default();
        if rows.len() + taken.archives >= limits::E2B_SAVED_MAX {
            let most = limits::E2B_SAVED_MAX;
            return Err(full(&format!("there are {most} snapshots and templates already, and no more can be kept")));
        }
        taken.archives += 1;
        Ok(Room { rooms: Arc::clone(&self.rooms), tenant: tenant.clone(), archives: 1, bytes: 0, bytes_max })
    }

    /// Room for a file that waits for a build.
    pub(crate) async fn upload_room(&self, tenant: &TenantId) -> Result<Room, E2bFailure> {
        // What is kept is known from then on.
        self.of(tenant).await?;
        let (rooms, tenant) = (Arc::clone(&self.rooms), tenant.clone());
        Ok(Room { rooms, tenant, archives: 0, bytes: 0, bytes_max: limits::E2B_UPLOAD_BYTES_MAX })
    }
}

impl Room {
    /// Takes more of it.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<(), E2bFailure> {
        if self.bytes + bytes > self.bytes_max {
            return Err(self.too_large());
        }
        let mut by_tenant = self.rooms.lock();
        let taken = by_tenant.entry(self.tenant.clone()).or_default();
        if taken.kept_bytes + taken.bytes + bytes > self.rooms.bytes_max {
            let mb = self.rooms.bytes_max >> 20;
            return Err(full(&format!(
                "all snapshots, templates and files for builds together may have {mb} MiB (e2b_door.saved_mb_max)"
            )));
        }
        taken.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }

    fn too_large(&self) -> E2bFailure {
        let mb = self.bytes_max >> 20;
        if self.archives == 0 {
            let message = format!("files of a COPY step may have {mb} MiB; copy less");
            return E2bFailure::new(StatusCode::PAYLOAD_TOO_LARGE, message);
        }
        let message =
            format!("the sandbox is too large to save: more than {mb} MiB; remove files that need not be kept");
        E2bFailure::new(StatusCode::INSUFFICIENT_STORAGE, message)
    }

    /// What was taken of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut by_tenant = self.rooms.lock();
        let Some(taken) = by_tenant.get_mut(&self.tenant) else { return };
        taken.archives = taken.archives.saturating_sub(self.archives);
        taken.bytes = taken.bytes.saturating_sub(self.bytes);
    }
}

fn full(what: &str) -> E2bFailure {
    let fix = "delete some first: Sandbox.delete_snapshot(id), or DELETE /templates/{id}";
    E2bFailure::new(StatusCode::INSUFFICIENT_STORAGE, format!("{what}; {fix}"))
}
