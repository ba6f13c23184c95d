//! How much a tenant may save. Archives that are being written count, and so do files that wait for a build.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{SnapshotError, SnapshotStore};
use crate::caller::TenantId;
use crate::store::{TemplateRow, TemplateState};
use crate::{Result, limits};

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

/// Room for one file. Dropping it frees the room; an archive counts by its row then.
#[derive(Debug)]
pub struct Room {
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
    /// Room for one more archive of at most this size, if the tenant may have one more.
    pub async fn room(&self, tenant: &TenantId, bytes_max: u64) -> Result<Room> {
        self.directory()?;
        let mut rows = self.of(tenant).await?;
        rows.retain(|row| matches!(row.state, TemplateState::Ready | TemplateState::Waiting));
        let mut by_tenant = self.rooms.lock();
        let taken = by_tenant.entry(tenant.clone()).or_default();
        if rows.len() + taken.archives >= limits::SNAPSHOTS_MAX {
            let most = limits::SNAPSHOTS_MAX;
            let what = format!("there are {most} snapshots and templates already, and no more can be kept");
            return Err(SnapshotError::Full { what }.into());
        }
        taken.archives += 1;
        Ok(Room { rooms: Arc::clone(&self.rooms), tenant: tenant.clone(), archives: 1, bytes: 0, bytes_max })
    }

    /// Room for a file that waits for a build.
    pub async fn upload_room(&self, tenant: &TenantId) -> Result<Room> {
        // Loads the rows, so that their bytes count.
        self.of(tenant).await?;
        let (rooms, tenant) = (Arc::clone(&self.rooms), tenant.clone());
        Ok(Room { rooms, tenant, archives: 0, bytes: 0, bytes_max: limits::UPLOAD_BYTES_MAX })
    }
}

impl Room {
    /// Takes more of it.
    pub fn take(&mut self, bytes: u64) -> Result<(), SnapshotError> {
        if self.bytes + bytes > self.bytes_max {
            let mb = self.bytes_max >> 20;
            return Err(if self.archives == 0 {
                SnapshotError::UploadTooLarge
            } else {
                SnapshotError::TooLarge { mb }
            });
        }
        let mut by_tenant = self.rooms.lock();
        let taken = by_tenant.entry(self.tenant.clone()).or_default();
        if taken.kept_bytes + taken.bytes + bytes > self.rooms.bytes_max {
            let mb = self.rooms.bytes_max >> 20;
            let what = format!(
                "all snapshots, templates and files for builds together may have {mb} MiB (e2b_door.saved_mb_max)"
            );
            return Err(SnapshotError::Full { what });
        }
        taken.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }

    /// Bytes that were taken.
    pub fn bytes(&self) -> u64 {
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
