//! The world around the box under attack: a canary, listeners, mounts and a peer.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use box_core::{BackendName, BoxSpec, Error, MountMode, MountSpec, Network, Profile};
use box_tests::ground::{mount, private_directory};
use box_tests::{Ground, TestBox, isolation};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use tempfile::TempDir;

use crate::controls::Answered;

/// Everything that stands around the box under attack.
pub(crate) struct World {
    pub(crate) ground: Ground,
    pub(crate) preludes: BTreeMap<String, String>,
    /// What must never be read in a box.
    pub(crate) secret: String,
    pub(crate) random: String,
    /// Holds `canary` (the secret) and `rw` (world-writable).
    pub(crate) canary: TempDir,
    pub(crate) host_port: u16,
    pub(crate) api_port: u16,
    pub(crate) abstract_name: String,
    pub(crate) read_only: PathBuf,
    pub(crate) read_write: PathBuf,
    pub(crate) peer: TestBox,
    /// Address and port of a service in the peer, where it has a network.
    pub(crate) peer_service: Option<(String, u16)>,
    /// Why cases that need a network cannot run, where they cannot.
    pub(crate) no_network: Option<String>,
    /// What the controls answered that have run.
    pub(crate) controls: Answered,
}

const PEER_PORT: u16 = 8099;

impl World {
    /// Builds a world of boxes of this backend.
    pub(crate) async fn build(backend: BackendName, preludes: BTreeMap<String, String>) -> Result<Self> {
        let ground = Ground::open(backend).await?;
        let random = fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().replace('-', "")[..12].to_owned();
        let secret = format!("host-canary-{random}");
        let canary = canary(&secret)?;
        let (read_only, read_write) = mount_sources(&ground)?;
        let host_port = listen_everywhere(&secret)?;
        let api_port = listen_everywhere(&secret)?;
        let abstract_name = format!("strongbox-test-{random}");
        listen_abstract(&abstract_name, &secret)?;
        let (peer, no_network) = make_peer(&ground).await?;
        let mut world = Self {
            ground,
            preludes,
            secret,
            random,
            canary,
            host_port,
            api_port,
            abstract_name,
            read_only,
            read_write,
            peer,
            peer_service: None,
            no_network,
            controls: Answered::default(),
        };
        world.populate_peer().await?;
        Ok(world)
    }

    /// The environment of each probe.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let secret = std::env::var(isolation::SECRET_VARIABLE).unwrap_or_default();
        let (head, tail) = secret.split_at(secret.len() / 2);
        let canary = self.canary.path();
        let mut given = vec![
            ("BOX_CANARY_PATH", canary.join("canary").display().to_string()),
            ("BOX_CANARY_DIR", canary.display().to_string()),
            ("BOX_HOST_TCP_PORT", self.host_port.to_string()),
            ("BOX_HOST_ADDRESSES", format!("{},{}", isolation::ADDRESS, isolation::SECOND_ADDRESS)),
            ("BOX_UPSTREAM", format!("{}:{}", isolation::UPSTREAM, isolation::UPSTREAM_PORT)),
            ("BOX_HOST_ABSTRACT", self.abstract_name.clone()),
            ("BOX_API_PORT", self.api_port.to_string()),
            ("BOX_RAND", self.random.clone()),
            ("BOX_STATE_DIR", self.ground.state.path().display().to_string()),
            ("BOX_HOST_NAME", fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()),
            ("BOX_SECRET_HALVES", format!("{head}:{tail}")),
        ];
        if let Some((address, port)) = &self.peer_service {
            given.push(("BOX_PEER_IP", address.clone()));
            given.push(("BOX_PEER_PORT", port.to_string()));
        }
        given.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The two mounts as the box under attack has them.
    pub(crate) fn mounts(&self) -> Result<Vec<MountSpec>> {
        Ok(vec![
            mount(&self.read_only, "/workspace/mnt-ro", MountMode::Ro)?,
            mount(&self.read_write, "/workspace/mnt-rw", MountMode::Rw)?,
        ])
    }

    /// Fills in the placeholders of the corpus.
    pub(crate) fn fill(&self, text: &str) -> String {
        let pairs = [
            ("{RW_MOUNT}", self.read_write.display().to_string()),
            ("{RO_MOUNT}", self.read_only.display().to_string()),
            ("{HOST_CANARY_DIR}", self.canary.path().display().to_string()),
            ("{API_PORT}", self.api_port.to_string()),
            ("{RAND}", self.random.clone()),
        ];
        pairs.into_iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, &value))
    }

    /// Secrets, a process with a telling name and, where it has a network, a service.
    async fn populate_peer(&mut self) -> Result<()> {
        let random = &self.random;
        let places = "/workspace /tmp /dev/shm";
        self.peer.check(&format!("for d in {places}; do echo secret of a peer > $d/peer-{random}; done")).await?;
        let marker = format!("(setsid sh -c 'sleep 100000; :' peer-marker-{random} > /dev/null 2>&1 < /dev/null &)");
        self.peer.check(&marker).await?;
        if self.no_network.is_some() {
            return Ok(());
        }
        let service = format!(
            "import socket\ns = socket.create_server(('0.0.0.0', {PEER_PORT}))\nwhile True:\n c, _ = s.accept()\n c.send(b'peer')\n c.close()"
        );
        self.peer.check(&format!("(setsid python3 -c \"{service}\" > /dev/null 2>&1 < /dev/null &)")).await?;
        let address = format!(
            "import socket; s = socket.socket(2, 2); s.connect(('{}', 9)); print(s.getsockname()[0])",
            isolation::UPSTREAM
        );
        let address = self.peer.argv(&["python3", "-c", &address]).await?.text();
        if !address.is_empty() {
            self.peer_service = Some((address, PEER_PORT));
        }
        Ok(())
    }

    /// Takes the world down again.
    pub(crate) async fn end(&self) -> Result<()> {
        self.ground.clear().await?;
        if rustix::process::geteuid().is_root() {
            for path in [self.read_only.join("sub"), self.ground.mounts.path().to_owned()] {
                rustix::mount::unmount(&path, UnmountFlags::DETACH).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }
}

fn open_to_all(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).with_context(|| path.display().to_string())
}

fn canary(secret: &str) -> Result<TempDir> {
    let directory = private_directory()?;
    open_to_all(directory.path(), 0o755)?;
    // A line of its own: a probe prints it right before its verdict.
    fs::write(directory.path().join("canary"), format!("{secret}\n"))?;
    open_to_all(&directory.path().join("canary"), 0o644)?;
    fs::create_dir(directory.path().join("rw"))?;
    open_to_all(&directory.path().join("rw"), 0o777)?;
    Ok(directory)
}

/// Two directories below the allowed root. As root that root is a shared mount, as on a usual machine, so that a backend
/// that forgets propagation is caught; and a writable mount lies below the read-only one.
fn mount_sources(ground: &Ground) -> Result<(PathBuf, PathBuf)> {
    let root = ground.mounts.path().canonicalize()?;
    let as_root = rustix::process::geteuid().is_root();
    if as_root {
        rustix::mount::mount_bind(&root, &root).context("binding the allowed root")?;
        rustix::mount::mount_change(&root, MountPropagationFlags::SHARED).context("sharing the allowed root")?;
    }
    let (read_only, read_write) = (root.join("ro"), root.join("rw"));
    for path in [&read_only, &read_write, &read_only.join("sub")] {
        fs::create_dir(path)?;
    }
    fs::write(read_only.join("given"), "given")?;
    if as_root {
        let sub = read_only.join("sub");
        rustix::mount::mount("tmpfs", &sub, "tmpfs", MountFlags::empty(), None).context("mounting below")?;
        open_to_all(&sub, 0o777)?;
    }
    Ok((read_only, read_write))
}

/// Listens on every address of the host and answers the secret; the threads end with the process.
fn listen_everywhere(secret: &str) -> Result<u16> {
    let first = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("listening")?;
    let port = first.local_addr()?.port();
    let v6 = TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))).ok();
    for listener in [Some(first), v6].into_iter().flatten() {
        let secret = secret.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = (&stream).write_all(secret.as_bytes());
            }
        });
    }
    Ok(port)
}

fn listen_abstract(name: &str, secret: &str) -> Result<()> {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let listener = UnixListener::bind_addr(&address).context("listening on an abstract name")?;
    let secret = secret.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = (&stream).write_all(secret.as_bytes());
        }
    });
    Ok(())
}

/// A box of another tenant; with a network where that can be had without sending anything off the machine.
async fn make_peer(ground: &Ground) -> Result<(TestBox, Option<String>)> {
    let spec = Profile::default().spec();
    if !isolation::network_is_isolated() {
        let reason = "the network is not isolated; run the suite as root with --as-user NAME";
        return Ok((ground.make(&spec).await?, Some(reason.to_owned())));
    }
    match ground.try_make(&BoxSpec { network: Network::On, ..spec.clone() }).await {
        Ok(peer) => Ok((peer, None)),
        Err(Error::Unavailable { what, reason, .. } | Error::MissingFacility { what, reason, .. }) => {
            Ok((ground.make(&spec).await?, Some(format!("{what}: {reason}"))))
        }
        Err(error) => Err(error.into()),
    }
}
