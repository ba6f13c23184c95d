//! The preparation of a sandbox and the setup message for its agent: pure, from the specification.

use box_core::{BoxSpec, limits::WORKSPACE};
use box_host::standard;
use box_wire::limits::GUEST_ID_MAX;
use box_wire::plan::{Bounding, Lifeline, Memory, Tracking};
use box_wire::{ContainerSetup, GuestPath, User};

/// Who commands are in every sandbox: the user that E2B's templates have for that.
pub(crate) const WORKLOAD: User = User { uid: 1000, gid: 1000 };

/// The agent's ids in every sandbox. No command has this uid, so none can end the agent; the shared group gives both
/// access to the journal. The id differs from that of agents elsewhere: a sandbox may itself be a box of this server,
/// whose agent no process in it may impersonate.
pub(crate) const AGENT: User = User { uid: GUEST_ID_MAX - 1, gid: WORKLOAD.gid };

/// The only machine that our agent is built for.
pub(crate) const MACHINE: &str = "x86_64";

/// Makes our directory and the places that are given as arguments, and says what was found. A template can have our agent in it
/// already, and then it need not be sent.
const PREPARATION: &str = r#"
set -eu
umask 022
for base in /opt /var/lib /tmp; do
    if mkdir -p "$base/strongbox" 2> /dev/null && test -w "$base/strongbox"; then
        home=$base/strongbox
        break
    fi
done
mkdir -p "$home/journal"
chmod 0770 "$home/journal"
owner=$1
agent=$2
shift 2
chown "$owner" "$home/journal"
own() {
    if ! test -d "$1"; then
        own "$(dirname "$1")"
        mkdir "$1"
        chown "$owner" "$1"
    fi
}
for place in "$@"; do
    own "$place"
    chown "$owner" "$place"
done
size=$(wc -c < "$home/$agent" 2> /dev/null || echo 0)
echo home "$home"
echo agent $size
echo machine $(uname -m)
"#;

/// Starts the agent, whose path is given as argument.
const LAUNCH: &str = r#"chmod 0555 "$0" && exec "$0" lodge -"#;

/// What was found in a fresh sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SandboxFacts {
    /// The agent's directory.
    pub(crate) home: GuestPath,
    /// Whether our agent is there.
    pub(crate) has_agent: bool,
    /// What kind of machine it is.
    pub(crate) machine: String,
}

/// Where our agent is in a sandbox.
pub(crate) fn agent(home: &GuestPath) -> String {
    format!("{home}/{}", box_agent_image::name())
}

/// Where the output of journalled execs is kept in a sandbox.
pub(crate) fn journal(home: &GuestPath) -> Option<GuestPath> {
    GuestPath::parse("journal", &format!("{home}/journal")).ok()
}

/// The command that prepares a sandbox, and makes these places in it for the workload.
pub(crate) fn preparation<'a>(places: impl Iterator<Item = &'a GuestPath>) -> Vec<String> {
    let owner = format!("{}:{}", WORKLOAD.uid, WORKLOAD.gid);
    let command = ["-c".to_owned(), PREPARATION.to_owned(), "prepare".to_owned(), owner, box_agent_image::name()];
    command.into_iter().chain(places.map(|place| place.as_str().to_owned())).collect()
}

/// The command that starts the agent.
pub(crate) fn launch(home: &GuestPath) -> Vec<String> {
    vec!["-c".to_owned(), LAUNCH.to_owned(), agent(home)]
}

/// What the preparation says that it found; nothing when that is not understood.
pub(crate) fn found(said: &str) -> Option<SandboxFacts> {
    let told = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::trim);
    let size: usize = told("agent")?.parse().ok()?;
    Some(SandboxFacts {
        home: GuestPath::parse("home", told("home")?).ok()?,
        has_agent: size == box_agent_image::AGENT.len(),
        machine: told("machine")?.to_owned(),
    })
}

/// The places that a box of this specification has to itself, mounts of directories included.
pub(crate) fn places(spec: &BoxSpec, directories: &[GuestPath]) -> Vec<GuestPath> {
    let workspace = GuestPath::parse("workspace", WORKSPACE).ok();
    let mut all: Vec<GuestPath> =
        workspace.into_iter().chain([spec.home.clone()]).chain(directories.to_vec()).collect();
    all.sort();
    all.dedup();
    all
}

/// The setup message. It has no system call filter: the machine has a kernel of its own.
pub(crate) fn setup(spec: &BoxSpec, home: &GuestPath, places: &[GuestPath]) -> ContainerSetup {
    let journal = journal(home).filter(|_| spec.keeps_journal);
    ContainerSetup {
        workload: WORKLOAD,
        agent: Some(AGENT),
        sights: Vec::new(),
        directories: Vec::new(),
        rlimits: standard::rlimits(spec, false),
        landlock_writable: writable(spec, places, journal.as_ref()),
        // Mounts are copies here, and sockets are not copied back.
        landlock_sockets: None,
        seccomp: Vec::new(),
        mode_guard: box_wire::plan::ModeGuard::default(),
        listener: None,
        tracking: Tracking::Ancestry,
        memory: Memory::Absent,
        oom_kills: None,
        journal: None,
        journal_in_box: journal,
        // An abandoned sandbox ends by itself at its deadline.
        lifeline: Lifeline::Detached,
        maker: None,
        bounding: Bounding::Inert,
    }
}

/// Where the workload may write: everywhere on a writable root, else in its places.
fn writable(spec: &BoxSpec, places: &[GuestPath], journal: Option<&GuestPath>) -> Vec<GuestPath> {
    if !spec.read_only_rootfs {
        return vec![GuestPath::root()];
    }
    let usual = ["/dev", "/proc", "/tmp"].into_iter().filter_map(|path| GuestPath::parse("place", path).ok());
    usual.chain(places.to_vec()).chain(journal.cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::Profile;

    #[test]
    fn what_the_preparation_says_is_read_and_nonsense_is_not() {
        let size = box_agent_image::AGENT.len();
        let said = format!("home /opt/strongbox\nagent {size}\nmachine x86_64\n");
        let home: GuestPath = "/opt/strongbox".parse().unwrap();
        assert_eq!(found(&said), Some(SandboxFacts { home, has_agent: true, machine: "x86_64".into() }));
        assert!(!found(&said.replace(&size.to_string(), "0")).unwrap().has_agent);
        for bad in ["", "home\nagent 1\nmachine x", "home ../x\nagent 1\nmachine x", "home /x\nagent y\nmachine x"] {
            assert_eq!(found(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_preparation_is_a_program_that_a_shell_runs() {
        let top = tempfile::tempdir().unwrap();
        let place: GuestPath = top.path().join("a b/c/d").to_str().unwrap().parse().unwrap();
        let mut arguments = preparation([&place].into_iter());
        // The test may not change owners, and must not touch this machine.
        arguments[1] =
            arguments[1].replace("/opt /var/lib /tmp", top.path().to_str().unwrap()).replace("chown", "true");
        let output = std::process::Command::new("/bin/sh").args(&arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found = found(&String::from_utf8(output.stdout).unwrap()).unwrap();
        assert!(found.home.as_str().ends_with("/strongbox") && !found.has_agent, "{found:?}");
        assert!(top.path().join("a b/c/d").is_dir() && top.path().join("strongbox/journal").is_dir());
    }

    #[test]
    fn a_read_only_root_leaves_the_places_of_the_box() {
        let home = "/opt/strongbox".parse().unwrap();
        let told = |spec: &BoxSpec| {
            let places = places(spec, &["/mnt/data".parse().unwrap()]);
            let told = setup(spec, &home, &places);
            told.landlock_writable.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let spec = BoxSpec { keeps_journal: true, ..Profile::default().spec() };
        assert_eq!(told(&spec), ["/dev", "/proc", "/tmp", "/mnt/data", "/workspace", "/opt/strongbox/journal"]);
        assert_eq!(told(&BoxSpec { read_only_rootfs: false, ..spec }), ["/"]);
    }
}
