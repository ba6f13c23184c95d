//! Host directories from which clients without workspaces take skills: LangBot up to 4.10.6 registers what an agent prepared
//! in its workspace, and scans named directories.
//!
//! Such a client may use only directories that it may mount, by the same policy. Clients with workspaces share a machine, and
//! name only paths in their own store, as in the original.

use std::path::{Path, PathBuf};

use box_core::{MountMode, MountPolicy, MountSpec, Origin, mount_policy};
use box_skills::{Error, HostDirectory};
use box_wire::GuestPath;

use super::Call;
use crate::fault::Fault;
use crate::settings::real_path;
use crate::tenancy::TenancyScope;

/// A path named by a client, and the policy for it.
#[derive(Debug)]
pub(super) struct Elsewhere {
    path: String,
    policy: MountPolicy,
    origin: Origin,
}

impl Elsewhere {
    /// The path, if this client may use one outside its store.
    pub(super) fn of(call: &Call<'_>, path: &str) -> Option<Self> {
        if call.place != TenancyScope::Legacy {
            return None;
        }
        let (path, settings) = (path.trim().to_owned(), call.door.settings());
        // Stores are read through their own actions; here they would expose skills of other workspaces.
        let denied = vec![call.door.config().data_dir.clone(), settings.skills_root().to_owned()];
        let denied = denied.into_iter().map(|place| real_path(&place)).collect();
        let origin = Origin::Within(settings.mount_roots_for([path.as_str()].into_iter()));
        Some(Self { path, policy: MountPolicy { allowed_roots: Vec::new(), denied }, origin })
    }

    /// Opens the directory. `field` is the client's name for the path.
    pub(super) fn open(self, field: &str) -> Result<HostDirectory, Fault> {
        let refused = |reason: &str| Fault::path_denied(field, &self.path, reason);
        let missing = || Fault::from(Error::DirectoryNotFound { path: self.path.clone() });
        // A refusal does not reveal which paths exist.
        let real = self.policy.locate(Path::new(&self.path), &self.origin).map_err(|reason| refused(&reason))?;
        if !mount_policy::is_directory(&real) {
            return Err(missing());
        }
        let (source, target) = (PathBuf::from(&self.path), GuestPath::root());
        let asked = MountSpec { source, target, mode: MountMode::Ro, origin: self.origin };
        let grant = self.policy.grant(&asked).map_err(|error| match error {
            box_core::Error::MountDenied { reason, .. } => refused(&reason),
            other => Error::from(other).into(),
        })?;
        if grant.is_directory { Ok(HostDirectory::new(grant.object, grant.path)) } else { Err(missing()) }
    }
}
