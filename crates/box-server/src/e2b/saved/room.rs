//! How much a tenant may save, and what is being saved counts, too.

use std::sync::PoisonError;

use box_core::TenantId;
use box_core::store::TemplateState;
use http::StatusCode;

use super::Saved;
use crate::e2b::failure::E2bFailure;
use crate::limits;

/// What a tenant is writing.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Taken {
    archives: usize,
    bytes: u64,
}

/// Room for one archive while it is written. It is free again when this is dropped: the archive counts by its row then.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    saved: &'a Saved,
    tenant: TenantId,
    /// What the tenant had before.
    kept_bytes: u64,
    bytes: u64,
    bytes_max: u64,
}

impl Saved {
    /// Room for an archive of so many bytes at most, if the tenant may have one more.
    pub(crate) async fn room(&self, tenant: &TenantId, bytes_max: u64) -> Result<Room<'_>, E2bFailure> {
        self.directory()?;
        let mut rows = self.of(tenant).await?;
        rows.retain(|row| matches!(row.state, TemplateState::Ready | TemplateState::Waiting));
        let kept_bytes = rows.iter().map(|row| row.archive_bytes).sum();
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = rooms.entry(tenant.clone()).or_default();
        if rows.len() + taken.archives >= limits::E2B_SAVED_MAX {
            let most = limits::E2B_SAVED_MAX;
            return Err(full(&format!("there are {most} snapshots and templates already, and no more can be kept")));
        }
        taken.archives += 1;
        Ok(Room { saved: self, tenant: tenant.clone(), kept_bytes, bytes: 0, bytes_max })
    }
}

impl Room<'_> {
    /// Takes more of it.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), E2bFailure> {
        if self.bytes + bytes > self.bytes_max {
            let mb = self.bytes_max >> 20;
            let message =
                format!("the sandbox is too large to save: more than {mb} MiB; remove files that need not be kept");
            return Err(E2bFailure::new(StatusCode::INSUFFICIENT_STORAGE, message));
        }
        let mut rooms = self.saved.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = rooms.entry(self.tenant.clone()).or_default();
        if self.kept_bytes + taken.bytes + bytes > self.saved.bytes_max {
            let mb = self.saved.bytes_max >> 20;
            return Err(full(&format!(
                "all snapshots and templates together may have {mb} MiB (e2b_door.saved_mb_max)"
            )));
        }
        taken.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }

    /// What was taken of it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut rooms = self.saved.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(taken) = rooms.get_mut(&self.tenant) else { return };
        taken.archives = taken.archives.saturating_sub(1);
        taken.bytes = taken.bytes.saturating_sub(self.bytes);
        if taken.archives == 0 {
            rooms.remove(&self.tenant);
        }
    }
}

fn full(what: &str) -> E2bFailure {
    let fix = "delete some first: Sandbox.delete_snapshot(id), or DELETE /templates/{id}";
    E2bFailure::new(StatusCode::INSUFFICIENT_STORAGE, format!("{what}; {fix}"))
}
