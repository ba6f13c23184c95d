//! Properties of an engine, queried once when it is opened.

use box_core::{Account, Result};
use box_wire::User;

use crate::client::Client;
use crate::config::{EngineKind, EngineSettings};
use crate::models::SystemInfo;

/// Runtimes under which a container has another kernel than we do: no descriptor can be handed to it, and nothing of it can be
/// looked at from here.
const FOREIGN_RUNTIMES: [&str; 3] = ["runsc", "kata", "krun"];

/// Properties of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineFacts {
    /// Its version, as it says itself.
    pub(crate) version: String,
    /// Whether ids of its containers are ids of the host.
    pub(crate) ids: Ids,
    /// Whether it shares files and kernel with us.
    pub(crate) reach: Reach,
    /// Whether containers run on a kernel of their own.
    pub(crate) has_own_kernel: bool,
    /// How it stores containers, and on what.
    pub(crate) storage: String,
    /// Runtimes that it knows.
    pub(crate) runtimes: Vec<String>,
    /// The default runtime.
    pub(crate) default_runtime: String,
    /// Whether it takes a filter of system calls.
    pub(crate) seccomp: bool,
    /// Whether it counts and limits memory, processors and processes.
    pub(crate) limits: bool,
}

/// How ids of containers and of the host correspond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ids {
    /// They are the same: no process of a container may have id 0.
    Same,
    /// The engine maps them: root of a container is an ordinary user on the host.
    Mapped,
}

/// How far an engine is from us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The same files and the same kernel: sockets, descriptors and mounts can be handed over.
    Shared,
    /// Another machine, or another kernel: everything goes through the engine.
    Remote,
}

impl EngineFacts {
    /// Asks the engine.
    pub(crate) async fn ask(client: &Client, settings: &EngineSettings) -> Result<Self> {
        let info = client.get("/info").await.map_err(|error| client.explain("engine", &error))?;
        Ok(Self::of(&info, settings, client.is_remote(), client.belongs_to_a_user()))
    }

    fn of(info: &SystemInfo, settings: &EngineSettings, remote: bool, of_a_user: bool) -> Self {
        let options = info.security_options.clone().unwrap_or_default();
        let has =
            |name: &str| options.iter().any(|option| option.split(',').any(|part| part == format!("name={name}")));
        let maps = has("rootless") || has("userns") || of_a_user;
        let default_runtime = info.default_runtime.clone().unwrap_or_default();
        let runtime = settings.runtime.as_deref().unwrap_or(&default_runtime);
        let foreign = FOREIGN_RUNTIMES.iter().any(|name| runtime.starts_with(name));
        let backing =
            info.driver_status.iter().flatten().find(|pair| pair.first().is_some_and(|key| key.starts_with("Backing")));
        let backing = backing.and_then(|pair| pair.get(1)).map(|name| format!(" on {name}")).unwrap_or_default();
        let mut runtimes: Vec<String> = info.runtimes.iter().flatten().map(|(name, _)| name.clone()).collect();
        runtimes.sort();
        Self {
            version: info.server_version.clone().unwrap_or_default(),
            ids: if maps { Ids::Mapped } else { Ids::Same },
            reach: if remote || foreign { Reach::Remote } else { Reach::Shared },
            has_own_kernel: foreign,
            storage: format!("{}{backing}", info.driver.as_deref().unwrap_or("unknown storage")),
            runtimes,
            default_runtime,
            seccomp: has("seccomp"),
            limits: info.memory_limit.unwrap_or(false) && info.pids_limit.unwrap_or(false),
        }
    }

    /// The user of agent and commands, with ids as the container sees them.
    pub(crate) fn workload(&self, asked: User) -> User {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let own = (!uid.is_root()).then(|| User { uid: uid.as_raw(), gid: gid.as_raw() });
        workload(self.ids, self.reach, own, asked)
    }
}

/// The id of a box's commands. It is never the host's root, and the default user of boxes never has the id of a real
/// user of the host. Any other id is granted if this process can give files to it.
fn workload(ids: Ids, reach: Reach, own: Option<User>, asked: User) -> User {
    let reserved = User { uid: box_host::WORKSPACE_OWNER, gid: box_host::WORKSPACE_OWNER };
    match (ids, own) {
        // Root of a mapped container is the user that the engine maps it to, who also owns the mounted files.
        (Ids::Mapped, _) => User::ROOT,
        (Ids::Same, Some(own)) if reach == Reach::Shared => own,
        (Ids::Same, _) if asked.uid == 0 || asked.gid == 0 || asked == Account::User.user() => reserved,
        (Ids::Same, _) => asked,
    }
}

impl EngineKind {
    /// How a filter of system calls is handed to the engine.
    pub(crate) fn takes_profiles_by_path(self) -> bool {
        self == Self::Podman
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_in_a_container_is_the_hosts_root() {
        let (root, other, user) = (User::ROOT, User { uid: 1001, gid: 1001 }, Account::User.user());
        let reserved = User { uid: box_host::WORKSPACE_OWNER, gid: box_host::WORKSPACE_OWNER };
        let mixed = User { uid: 1000, gid: 0 };
        let table = [
            (Ids::Same, Reach::Shared, None, root, reserved),
            (Ids::Same, Reach::Shared, None, other, other),
            (Ids::Same, Reach::Shared, None, user, reserved),
            (Ids::Same, Reach::Shared, None, mixed, reserved),
            (Ids::Same, Reach::Remote, Some(other), root, reserved),
            (Ids::Same, Reach::Shared, Some(other), root, other),
            (Ids::Mapped, Reach::Shared, Some(other), root, root),
            (Ids::Mapped, Reach::Shared, None, other, root),
        ];
        for (ids, reach, own, asked, expected) in table {
            assert_eq!(workload(ids, reach, own, asked), expected, "{ids:?} {reach:?} {own:?} {asked:?}");
        }
    }

    #[test]
    fn a_runtime_with_a_kernel_of_its_own_is_far_away() {
        let info = SystemInfo { default_runtime: Some("runc".to_owned()), ..SystemInfo::default() };
        let reach = |runtime: Option<&str>, remote| {
            let settings = EngineSettings { runtime: runtime.map(str::to_owned), ..EngineSettings::default() };
            EngineFacts::of(&info, &settings, remote, false).reach
        };
        assert_eq!(reach(None, false), Reach::Shared);
        assert_eq!(reach(Some("crun"), false), Reach::Shared);
        assert_eq!(reach(Some("runsc"), false), Reach::Remote);
        assert_eq!(reach(Some("kata-qemu"), false), Reach::Remote);
        assert_eq!(reach(None, true), Reach::Remote);
    }
}
