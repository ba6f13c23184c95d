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
        directories: vec!["bin".to_owned(), "local".to_owned(), "local/lib".to_owned()].into(),
        shell: "/bin/bash",
    }
}

fn draft_of(spec: &BoxSpec, host: Option<&HostRoot>, shares_skeleton: bool) -> Draft {
    let id = "b1".parse().unwrap();
    let agent = User { uid: 65535, gid: 65535 };
    let resolver = has_network(spec).then(|| "nameserver 192.0.2.1\n".to_owned());
    let root_capabilities = if spec.root_capabilities { RootCapability::ALL.to_vec() } else { Vec::new() };
    let settings = vec![("user/max_inotify_instances", "64".to_owned())];
    let pids_counted = true;
    let facts =
        Facts { id: &id, agent, host_root: host, shares_skeleton, resolver, pids_counted, root_capabilities, settings };
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
