use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use crate::session::request::{DoorRules, ExtraMount};
use crate::session::{HostPathMode, OnTimeout};
use crate::volumes::{VolumeKey, VolumeMount};
use crate::{Error, ImagePolicy, Network};

fn defaults() -> SessionDefaults {
    SessionDefaults { default_workspace: Some("/srv/box/default".into()), ..SessionDefaults::default() }
}

fn with_profile(profile: Profile) -> SessionDefaults {
    let mut defaults = SessionDefaults { default_profile: profile.name.clone(), ..defaults() };
    defaults.profiles.insert(profile);
    defaults
}

fn offline() -> SessionDefaults {
    SessionDefaults { default_profile: "offline_readonly".into(), ..SessionDefaults::default() }
}

/// Asks for everything, and for other things than any profile has.
fn greedy() -> SessionRequest {
    let mount = ExtraMount {
        host_path: "/srv/other".into(),
        mount_path: "/mnt/other".parse().unwrap(),
        mode: HostPathMode::Rw,
    };
    SessionRequest {
        network: Some(Network::On),
        image: Some("mine".into()),
        host_path: Some(Some("/srv/mine".into())),
        host_path_mode: Some(HostPathMode::None),
        extra_mounts: Some(vec![mount]),
        cpus: Some(7.5),
        memory_mb: Some(4321),
        pids_limit: Some(777),
        read_only_rootfs: Some(false),
        workspace_quota_mb: Some(99),
        persistent: Some(true),
        ttl_sec: Some(4000),
        ..SessionRequest::default()
    }
}

fn shell() -> ExecCall {
    ExecCall::new(box_wire::Program::Shell("true".into()))
}

/// The deadline of a command without a terminal.
fn timeout_ms(config: &SessionConfig, timeout_ms: Option<u64>) -> u64 {
    config.deadline_ms(&ExecCall { timeout_ms, ..shell() }).unwrap()
}

/// The fields that can be locked, as a session has them.
fn shown(config: &SessionConfig, field: LockedField) -> String {
    match field {
        LockedField::Network => config.network.to_string(),
        LockedField::Image => config.image.clone(),
        LockedField::HostPath => format!("{:?}", config.host_path),
        LockedField::HostPathMode => config.host_path_mode.to_string(),
        LockedField::ExtraMounts => format!("{:?}", config.extra_mounts),
        LockedField::Cpus => config.cpus.to_string(),
        LockedField::MemoryMb => config.memory_mb.to_string(),
        LockedField::PidsLimit => config.pids_limit.to_string(),
        LockedField::ReadOnlyRootfs => config.read_only_rootfs.to_string(),
        LockedField::WorkspaceQuotaMb => config.workspace_quota_mb.to_string(),
        LockedField::Persistent => config.persistent.to_string(),
        LockedField::TtlSec => config.ttl_sec.to_string(),
        LockedField::TimeoutSec => timeout_ms(config, Some(7000)).to_string(),
    }
}

#[test]
fn a_locked_field_cannot_be_overridden() {
    let request = SessionRequest {
        network: Some(Network::On),
        host_path_mode: Some(HostPathMode::Rw),
        ..SessionRequest::default()
    };
    let config = request.resolve(&offline(), None).unwrap();
    assert_eq!((config.network, config.host_path_mode), (Network::Off, HostPathMode::Ro));
}

#[test]
fn offline_readonly_locks_the_read_only_root() {
    let request = SessionRequest { read_only_rootfs: Some(false), cpus: Some(2.0), ..SessionRequest::default() };
    let config = request.resolve(&offline(), None).unwrap();
    assert_eq!((config.read_only_rootfs, config.cpus), (true, 2.0), "what is not locked is the caller's");
}

#[test]
fn the_default_profile_applies_its_limits() {
    let config = SessionRequest::default().resolve(&SessionDefaults::default(), None).unwrap();
    assert_eq!((config.cpus, config.memory_mb, config.pids_limit, config.read_only_rootfs), (1.0, 512, 128, true));
    assert_eq!(config.workspace_quota_mb, Profile::default().workspace_quota_mb);
}

#[test]
fn the_default_profile_gives_network_image_and_deadline() {
    let (config, profile) =
        (SessionRequest::default().resolve(&SessionDefaults::default(), None).unwrap(), Profile::default());
    assert_eq!((config.network, config.image.as_str()), (Network::Off, profile.image.as_str()));
    assert_eq!(timeout_ms(&config, None), profile.timeout_sec * 1000);
}

#[test]
fn what_the_default_profile_does_not_lock_is_the_callers() {
    let request = SessionRequest { network: Some(Network::On), ..SessionRequest::default() };
    let config = request.resolve(&SessionDefaults::default(), None).unwrap();
    assert_eq!((config.network, timeout_ms(&config, Some(60_000))), (Network::On, 60_000));
}

#[test]
fn a_deadline_is_clamped_to_the_longest_of_the_profile() {
    let config = SessionRequest::default().resolve(&SessionDefaults::default(), None).unwrap();
    assert_eq!(timeout_ms(&config, Some(999_000)), 120_000);
    assert_eq!(timeout_ms(&config, Some(60_000)), 60_000);
    assert_eq!(timeout_ms(&config, None), 30_000);
}

#[test]
fn a_deadline_that_is_written_as_text_or_float_is_clamped_alike() {
    let config = SessionRequest::default().resolve(&SessionDefaults::default(), None).unwrap();
    for written in [serde_json::json!("999"), serde_json::json!(999.0)] {
        let seconds = crate::profile::lax_seconds(&written).unwrap();
        assert_eq!(timeout_ms(&config, Some(seconds.saturating_mul(1000))), 120_000, "{written}");
    }
}

#[test]
fn a_locked_deadline_is_neither_longer_nor_shorter() {
    let profile = Profile { name: "p".into(), locked: [LockedField::TimeoutSec].into(), ..Profile::default() };
    let config = SessionRequest::default().resolve(&with_profile(profile), None).unwrap();
    for asked in [None, Some(1), Some(999_000)] {
        assert_eq!(timeout_ms(&config, asked), 30_000);
    }
}

#[test]
fn a_session_that_names_no_workspace_gets_the_default_one() {
    let of = |host_path| {
        let request = SessionRequest { host_path, ..SessionRequest::default() };
        request.resolve(&defaults(), None).unwrap().host_path
    };
    assert_eq!(of(None).as_deref(), Some("/srv/box/default"));
    assert_eq!(of(Some(None)), None, "asked for none");
    assert_eq!(of(Some(Some("/srv/mine".into()))).as_deref(), Some("/srv/mine"));
}

#[test]
fn the_default_workspace_is_not_shared_between_tenants() {
    let config = ServiceConfig { default_workspace: Some("/srv/box/default".into()), ..ServiceConfig::default() };
    assert!(SessionDefaults::new(&config, &TenantId::default()).default_workspace.is_some());
    assert_eq!(SessionDefaults::new(&config, &"acme".parse().unwrap()).default_workspace, None);
}

#[test]
fn a_quota_is_the_callers_or_the_profiles_or_the_configurations() {
    let configured = SessionDefaults { workspace_quota_mb: Some(5), ..with_profile(Profile::default()) };
    let profile = Profile { name: "p".into(), workspace_quota_mb: 7, ..Profile::default() };
    let of = |request: SessionRequest, defaults: &SessionDefaults| {
        request.resolve(defaults, None).unwrap().workspace_quota_mb
    };
    assert_eq!(of(SessionRequest::default(), &SessionDefaults::default()), 0);
    assert_eq!(of(SessionRequest::default(), &configured), 5);
    let both = SessionDefaults { workspace_quota_mb: Some(5), ..with_profile(profile) };
    assert_eq!(of(SessionRequest::default(), &both), 7);
    assert_eq!(of(SessionRequest { workspace_quota_mb: Some(9), ..SessionRequest::default() }, &both), 9);
}

#[test]
fn who_is_bound_to_a_profile_gets_it_and_no_other() {
    let asks = |profile: Option<&str>| SessionRequest { profile: profile.map(str::to_owned), ..greedy() };
    for asked in [None, Some("offline_readonly")] {
        let config = asks(asked).resolve(&SessionDefaults::default(), Some("offline_readonly")).unwrap();
        assert_eq!((config.profile.as_str(), config.network), ("offline_readonly", Network::Off));
    }
    let error = asks(Some("default")).resolve(&SessionDefaults::default(), Some("offline_readonly")).unwrap_err();
    assert!(error.to_string().contains("offline_readonly, to which the token is bound"), "{error}");
    let error = asks(None).resolve(&SessionDefaults::default(), Some("removed")).unwrap_err();
    assert!(matches!(&error, Error::Invalid(invalid) if invalid.allowed.contains("network_basic")), "{error}");
}

#[test]
fn a_door_cannot_lengthen_the_deadline_of_who_is_bound_to_a_profile() {
    let rules = DoorRules { timeout_sec_max: Some(86_400), ..DoorRules::default() };
    let request = SessionRequest { rules, ..SessionRequest::default() };
    let longest = |bound| request.resolve(&SessionDefaults::default(), bound).unwrap().timeout_sec_max;
    assert_eq!((longest(None), longest(Some("offline_readonly"))), (86_400, 60));
}

#[test]
fn a_locked_idle_time_holds_for_who_asks_to_persist() {
    let profile = Profile { name: "p".into(), locked: [LockedField::TtlSec].into(), ..Profile::default() };
    let config = greedy().resolve(&with_profile(profile), None).unwrap();
    assert_eq!((config.persistent, config.ttl_sec), (false, 300));
}

#[test]
fn no_kind_of_command_passes_a_locked_deadline() {
    let window = box_wire::WindowSize { rows: 24, columns: 80 };
    let kinds = [ExecSpan::Main, ExecSpan::Output].map(|span| [None, Some(window)].map(|terminal| (span, terminal)));
    let deadline = |config: &SessionConfig, (span, terminal), timeout_ms| {
        config.deadline_ms(&ExecCall { terminal, timeout_ms, span, ..shell() })
    };
    let profile = Profile { name: "p".into(), locked: [LockedField::TimeoutSec].into(), ..Profile::default() };
    let rules = DoorRules { timeout_sec_max: Some(TIMEOUT_SEC_MAX), ..DoorRules::default() };
    let request = SessionRequest { rules, ..SessionRequest::default() };
    let locked = request.resolve(&with_profile(profile), None).unwrap();
    for kind in kinds.into_iter().flatten() {
        for asked in [None, Some(1), Some(999_000)] {
            assert_eq!(deadline(&locked, kind, asked), Some(30_000), "{kind:?} {asked:?}");
        }
    }
    let lasting = (ExecSpan::Output, None);
    let bound = request.resolve(&SessionDefaults::default(), Some("offline_readonly")).unwrap();
    assert_eq!(
        [None, Some(1), Some(999_000)].map(|asked| deadline(&bound, lasting, asked)),
        [Some(60_000), Some(1), Some(60_000)]
    );
    let free = request.resolve(&SessionDefaults::default(), None).unwrap();
    assert_eq!([None, Some(999_000)].map(|asked| deadline(&free, lasting, asked)), [None, Some(999_000)]);
}

#[test]
fn a_deadline_at_its_limit_names_the_limit_and_the_profile() {
    let window = Some(box_wire::WindowSize { rows: 24, columns: 80 });
    let (command, terminal) = (shell(), ExecCall { terminal: window, ..shell() });
    let process = ExecCall { span: ExecSpan::Output, ..shell() };
    let profile = |locked: &[LockedField]| {
        let locked = locked.iter().copied().collect();
        let profile = Profile { name: "p".into(), timeout_sec: 5, timeout_sec_max: 9, locked, ..Profile::default() };
        SessionRequest::default().resolve(&with_profile(profile), None).unwrap()
    };
    let (open, locked) = (profile(&[]), profile(&[LockedField::TimeoutSec]));
    let longest = Some("the session (profile p) has timeout_sec_max 9; make one whose profile allows more");
    let lock = Some("profile p locks timeout_sec to 5; make a session with another profile");
    let day = Some("a terminal can have a deadline of at most 86400 s; start one without a deadline");
    // Who requests how much, the limit that it reached, and whether that made it shorter.
    let table = [
        (&open, &command, None, None, false),
        (&open, &command, Some(8_999), None, false),
        (&open, &command, Some(9_000), longest, false),
        (&open, &command, Some(600_000), longest, true),
        (&open, &terminal, None, None, false),
        (&open, &terminal, Some(600_000), None, false),
        (&open, &terminal, Some(u64::MAX), day, true),
        (&open, &process, None, longest, true),
        (&open, &process, Some(1), None, false),
        (&locked, &command, None, lock, false),
        (&locked, &command, Some(1), lock, false),
        (&locked, &command, Some(9_000), lock, true),
        (&locked, &terminal, None, lock, true),
        (&locked, &terminal, Some(1), lock, false),
        (&locked, &process, None, lock, true),
    ];
    for (config, call, timeout_ms, limit, is_cut) in table {
        let call = ExecCall { timeout_ms, ..call.clone() };
        assert_eq!(config.deadline_limit(&call).as_deref(), limit, "{call:?}");
        assert_eq!(config.deadline_cut(&call).as_deref(), limit.filter(|_| is_cut), "{call:?}");
    }
}

#[test]
fn a_terminal_has_no_deadline_of_its_own_and_input_alone_keeps_the_usual_one() {
    let config = SessionRequest::default().resolve(&SessionDefaults::default(), None).unwrap();
    let typed = ExecCall { stdin: crate::call::CallStdin::Stream, ..shell() };
    let window = Some(box_wire::WindowSize { rows: 24, columns: 80 });
    let on_a_terminal = ExecCall { terminal: window, ..typed.clone() };
    let bounded = ExecCall { timeout_ms: Some(600_000), ..on_a_terminal.clone() };
    let endless = ExecCall { timeout_ms: Some(u64::MAX), ..on_a_terminal.clone() };
    let deadlines = [&typed, &on_a_terminal, &bounded, &endless].map(|call| config.deadline_ms(call));
    assert_eq!(deadlines, [Some(30_000), None, Some(600_000), Some(86_400_000)]);
}

#[test]
fn only_a_terminal_without_a_deadline_ends_unattended() {
    let window = Some(box_wire::WindowSize { rows: 24, columns: 80 });
    let profile = |locked: &[LockedField]| {
        let locked = locked.iter().copied().collect();
        SessionRequest::default()
            .resolve(&with_profile(Profile { name: "p".into(), locked, ..Profile::default() }), None)
            .unwrap()
    };
    let (open, locked) = (profile(&[]), profile(&[LockedField::TimeoutSec]));
    let terminal = ExecCall { terminal: window, ..shell() };
    let of_a_sandbox = ExecCall { span: ExecSpan::Output, ..terminal.clone() };
    assert!(open.ends_unattended(&terminal));
    assert!(!locked.ends_unattended(&terminal), "the profile ends it");
    for other in [shell(), ExecCall { timeout_ms: Some(1), ..terminal }, of_a_sandbox] {
        assert!(!open.ends_unattended(&other), "{other:?}");
    }
}

#[test]
fn only_a_persistent_box_waits_for_a_server_forever_while_something_runs_in_it() {
    let end = |persistent, lease_end| {
        let rules = DoorRules { lease_end, ..DoorRules::default() };
        let request = SessionRequest { persistent: Some(persistent), rules, ..SessionRequest::default() };
        request.resolve(&SessionDefaults::default(), None).unwrap().unattended_end()
    };
    assert_eq!(end(false, LeaseEnd::Never), LeaseEnd::Within(24 * 3600));
    assert_eq!(end(true, LeaseEnd::Never), LeaseEnd::Never);
    for persistent in [false, true] {
        assert_eq!(end(persistent, LeaseEnd::Within(1)), LeaseEnd::Within(1), "its own end counts");
    }
}

#[test]
fn volumes_are_mounted_as_the_profile_locks_mounts() {
    let key = VolumeKey::Name("data".parse().unwrap());
    let directory =
        VolumeDirectory { key: key.clone(), name: "data".into(), host_path: "/srv/volume".into(), quota_mb: 1 };
    let mount = VolumeMount { volume: key, path: "/mnt/volume".parse().unwrap(), mode: HostPathMode::Rw };
    let request = SessionRequest { host_path: Some(None), volumes: Some(vec![mount]), ..SessionRequest::default() };
    let mode = |host_path_mode, locked: &[LockedField]| {
        let locked = locked.iter().copied().collect();
        let profile = Profile { name: "p".into(), host_path_mode, locked, ..Profile::default() };
        let defaults = SessionDefaults { volumes: vec![directory.clone()], ..with_profile(profile) };
        let config = request.resolve(&defaults, None).map_err(|error| error.to_string())?;
        let spec = config.box_spec(&defaults.profiles, &ImagePolicy::default(), &request.rules).unwrap();
        Ok::<_, String>(spec.mounts[0].mode)
    };
    let lock = &[LockedField::HostPathMode][..];
    assert_eq!(mode(HostPathMode::Ro, lock), Ok(crate::MountMode::Ro));
    assert_eq!(mode(HostPathMode::Rw, lock), Ok(crate::MountMode::Rw));
    assert_eq!(mode(HostPathMode::Ro, &[]), Ok(crate::MountMode::Rw), "not locked");
    for refused in [mode(HostPathMode::None, lock), mode(HostPathMode::Rw, &[LockedField::ExtraMounts])] {
        assert!(refused.as_ref().is_err_and(|error| error.contains("profile p locks mounts")), "{refused:?}");
    }
}

#[test]
fn what_was_locked_does_not_conflict_with_a_session_that_exists() {
    let request = SessionRequest { network: Some(Network::On), cpus: Some(4.0), ..SessionRequest::default() };
    let config = request.resolve(&offline(), None).unwrap();
    assert_eq!(config.differences(&request, &ImagePolicy::default()), []);
    let other = SessionRequest { cpus: Some(1.0), ..request };
    let differing: Vec<_> = config.differences(&other, &ImagePolicy::default()).iter().map(|it| it.field).collect();
    assert_eq!(differing, ["cpus"], "what is not locked still does");
}

/// Any profile that can be had.
fn profiles() -> impl Strategy<Value = Profile> {
    let limits = (0.01..64.0, 32..4096_u64, 1..512_u64, any::<bool>(), 0..64_u64);
    let deadlines = (1..1000_u64, 0..1000_u64);
    let locked = subsequence(LockedField::ALL.to_vec(), 0..=LockedField::ALL.len());
    (limits, deadlines, locked, any::<bool>()).prop_map(|(limits, (timeout_sec, more), locked, online)| {
        let (cpus, memory_mb, pids_limit, read_only_rootfs, workspace_quota_mb) = limits;
        Profile {
            name: "any".into(),
            network: if online { Network::On } else { Network::Off },
            cpus,
            memory_mb,
            pids_limit,
            read_only_rootfs,
            workspace_quota_mb,
            timeout_sec,
            timeout_sec_max: timeout_sec + more,
            locked: locked.into_iter().collect(),
            ..Profile::default()
        }
    })
}

/// Requests that ask for some fields and not for others.
fn requests() -> impl Strategy<Value = SessionRequest> {
    let asked = subsequence(LockedField::ALL.to_vec(), 0..=LockedField::ALL.len());
    asked.prop_map(|asked| {
        let silent = LockedField::ALL.into_iter().filter(|field| !asked.contains(field)).collect();
        greedy().without(&silent)
    })
}

/// A request for exactly what a session is.
fn asking_for(config: &SessionConfig) -> SessionRequest {
    SessionRequest {
        profile: Some(config.profile.clone()),
        network: Some(config.network),
        image: Some(config.image.clone()),
        host_path: Some(config.host_path.clone()),
        host_path_mode: Some(config.host_path_mode),
        mount_path: Some(config.mount_path.clone()),
        extra_mounts: Some(config.extra_mounts.clone()),
        cpus: Some(config.cpus),
        memory_mb: Some(config.memory_mb),
        pids_limit: Some(config.pids_limit),
        read_only_rootfs: Some(config.read_only_rootfs),
        workspace_quota_mb: Some(config.workspace_quota_mb),
        persistent: Some(config.persistent),
        ttl_sec: Some(config.ttl_sec),
        on_timeout: Some(OnTimeout::Keep),
        ..SessionRequest::default()
    }
}

proptest! {
    #[test]
    fn locks_always_win(profile in profiles(), request in requests()) {
        let (defaults, locked) = (with_profile(profile.clone()), profile.locked.clone());
        let config = request.resolve(&defaults, None).unwrap();
        let unasked = SessionRequest::default().resolve(&defaults, None).unwrap();
        for field in locked {
            prop_assert_eq!(shown(&config, field), shown(&unasked, field), "{}", field);
        }
        prop_assert_eq!(config.differences(&request, &ImagePolicy::default()), []);
    }

    #[test]
    fn what_is_not_locked_is_the_callers(profile in profiles()) {
        let config = greedy().resolve(&with_profile(profile.clone()), None).unwrap();
        let open = Profile { locked: BTreeSet::new(), ..profile.clone() };
        let wanted = greedy().resolve(&with_profile(open), None).unwrap();
        let follows_ttl = |field| field == LockedField::Persistent && profile.locks(LockedField::TtlSec);
        for field in LockedField::ALL.into_iter().filter(|field| !profile.locks(*field) && !follows_ttl(*field)) {
            prop_assert_eq!(shown(&config, field), shown(&wanted, field), "{}", field);
        }
    }

    #[test]
    fn a_deadline_is_never_longer_than_the_longest(profile in profiles(), asked in any::<Option<u64>>()) {
        let config = SessionRequest::default().resolve(&with_profile(profile.clone()), None).unwrap();
        let got = timeout_ms(&config, asked);
        prop_assert!(got <= profile.timeout_sec_max * 1000);
        let may_be_shorter = asked.is_some() && !profile.locks(LockedField::TimeoutSec);
        prop_assert!(may_be_shorter || got == profile.timeout_sec * 1000);
    }

    #[test]
    fn deciding_what_was_decided_changes_nothing(profile in profiles(), request in requests()) {
        let defaults = with_profile(profile);
        let once = request.resolve(&defaults, None).unwrap();
        let twice = asking_for(&once).resolve(&defaults, None).unwrap();
        prop_assert_eq!(once, twice);
    }
}
