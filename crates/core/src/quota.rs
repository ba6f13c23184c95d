//! How much a workspace may hold, where it is a directory of the host: measured, because nothing of the kernel holds it there.
//!
//! What a box owns has a hard limit of bytes and files. A directory of the host has none of its own, so the service looks at it
//! before, while and after something runs in the session. What is decided here is pure; looking is in [`walk`].

mod walk;

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use box_wire::GuestPath;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::guarantee::{Dimension, Guarantees, Level};
use crate::session::{HostPathMode, SessionConfig};
use crate::{Error, MountMode, MountSpec, Origin, Result, limits};

/// How many trees of all sessions are walked at the same time. Walking holds a thread and the disk.
static WALKS: Semaphore = Semaphore::const_new(limits::QUOTA_WALKS_MAX);

/// Shortest time between two looks while something runs.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(25);
/// Longest time between two looks while something runs.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);
/// Time between two looks while nothing of ours runs: only what a command has left behind can write then.
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(5);
/// Looks in a row that find nothing changed, after which what runs is looked at as rarely as what does not: servers run for weeks, and write when they are
/// installed, which is a command that makes looks frequent again.
const QUIET_LOOKS: u32 = 30;
/// For each moment of looking, so many of waiting: what a session costs when its tree is large.
const WAIT_PER_LOOK: u32 = 9;
/// The same while nothing of ours runs.
const WAIT_PER_LOOK_IDLE: u32 = 99;

/// How much a workspace may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Most bytes, as the file system allocates them.
    pub bytes_max: u64,
    /// Most files, directories and links.
    pub inodes_max: u64,
}

/// What a workspace holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Allocated bytes; at least these when the look was cut short.
    pub bytes: u64,
    /// Files, directories and links, each once however many names it has; at least these when the look was cut short.
    pub inodes: u64,
    /// Whether there was more than is ever looked at: more names, or deeper ones. That counts as too many files.
    pub is_beyond_count: bool,
}

/// When a workspace was found to hold too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaMoment {
    /// Before something was started, which then was not.
    Before,
    /// While something ran, which then was killed.
    During,
    /// When something had ended.
    After,
}

impl QuotaMoment {
    /// A stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::During => "during",
            Self::After => "after",
        }
    }
}

impl fmt::Display for QuotaMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Quota {
    /// The quota of so many MiB. Files are bounded as on a disk of that size, and by how many are ever counted.
    pub fn of_mb(mb: u64) -> Self {
        Self { bytes_max: mb << 20, inodes_max: inodes_of_mb(mb).min(limits::QUOTA_NAMES_MAX) }
    }

    /// The quota of a session, when its workspace is a directory of the host that it may write to.
    pub fn of_session(config: &SessionConfig) -> Option<Self> {
        let is_open = config.host_path.is_some() && config.host_path_mode == HostPathMode::Rw;
        (is_open && config.workspace_quota_mb > 0).then(|| Self::of_mb(config.workspace_quota_mb))
    }

    /// Whether this is too much.
    pub fn is_exceeded_by(&self, usage: &Usage) -> bool {
        usage.is_beyond_count || usage.bytes > self.bytes_max || usage.inodes > self.inodes_max
    }

    /// The error that says so.
    pub fn exceeded(&self, when: QuotaMoment, usage: &Usage) -> Error {
        Error::QuotaExceeded {
            when,
            used_bytes: usage.bytes,
            quota_bytes: self.bytes_max,
            used_inodes: usage.inodes,
            quota_inodes: self.inodes_max,
        }
    }
}

/// Files that a disk of so many MiB has room for.
pub fn inodes_of_mb(mb: u64) -> u64 {
    (mb * limits::INODES_PER_DISK_MB).max(limits::INODES_MIN)
}

/// Counts what is in a tree, and stops when it is more than the quota. Blocks.
pub fn measure(root: BorrowedFd<'_>, quota: Quota) -> Result<Usage> {
    walk::measure(root, quota, walk::Bounds::default())
        .map_err(|errno| Error::io("looking at what the workspace holds", errno))
}

/// The directories of the host that a session writes to within a quota: its workspace, mounted by `origin`, and what it keeps. What they are mounted
/// from was decided when the session was made.
pub(crate) fn filled(config: &SessionConfig, origin: Origin) -> Vec<(Quota, MountSpec)> {
    let workspace = Quota::of_session(config).zip(mount_of(config, origin));
    let kept = config.kept.iter().filter(|kept| kept.mode == HostPathMode::Rw);
    let kept = kept.map(|kept| (Quota::of_mb(kept.quota_mb), kept.mount()));
    let volumes = config.volumes.iter().filter(|volume| volume.is_writable());
    let volumes = volumes.map(|volume| (Quota::of_mb(volume.quota_mb), volume.mount()));
    workspace.into_iter().chain(kept).chain(volumes).collect()
}

fn mount_of(config: &SessionConfig, origin: Origin) -> Option<MountSpec> {
    let source = config.host_path.as_ref()?.into();
    Some(MountSpec { source, target: config.mount_path.clone(), mode: MountMode::Rw, origin })
}

/// A directory of the host that a session writes to within a quota, opened once: the one that the box sees.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: Arc<OwnedFd>,
    /// Where it is in the box.
    pub(crate) target: GuestPath,
    pub(crate) quota: Quota,
    /// Told when something is started.
    pub(crate) started: Notify,
}

impl Workspace {
    pub(crate) fn new(root: OwnedFd, target: GuestPath, quota: Quota) -> Self {
        Self { root: Arc::new(root), target, quota, started: Notify::new() }
    }

    /// Counts what is there, where nobody waits for it but who asked.
    pub(crate) async fn usage(&self) -> Result<Usage> {
        use std::os::fd::AsFd;
        let (root, quota) = (Arc::clone(&self.root), self.quota);
        let _turn = WALKS.acquire().await;
        let measured = crate::tasks::blocking(move || measure(root.as_fd(), quota)).await;
        measured.map_err(|error| Error::io("looking at what the workspace holds", std::io::Error::other(error)))?
    }

    /// Refuses when there is too much.
    pub(crate) async fn check(&self, when: QuotaMoment) -> Result<()> {
        let usage = self.usage().await?;
        if self.quota.is_exceeded_by(&usage) { Err(self.quota.exceeded(when, &usage)) } else { Ok(()) }
    }

    /// Looks again and again, and returns when there is too much.
    pub(crate) async fn until_exceeded(&self) -> Error {
        let mut pace = Pace::default();
        loop {
            tokio::time::sleep(pace.wait(Activity::Running)).await;
            if let Some(usage) = self.look(&mut pace).await.filter(|usage| self.quota.is_exceeded_by(usage)) {
                return self.quota.exceeded(QuotaMoment::During, &usage);
            }
        }
    }

    /// Looks once and remembers how long that took. Nothing when it cannot be looked at, which whoever starts something is told.
    pub(crate) async fn look(&self, pace: &mut Pace) -> Option<Usage> {
        let since = Instant::now();
        match self.usage().await {
            Ok(usage) => {
                pace.note(&self.quota, usage, since.elapsed(), Instant::now());
                Some(usage)
            }
            Err(error) => {
                tracing::warn!(error = %error, "a workspace cannot be measured");
                None
            }
        }
    }
}

/// Whether something of ours runs in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    Running,
    Idle,
}

/// How long to wait until the next look: as long as it would take to fill half of what is left, within bounds.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    last: Option<(Instant, Usage)>,
    /// How long the last look took.
    took: Duration,
    /// When there will be too much, if it goes on as between the last two looks.
    full_in: Option<Duration>,
    /// How many looks in a row have found nothing changed.
    quiet_looks: u32,
}

impl Pace {
    /// Something was started, which may write.
    pub(crate) fn is_stirred(&mut self) {
        self.quiet_looks = 0;
    }

    fn note(&mut self, quota: &Quota, usage: Usage, took: Duration, now: Instant) {
        self.full_in = self.last.and_then(|(then, before)| {
            let part = |used: u64, before: u64, max: u64| {
                let grown = used.checked_sub(before).filter(|grown| *grown > 0)?;
                Some(now.duration_since(then).mul_f64(ratio(max.saturating_sub(used), grown).min(1e6)))
            };
            let bytes = part(usage.bytes, before.bytes, quota.bytes_max);
            bytes.into_iter().chain(part(usage.inodes, before.inodes, quota.inodes_max)).min()
        });
        let is_same = self.last.is_some_and(|(_, before)| before == usage);
        self.quiet_looks = if is_same { self.quiet_looks.saturating_add(1) } else { 0 };
        (self.last, self.took) = (Some((now, usage)), took);
    }

    /// How long to wait.
    pub(crate) fn wait(&self, activity: Activity) -> Duration {
        match activity {
            Activity::Running if self.quiet_looks < QUIET_LOOKS => {
                let min = LOOK_EVERY_MIN.max(self.took * WAIT_PER_LOOK);
                let hurry = match (self.last, self.full_in) {
                    // Nothing is known yet of how fast it grows.
                    (None, _) => LOOK_EVERY_MIN,
                    (_, full_in) => full_in.map_or(LOOK_EVERY_MAX, |full_in| full_in / 2),
                };
                hurry.clamp(min, LOOK_EVERY_MAX.max(min))
            }
            Activity::Running | Activity::Idle => LOOK_EVERY_IDLE.max(self.took * WAIT_PER_LOOK_IDLE),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn ratio(left: u64, grown: u64) -> f64 {
    left as f64 / grown as f64
}

/// Says of a session what holds its disk, besides what the backend found: that we look at these places of it.
pub(crate) fn tell(guarantees: &mut Guarantees, config: &SessionConfig, held: &[(&GuestPath, Quota)]) {
    if held.is_empty() {
        return;
    }
    let is_held = |path: &GuestPath| held.iter().any(|(target, _)| *target == path);
    let workspace = config.host_path.iter().map(|_| (&config.mount_path, config.host_path_mode));
    let others = workspace.chain(config.extra_mounts.iter().map(|mount| (&mount.mount_path, mount.mode)));
    let others: Vec<_> = others
        .filter(|(path, mode)| *mode == HostPathMode::Rw && !is_held(path))
        .map(|(path, _)| path.as_str())
        .collect();
    let level = if others.is_empty() { Level::Soft } else { Level::Absent };
    let rest = if others.is_empty() { String::new() } else { format!(", but not {}", others.join(", ")) };
    let figure = |dimension, quota: &Quota| match dimension {
        Dimension::DiskBytes => format!("{} MiB", quota.bytes_max >> 20),
        _ => format!("{} files", quota.inodes_max),
    };
    for dimension in [Dimension::DiskBytes, Dimension::DiskInodes] {
        let found = guarantees.iter().find(|guarantee| guarantee.dimension == dimension);
        let found = found.map_or(String::new(), |guarantee| format!("{}; ", guarantee.why));
        let places: Vec<_> =
            held.iter().map(|(target, quota)| format!("{target} is held to {}", figure(dimension, quota))).collect();
        let places = places.join(" and ");
        let why = format!("{found}{places} by looking at it before, during and after every command{rest}");
        guarantees.set(dimension, level, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionRequest;

    const MIB: u64 = 1 << 20;

    #[test]
    fn only_a_writable_directory_of_the_host_has_a_quota_of_this_kind() {
        let request = |path: Option<&str>, mode, mb| SessionRequest {
            host_path: Some(path.map(str::to_owned)),
            host_path_mode: Some(mode),
            workspace_quota_mb: Some(mb),
            ..SessionRequest::default()
        };
        let quota = |path, mode, mb| {
            Quota::of_session(
                &request(path, mode, mb).resolve(&crate::session::SessionDefaults::default(), None).unwrap(),
            )
            .map(|quota| quota.bytes_max)
        };
        assert_eq!(quota(Some("/srv"), HostPathMode::Rw, 32), Some(32 * MIB));
        assert_eq!(quota(Some("/srv"), HostPathMode::Rw, 0), None, "no quota was asked for");
        assert_eq!(quota(Some("/srv"), HostPathMode::Ro, 32), None, "nothing can be written");
        assert_eq!(quota(Some("/srv"), HostPathMode::None, 32), None, "it is not mounted");
        assert_eq!(quota(None, HostPathMode::Rw, 32), None, "the box's own storage has a hard limit");
    }

    #[test]
    fn what_a_box_keeps_has_a_quota_of_its_own() {
        let kept = crate::session::KeptDirectory {
            host_path: "/var/lib/kept".into(),
            mount_path: "/mnt/kept".parse().unwrap(),
            quota_mb: 64,
            mode: HostPathMode::Rw,
        };
        let rules = crate::session::DoorRules { kept: Some(kept), ..Default::default() };
        let filled = |path: Option<&str>, mb| {
            let request = SessionRequest {
                host_path: Some(path.map(str::to_owned)),
                workspace_quota_mb: Some(mb),
                rules: rules.clone(),
                ..SessionRequest::default()
            };
            let config = request.resolve(&crate::session::SessionDefaults::default(), None).unwrap();
            let filled = filled(&config, Origin::Caller).into_iter();
            let filled: Vec<_> = filled.map(|(quota, mount)| (mount.target.to_string(), quota.bytes_max)).collect();
            let mut guarantees = Guarantees::default();
            let target = config.kept.as_ref().unwrap().mount_path.clone();
            tell(&mut guarantees, &config, &[(&target, Quota::of_mb(64))]);
            (filled, guarantees.level(Dimension::DiskBytes))
        };
        let kept = ("/mnt/kept".to_owned(), 64 * MIB);
        assert_eq!(filled(None, 8), (vec![kept.clone()], Level::Soft));
        assert_eq!(filled(Some("/srv"), 0), (vec![kept.clone()], Level::Absent), "the workspace has none");
        assert_eq!(filled(Some("/srv"), 8).0, [("/workspace".to_owned(), 8 * MIB), kept]);
    }

    #[test]
    fn bytes_files_and_what_cannot_be_counted_are_each_too_much() {
        let quota = Quota::of_mb(1);
        assert_eq!((quota.bytes_max, quota.inodes_max), (MIB, limits::INODES_MIN));
        assert_eq!(Quota::of_mb(100).inodes_max, 25_600);
        assert_eq!(Quota::of_mb(limits::DISK_MB_MAX).inodes_max, limits::QUOTA_NAMES_MAX);
        let usage = |bytes, inodes, is_beyond_count| Usage { bytes, inodes, is_beyond_count };
        assert!(!quota.is_exceeded_by(&usage(MIB, 4096, false)));
        assert!(quota.is_exceeded_by(&usage(MIB + 1, 0, false)));
        assert!(quota.is_exceeded_by(&usage(0, 4097, false)));
        assert!(quota.is_exceeded_by(&usage(0, 0, true)));
    }

    #[test]
    fn the_error_says_when_how_much_and_what_to_do() {
        let usage = Usage { bytes: 2 * MIB, inodes: 3, is_beyond_count: false };
        let error = Quota::of_mb(1).exceeded(QuotaMoment::Before, &usage);
        assert_eq!(error.code(), "quota_exceeded");
        let text = error.to_string();
        assert!(text.starts_with("workspace quota exceeded before execution: "), "{text}");
        for part in ["2097152", "1048576", "remove files", "workspace_quota_mb"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn looks_come_quicker_the_sooner_it_would_be_full_and_never_cost_more_than_a_tenth() {
        let quota = Quota::of_mb(100);
        let usage = |mb: u64| Usage { bytes: mb * MIB, ..Usage::default() };
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut pace = Pace::default();
        assert_eq!(pace.wait(Activity::Running), LOOK_EVERY_MIN);
        pace.note(&quota, usage(10), Duration::ZERO, start);
        assert_eq!(pace.wait(Activity::Running), LOOK_EVERY_MAX, "nothing is known to grow");
        pace.note(&quota, usage(50), Duration::ZERO, start + second);
        assert_eq!(pace.wait(Activity::Running), Duration::from_millis(625), "40 MiB a second, 50 left");
        pace.note(&quota, usage(99), Duration::ZERO, start + 2 * second);
        assert_eq!(pace.wait(Activity::Running), LOOK_EVERY_MIN);
        pace.note(&quota, usage(99), second, start + 3 * second);
        assert_eq!(pace.wait(Activity::Running), 9 * second);
        assert_eq!(pace.wait(Activity::Idle), 99 * second);
        pace.note(&quota, usage(1), Duration::ZERO, start + 4 * second);
        assert_eq!(pace.wait(Activity::Running), LOOK_EVERY_MAX, "less is no hurry");
        assert_eq!(pace.wait(Activity::Idle), LOOK_EVERY_IDLE);
    }

    #[test]
    fn what_has_been_quiet_for_long_is_looked_at_rarely_until_something_is_started() {
        let (quota, start, usage) = (Quota::of_mb(100), Instant::now(), Usage { bytes: MIB, ..Usage::default() });
        let mut pace = Pace::default();
        for look in 0..=QUIET_LOOKS {
            assert!(pace.wait(Activity::Running) <= LOOK_EVERY_MAX, "{look}");
            pace.note(&quota, usage, Duration::ZERO, start + Duration::from_secs(look.into()));
        }
        assert_eq!(pace.wait(Activity::Running), LOOK_EVERY_IDLE);
        pace.is_stirred();
        assert_eq!(pace.wait(Activity::Running), LOOK_EVERY_MAX);
        for _ in 0..=QUIET_LOOKS {
            pace.note(&quota, usage, Duration::ZERO, start + Duration::from_mins(1));
        }
        let more = Usage { bytes: 2 * MIB, ..usage };
        pace.note(&quota, more, Duration::ZERO, start + Duration::from_secs(61));
        assert_eq!(pace.wait(Activity::Running), LOOK_EVERY_MAX, "it writes");
    }

    #[test]
    fn the_guarantee_says_what_is_looked_at_and_what_is_not() {
        let mount = crate::session::ExtraMount {
            host_path: "/srv/x".into(),
            mount_path: "/mnt/x".parse().unwrap(),
            mode: HostPathMode::Rw,
        };
        let request = |extra_mounts| SessionRequest {
            host_path: Some(Some("/srv".into())),
            workspace_quota_mb: Some(8),
            extra_mounts: Some(extra_mounts),
            ..SessionRequest::default()
        };
        let told = |extra_mounts| {
            let config = request(extra_mounts).resolve(&crate::session::SessionDefaults::default(), None).unwrap();
            let mut guarantees = Guarantees::default();
            guarantees.set(Dimension::DiskBytes, Level::Absent, "tmpfs of 8 MiB");
            tell(&mut guarantees, &config, &[(&config.mount_path, Quota::of_session(&config).unwrap())]);
            let bytes = guarantees.iter().find(|guarantee| guarantee.dimension == Dimension::DiskBytes).unwrap();
            (bytes.level, bytes.why.clone(), guarantees.level(Dimension::DiskInodes))
        };
        let (level, why, inodes) = told(Vec::new());
        assert_eq!((level, inodes), (Level::Soft, Level::Soft));
        assert!(why.starts_with("tmpfs of 8 MiB; /workspace is held to 8 MiB by looking"), "{why}");
        let (level, why, _) = told(vec![mount]);
        assert_eq!(level, Level::Absent);
        assert!(why.ends_with("but not /mnt/x"), "{why}");
    }
}
