use std::collections::BTreeMap;

use super::*;

use crate::Image;
use crate::session::SessionDefaults;

fn resolve(request: &SessionRequest) -> SessionConfig {
    request.resolve(&SessionDefaults::default(), None).unwrap()
}

#[test]
fn what_is_not_asked_comes_from_the_profile() {
    let config =
        resolve(&SessionRequest { profile: Some("network_extended".into()), cpus: Some(0.5), ..Default::default() });
    assert_eq!((config.cpus, config.memory_mb, config.read_only_rootfs), (0.5, 1024, false));
    assert_eq!((config.ttl_sec, config.network), (300, Network::On));
}

#[test]
fn an_unknown_profile_names_the_known_ones() {
    let request = SessionRequest { profile: Some("defualt".into()), ..Default::default() };
    let error = request.resolve(&SessionDefaults::default(), None).unwrap_err();
    assert!(error.to_string().contains("network_basic"), "{error}");
}

#[test]
fn only_what_is_asked_can_differ() {
    let config = resolve(&SessionRequest::default());
    assert_eq!(config.differences(&SessionRequest::default(), &ImagePolicy::default()), []);
    let mount = |mode| ExtraMount { host_path: "/srv/a".into(), mount_path: "/mnt/a".parse().unwrap(), mode };
    let request = SessionRequest {
        network: Some(Network::On),
        memory_mb: Some(512),
        host_path: Some(None),
        extra_mounts: Some(vec![mount(HostPathMode::Ro)]),
        ..Default::default()
    };
    let fields: Vec<_> =
        config.differences(&request, &ImagePolicy::default()).iter().map(|difference| difference.field).collect();
    assert_eq!(fields, ["network", "extra_mounts"]);
    let nothing = SessionRequest { extra_mounts: Some(vec![mount(HostPathMode::None)]), ..Default::default() };
    assert_eq!(config.differences(&nothing, &ImagePolicy::default()), [], "a mount of nothing is no mount");
}

#[test]
fn a_door_may_let_unknown_images_mean_the_host() {
    let rules = DoorRules { unknown_image: UnknownImage::Host, ..Default::default() };
    let asks = |image: &str| SessionRequest { image: Some(image.into()), rules: rules.clone(), ..Default::default() };
    let names = BTreeMap::from([("mine".to_owned(), "dir:/srv/root".to_owned())]);
    let images = ImagePolicy { names: &names, ..ImagePolicy::default() };
    let config = resolve(&asks("alpine:latest"));
    assert_eq!(config.image, "alpine:latest", "it is told as it was asked");
    assert_eq!(config.box_spec(&Profiles::default(), &images, &rules).unwrap().image, Image::Host);
    assert_eq!(config.differences(&asks("debian:12"), &images), []);
    assert_eq!(config.differences(&asks("mine"), &images).len(), 1);
}

#[test]
fn a_user_is_at_home_where_the_workspace_is() {
    let at = |host_path: Option<&str>, lone_mount_path| {
        let rules = DoorRules { lone_mount_path, ..Default::default() };
        let request = SessionRequest {
            profile: Some("e2b".into()),
            mount_path: Some("/home/user".parse().unwrap()),
            host_path: Some(host_path.map(str::to_owned)),
            rules: rules.clone(),
            ..Default::default()
        };
        let spec = resolve(&request).box_spec(&Profiles::default(), &ImagePolicy::default(), &rules).unwrap();
        assert_eq!((spec.user.uid, spec.root_capabilities), (1000, true));
        spec.home.to_string()
    };
    assert_eq!(at(None, LoneMountPath::Own), "/home/user");
    assert_eq!(at(Some("/srv/w"), LoneMountPath::Refused), "/home/user");
    assert_eq!(at(None, LoneMountPath::Kept), "/workspace", "a path that means nothing is nobody's home");
}

#[test]
fn a_workspace_is_mounted_unless_its_mode_is_none() {
    let request = SessionRequest { host_path: Some(Some("/srv/w".into())), ..Default::default() };
    let spec =
        resolve(&request).box_spec(&Profiles::default(), &ImagePolicy::default(), &DoorRules::default()).unwrap();
    assert_eq!((spec.mounts.len(), spec.mounts[0].mode), (1, MountMode::Rw));
    let request = SessionRequest { host_path_mode: Some(HostPathMode::None), ..request };
    assert_eq!(
        resolve(&request)
            .box_spec(&Profiles::default(), &ImagePolicy::default(), &DoorRules::default())
            .unwrap()
            .mounts,
        []
    );
}

#[test]
fn nothing_that_is_asked_is_ignored_and_values_stay_secret() {
    let env = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let made = SessionRequest { env: env(&[("A", "1"), ("KEY", "secret")]), ..Default::default() };
    let config = resolve(&made);
    let differing = |asked: SessionRequest| config.differences(&asked, &ImagePolicy::default());
    assert_eq!(differing(made), []);
    assert_eq!(differing(SessionRequest { env: env(&[("KEY", "secret"), ("A", "1")]), ..Default::default() }), []);
    let other = SessionRequest {
        profile: Some("debug".into()),
        on_timeout: Some(OnTimeout::Destroy),
        env: env(&[("KEY", "another"), ("B", "2")]),
        ttl_sec: Some(7),
        ..Default::default()
    };
    assert_eq!(config.new_ttl(&other), Some(7), "it can be changed, so it is no conflict");
    let found = differing(other);
    let fields: Vec<_> = found.iter().map(|difference| difference.field).collect();
    assert_eq!(fields, ["profile", "on_timeout", "env"]);
    assert_eq!((found[2].existing.as_str(), found[2].asked.as_str()), ("A,KEY", "B,KEY (another value)"));
    let of_door = DoorRules { on_timeout: Some(OnTimeout::Destroy), ..Default::default() };
    assert_eq!(differing(SessionRequest { rules: of_door.clone(), ..Default::default() }), []);
    assert_eq!(resolve(&SessionRequest { rules: of_door, ..Default::default() }).on_timeout, OnTimeout::Destroy);
}

#[test]
fn an_idle_time_that_the_profile_locks_stays() {
    let config = SessionConfig { locked: [LockedField::TtlSec].into(), ..resolve(&SessionRequest::default()) };
    assert_eq!(config.new_ttl(&SessionRequest { ttl_sec: Some(7), ..Default::default() }), None);
    let config = resolve(&SessionRequest::default());
    assert_eq!(config.new_ttl(&SessionRequest { ttl_sec: Some(300), ..Default::default() }), None, "it has that one");
}
