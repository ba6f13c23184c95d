use super::*;
use box_core::{MountSpec, Network, Origin, Profile};
use serde_json::Value;

fn facts<'a>(kind: EngineKind) -> ContainerInputs<'a> {
    ContainerInputs {
        kind,
        hostname: "b1",
        image: "python:3.12-slim",
        image_volumes: &[],
        image_has_healthcheck: false,
        user: User { uid: 0x7FFF_0000, gid: 0x7FFF_0000 },
        way: AgentTransport::Shared {
            agent: Path::new("/state/agent-0123"),
            control_socket: Path::new("/run/strongbox/door"),
        },
        mounts: Mounts::Attached,
        network_mode: "none",
        runtime: None,
        seccomp: Some("PROFILE"),
        disk: None,
        storage_quota: false,
        nproc: None,
        mounted_files: Vec::new(),
        has_ipv6: true,
        labels: HashMap::from([("strongbox".to_owned(), "1".to_owned())]),
    }
}

fn mount(source: &str, target: &str, mode: MountMode) -> MountSpec {
    MountSpec { source: source.into(), target: target.parse().unwrap(), mode, origin: Origin::Caller }
}

/// The body with sorted keys and without what was not said.
fn body(spec: &BoxSpec, facts: &ContainerInputs<'_>) -> Value {
    serde_json::to_value(container(spec, facts)).unwrap()
}

#[test]
fn the_default_container_of_docker() {
    insta::assert_json_snapshot!(body(&Profile::default().spec(), &facts(EngineKind::Docker)));
}

#[test]
fn the_default_container_of_podman() {
    let facts =
        ContainerInputs { nproc: Some(4096), seccomp: Some("/state/seccomp-0.json"), ..facts(EngineKind::Podman) };
    insta::assert_json_snapshot!(body(&Profile::default().spec(), &facts));
}

#[test]
fn a_container_with_everything_that_can_be_asked() {
    let mut spec = Profile::built_in("network_extended").unwrap().spec();
    spec.network = Network::On;
    spec.read_only_rootfs = false;
    spec.persistence = Persistence::Disk;
    spec.mounts = vec![mount("/srv/a", "/workspace/a", MountMode::Ro), mount("/srv/b", "/mnt/b", MountMode::Rw)];
    let volumes = [known("/data")];
    let facts = ContainerInputs {
        network_mode: "strongbox",
        runtime: Some("crun"),
        storage_quota: true,
        disk: Some(Path::new("/state/disks/main.b1")),
        image_volumes: &volumes,
        image_has_healthcheck: true,
        ..facts(EngineKind::Docker)
    };
    insta::assert_json_snapshot!(body(&spec, &facts));
}

#[test]
fn the_container_of_an_ordinary_user() {
    let mut spec = Profile::default().spec();
    spec.mounts = vec![mount("/srv/a", "/workspace", MountMode::Rw), mount("/srv/b", "/mnt/b", MountMode::Ro)];
    let facts = ContainerInputs { user: User::ROOT, mounts: Mounts::Bound, ..facts(EngineKind::Podman) };
    insta::assert_json_snapshot!(body(&spec, &facts));
}

#[test]
fn the_container_of_an_engine_far_away() {
    let facts =
        ContainerInputs { way: AgentTransport::Remote { volume: "strongbox-agent-0" }, ..facts(EngineKind::Docker) };
    insta::assert_json_snapshot!(body(&Profile::default().spec(), &facts));
}

#[test]
fn nothing_that_a_caller_chose_is_part_of_an_option() {
    let mut spec = Profile::default().spec();
    spec.session = Some("--privileged,seccomp=unconfined".to_owned());
    spec.image_name = "x,y".to_owned();
    let plain = body(&Profile::default().spec(), &facts(EngineKind::Docker));
    assert_eq!(body(&spec, &facts(EngineKind::Docker)), plain);
}

#[test]
fn volumes_of_an_image_become_memory_with_a_limit_or_the_image_is_refused() {
    let volumes = volumes_of("i", &["/data".to_owned(), "/workspace".to_owned()]).unwrap();
    let spec = Profile::default().spec();
    let named: Vec<String> =
        places(&spec, User { uid: 1, gid: 1 }, &volumes, 0).iter().map(|place| place.path.to_string()).collect();
    assert_eq!(named, ["/workspace", "/tmp", "/dev/shm", "/data"]);
    for bad in ["/", "relative", "/.strongbox/agent", "/a,b", "/a/../b"] {
        assert_eq!(volumes_of("i", &[bad.to_owned()]).unwrap_err().code(), "bad_image", "{bad}");
    }
}

#[test]
fn paths_that_podman_would_read_as_two_are_refused() {
    assert!(can_be_bound(EngineKind::Podman, Path::new("/srv/a b=c")));
    for path in ["/a,b", "/a:b", "/a\"b", "/a\nb"] {
        assert!(!can_be_bound(EngineKind::Podman, Path::new(path)), "{path}");
        assert!(can_be_bound(EngineKind::Docker, Path::new(path)), "{path}");
    }
}

#[test]
fn processor_time_is_rounded_to_what_the_kernel_takes() {
    assert_eq!(cpu_quota_us(0.01), 1000);
    assert_eq!(cpu_quota_us(1.0), 100_000);
    assert_eq!(cpu_quota_us(1024.0), 102_400_000);
}
