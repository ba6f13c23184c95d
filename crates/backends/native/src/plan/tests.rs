use super::*;
use box_core::{MountSpec, Origin, Profile};

fn host() -> HostRoot {
    HostRoot {
        trees: vec![
            ("/usr".into(), known("/usr"), TreeKind::Directory),
            ("/etc/ld.so.cache".into(), known("/etc/ld.so.cache"), TreeKind::File),
        ],
        files: vec![(known("/etc/services"), b"http 80/tcp\n".to_vec())],
        links: vec![(known("/bin"), "usr/bin".to_owned())],
        hidden: vec![known("/usr/lib/python3.11/EXTERNALLY-MANAGED")],
        writable: writable().into(),
        shell: "/bin/bash",
    }
}

fn writable() -> Writable {
    let text = |text: &str| text.to_owned();
    let usr = Own {
        directories: ["bin", "local", "local/lib"].map(text).into(),
        hidden: vec![text("lib/python3.11/EXTERNALLY-MANAGED")],
        links: vec![(text("bin/python"), text("python3"))],
        ..Own::default()
    };
    let dpkg = Own { copies: vec![text("status")], hidden: vec![text("lock")], ..Own::default() };
    Writable {
        usr,
        trees: vec![("/var/lib/dpkg".into(), known("/var/lib/dpkg"), dpkg)],
        files: vec![(known("/etc/ld.so.cache"), b"cache".to_vec())],
        directories: vec![known("/var/lib/apt/lists/partial")],
        ..Writable::default()
    }
}

fn draft_of(spec: &BoxSpec, host: Option<&HostRoot>, shares_skeleton: bool) -> Draft {
    let id = "b1".parse().unwrap();
    let agent = User { uid: 65535, gid: 65535 };
    let resolver = (spec.network == box_core::Network::On).then(|| "nameserver 192.0.2.1\n".to_owned());
    let root_capabilities = if spec.root_capabilities { RootCapability::ALL.to_vec() } else { Vec::new() };
    let settings = vec![("user/max_inotify_instances", "64".to_owned())];
    let facts = PlanInputs {
        id: &id,
        agent,
        host_root: host,
        shares_skeleton,
        resolver,
        pids_counted: true,
        sudo: spec.root_capabilities.then(|| "/state/agent".into()),
        root_capabilities,
        settings,
    };
    draft(spec, &facts, vec![])
}

#[test]
fn the_default_plan() {
    insta::assert_debug_snapshot!(draft_of(&Profile::default().spec(), Some(&host()), true));
}

#[test]
fn the_plan_of_an_ordinary_user() {
    insta::assert_debug_snapshot!(draft_of(&Profile::default().spec(), Some(&host()), false));
}

#[test]
fn the_plan_of_a_writable_image_with_mounts() {
    let mount = |source: &str, target: &str, mode| MountSpec {
        source: source.into(),
        target: target.parse().unwrap(),
        mode,
        origin: Origin::Caller,
    };
    let mut spec = Profile::built_in("network_extended").unwrap().spec();
    spec.user = User { uid: 1000, gid: 1000 };
    spec.mounts =
        vec![mount("/srv/a/deep", "/workspace/deep", MountMode::Ro), mount("/srv/a", "/workspace", MountMode::Rw)];
    insta::assert_debug_snapshot!(draft_of(&spec, None, true));
}

#[test]
fn the_plan_of_a_writable_root_that_shows_the_hosts_programs() {
    let spec = BoxSpec { read_only_rootfs: false, ..Profile::default().spec() };
    insta::assert_debug_snapshot!(draft_of(&spec, Some(&host()), false));
    let shared = draft_of(&spec, Some(&host()), true);
    assert!(shared.sources.contains(&Source::Programs), "root makes one layer for all boxes");
}

#[test]
fn a_user_has_a_home_and_a_name_and_nothing_that_roots_is() {
    let mut spec = Profile::built_in("e2b").unwrap().spec();
    spec.home = known("/home/user");
    let plan = draft_of(&spec, Some(&host()), true).plan;
    assert_eq!((plan.root_capabilities.len(), plan.workload), (7, User { uid: 1000, gid: 1000 }));
    let made = |wanted: &str| {
        let find = |step: &Step| match step {
            Step::Directory { path, mode, owner } if path.as_str() == wanted => Some((*mode, owner.uid)),
            _ => None,
        };
        plan.steps.iter().filter_map(find).collect::<Vec<_>>()
    };
    assert_eq!((made("/home/user"), made("/workspace")), (vec![(0o755, 1000)], vec![(0o755, 1000)]));
    assert_eq!((made("/root"), made("/tmp")), (vec![(0o700, 0)], vec![(0o1777, 0)]));
    let accounts = plan.steps.iter().find_map(|step| match step {
        Step::Provide { path, contents, .. } if path.as_str() == "/etc/passwd" => Some(contents.clone()),
        _ => None,
    });
    let accounts = String::from_utf8(accounts.unwrap()).unwrap();
    assert!(accounts.contains("root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\n"));
}

#[test]
fn only_a_box_whose_root_has_capabilities_and_that_has_room_for_it_has_sudo() {
    let has_sudo = |spec: &BoxSpec, host: Option<&HostRoot>| {
        let draft = draft_of(spec, host, true);
        let step = draft.plan.steps.iter().find_map(|step| match step {
            Step::Program { tree, path, link } => Some((*tree, path.as_str(), link.as_str())),
            _ => None,
        });
        if let Some((tree, path, link)) = step {
            assert_eq!((path, link), ("/run/strongbox/sudo", "/usr/local/bin/sudo"));
            assert_eq!(draft.sources[tree as usize], Source::Host("/state/agent".into()));
        }
        assert_eq!(draft.plan.sudo, step.is_some(), "the socket is there where the program is");
        step.is_some()
    };
    let capable = Profile::built_in("e2b").unwrap().spec();
    assert!(has_sudo(&capable, Some(&host())) && has_sudo(&capable, None));
    let read_only = BoxSpec { read_only_rootfs: true, ..capable.clone() };
    assert!(!has_sudo(&read_only, Some(&host())), "nothing can be put into the host's programs");
    assert!(has_sudo(&read_only, None), "an image has room until its root is sealed");
    for host in [Some(&host()), None] {
        assert!(!has_sudo(&BoxSpec { root_capabilities: false, ..capable.clone() }, host));
    }
}

#[test]
fn what_forbids_further_mounts_comes_after_the_last_one() {
    for shared in [true, false] {
        let steps = draft_of(&Profile::default().spec(), Some(&host()), shared).plan.steps;
        let setting = steps.iter().position(|step| matches!(step, Step::Sysctl { .. })).unwrap();
        let late = |step: &Step| matches!(step, Step::Sysctl { .. } | Step::Seal { .. });
        assert!(steps[setting..].iter().all(late), "{steps:?}");
    }
}

#[test]
fn a_box_that_needs_more_than_the_skeleton_gets_a_root_of_its_own() {
    let shares = |spec: &BoxSpec| matches!(draft_of(spec, Some(&host()), true).plan.root, Root::Tree(_));
    let plain = Profile::default().spec();
    assert!(shares(&plain));
    assert!(!shares(&BoxSpec { read_only_rootfs: false, ..plain.clone() }));
    assert!(!shares(&BoxSpec { user: User { uid: 1, gid: 1 }, ..plain.clone() }));
    assert!(!shares(&BoxSpec { home: known("/home/user"), ..plain.clone() }));
    let mount = |target: &str| MountSpec {
        source: "/srv".into(),
        target: target.parse().unwrap(),
        mode: MountMode::Ro,
        origin: Origin::Caller,
    };
    assert!(shares(&BoxSpec { mounts: vec![mount("/workspace/a")], ..plain.clone() }));
    assert!(!shares(&BoxSpec { mounts: vec![mount("/mnt/a")], ..plain }));
}
