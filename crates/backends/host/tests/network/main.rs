//! Boxes reach out, and do not reach the host.
//!
//! Each test runs itself again in a network namespace that plays the host, next to one that plays the internet. Nothing
//! leaves the machine, and nothing of the machine's own network is touched.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod closed;
#[path = "../skip/mod.rs"]
mod skip;
mod test_host;

use std::net::TcpListener;

use box_core::Error;
use box_host::network::{self, Attachment, Method, Target};
use test_host::{Internet, Role, TestBox, in_test_host, interfaces, tables};

/// Listeners of the test host that a box must not reach.
struct HostServices([TcpListener; 3]);

impl HostServices {
    fn listen() -> Self {
        Self(["127.0.0.1:0", "[::1]:0", "[::]:0"].map(|address| TcpListener::bind(address).unwrap()))
    }

    fn ports(&self) -> [u16; 3] {
        self.0.each_ref().map(|listener| listener.local_addr().unwrap().port())
    }

    /// The port that is open on every address of the test host.
    fn everywhere_port(&self) -> u16 {
        self.ports()[2]
    }
}

fn attach(method: Method, target: Target<'_>) -> Attachment {
    assert_eq!(network::choose(Some(method)).unwrap(), method);
    let mut attachment = network::intent(method, &"test".parse().unwrap());
    network::attach(&mut attachment, &target).unwrap();
    attachment
}

fn veth(inside: &TestBox) -> Attachment {
    attach(Method::Veth, Target { agent_pid: inside.pid(), helper_cgroup: None, reserved: &[] })
}

fn assert_reaches_internet(inside: &TestBox, method: Method) {
    assert!(inside.connects(Internet::ADDRESS, Internet::PORT), "no way out");
    let resolv_conf = network::resolv_conf(method).unwrap();
    let server = resolv_conf.trim().strip_prefix("nameserver ").unwrap();
    assert!(inside.datagram_answered(server, 53), "name server {server} does not answer");
}

fn assert_host_is_out_of_reach(inside: &TestBox, services: &HostServices) {
    let gateway = inside.gateway().to_string();
    for port in services.ports() {
        assert!(test_host::host_connects("127.0.0.1", port) || test_host::host_connects("::1", port), "control");
        for address in ["127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::ffff:127.0.0.1", &gateway] {
            assert!(!inside.connects(address, port), "{address} port {port} leads to the host");
        }
    }
    for address in [Internet::HOST_ADDRESS, Internet::HOST_ADDRESS6, Internet::SECOND_HOST_ADDRESS] {
        assert!(test_host::host_connects(address, services.everywhere_port()), "control");
        assert!(!inside.connects(address, services.everywhere_port()), "{address} is the host's");
    }
    for address in Internet::METADATA_ADDRESSES {
        assert!(test_host::host_connects(address, Internet::PORT), "control");
        assert!(!inside.connects(address, Internet::PORT), "the metadata service {address}");
    }
}

/// What holds for both programs.
fn helper_story(method: Method) {
    let inside = TestBox::new();
    let services = HostServices::listen();
    let before = interfaces();
    let cgroup = test_host::Cgroup::new();
    let helper_cgroup = cgroup.as_ref().map(test_host::Cgroup::directory);
    assert!(!inside.connects(Internet::ADDRESS, Internet::PORT), "control: an unattached box reaches nothing");

    let attachment = attach(method, Target { agent_pid: inside.pid(), helper_cgroup, reserved: &[] });
    assert_reaches_internet(&inside, method);
    assert_host_is_out_of_reach(&inside, &services);
    let processes = [attachment.helper, attachment.guard].map(|process| process.unwrap().pid);
    for pid in processes {
        test_host::assert_confined(pid, &inside);
        assert!(cgroup.as_ref().is_none_or(|cgroup| cgroup.holds(pid)));
    }

    network::detach(&attachment).unwrap();
    assert!(!processes.into_iter().any(test_host::exists), "the helper and its guard are gone");
    assert!(!inside.connects(Internet::ADDRESS, Internet::PORT), "and with it the way out");
    assert_eq!(interfaces(), before);
    network::detach(&attachment).unwrap();
    a_helper_ends_with_its_box(method);
}

/// Also when no server ends it.
fn a_helper_ends_with_its_box(method: Method) {
    let inside = TestBox::new();
    let attachment = attach(method, Target { agent_pid: inside.pid(), helper_cgroup: None, reserved: &[] });
    let processes = [attachment.helper, attachment.guard].map(|process| process.unwrap().pid);
    assert!(processes.into_iter().all(test_host::runs), "control");
    drop(inside);
    test_host::wait_for("the end of the helper and its guard", || !processes.into_iter().any(test_host::runs));
    network::detach(&attachment).unwrap();
    assert!(!processes.into_iter().any(test_host::exists), "they are reaped");
}

#[test]
fn pasta_leads_out_and_nowhere_else() {
    in_test_host("pasta_leads_out_and_nowhere_else", Role::Root, || helper_story(Method::Pasta));
}

#[test]
fn pasta_works_for_an_ordinary_user() {
    in_test_host("pasta_works_for_an_ordinary_user", Role::User, || helper_story(Method::Pasta));
}

#[test]
fn slirp_leads_out_and_nowhere_else() {
    in_test_host("slirp_leads_out_and_nowhere_else", Role::Root, || helper_story(Method::Slirp4netns));
}

#[test]
fn slirp_works_for_an_ordinary_user() {
    in_test_host("slirp_works_for_an_ordinary_user", Role::User, || helper_story(Method::Slirp4netns));
}

#[test]
fn pasta_leads_out_by_ipv6() {
    in_test_host("pasta_leads_out_by_ipv6", Role::Root, || {
        let inside = TestBox::new();
        let attachment = attach(Method::Pasta, Target { agent_pid: inside.pid(), helper_cgroup: None, reserved: &[] });
        assert!(inside.connects(Internet::ADDRESS6, Internet::PORT));
        network::detach(&attachment).unwrap();
    });
}

#[test]
fn a_failing_helper_tells_why_and_leaves_nothing() {
    in_test_host("a_failing_helper_tells_why_and_leaves_nothing", Role::Root, || {
        let inside = TestBox::new();
        // The name of the box's interface is taken, so the helper must fail.
        inside.run(&["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other"]);
        let mut attachment = network::intent(Method::Slirp4netns, &"test".parse().unwrap());
        let target = Target { agent_pid: inside.pid(), helper_cgroup: None, reserved: &[] };
        let error = network::attach(&mut attachment, &target).unwrap_err().to_string();
        assert!(error.contains("slirp4netns ended at once") && error.contains("TUNSETIFF"), "{error}");
        assert_eq!(attachment.helper, None);
    });
}

#[test]
fn the_hosts_own_namespace_is_refused() {
    for method in [Method::Pasta, Method::Slirp4netns, Method::Veth] {
        let mut attachment = network::intent(method, &"test".parse().unwrap());
        let target = Target { agent_pid: std::process::id(), helper_cgroup: None, reserved: &[] };
        let error = network::attach(&mut attachment, &target).unwrap_err().to_string();
        assert!(error.contains("shares our user namespace"), "{error}");
    }
}

#[test]
fn a_veth_leads_out_and_nowhere_else() {
    in_test_host("a_veth_leads_out_and_nowhere_else", Role::Root, || {
        test_host::set_forwarding("1");
        let (inside, peer) = (TestBox::new(), TestBox::new());
        let services = HostServices::listen();
        let before = (interfaces(), tables());

        let first = veth(&inside);
        let second = veth(&peer);
        assert_ne!(first.subnet, second.subnet);
        assert_reaches_internet(&inside, Method::Veth);
        assert_host_is_out_of_reach(&inside, &services);
        // The host's rules hold by themselves.
        inside.run(&["nft", "delete", "table", "inet", "strongbox"]);
        assert_host_is_out_of_reach(&inside, &services);
        for gateway in [inside.gateway(), peer.gateway()] {
            assert!(test_host::host_connects(&gateway.to_string(), services.everywhere_port()), "control");
            assert!(!inside.connects(&gateway.to_string(), services.everywhere_port()), "the host's address {gateway}");
        }
        let _listener = peer.listen(7070);
        let peer_address = test_host::next(peer.gateway()).to_string();
        assert!(peer.connects(&peer_address, 7070), "control");
        assert!(!inside.connects(&peer_address, 7070), "another box");

        network::detach(&first).unwrap();
        assert!(!inside.connects(Internet::ADDRESS, Internet::PORT), "its veth pair is switched off");
        network::put_away().unwrap();
        assert!(tables().contains("strongbox"), "the other box still needs the rules");
        assert!(peer.connects(Internet::ADDRESS, Internet::PORT));
        network::detach(&Attachment { index: first.index, ..second.clone() }).unwrap();
        assert!(peer.connects(Internet::ADDRESS, Internet::PORT), "a veth pair is known by its number");
        network::detach(&second).unwrap();
        assert!(tables().contains("strongbox"), "the next box will need the rules");
        network::put_away().unwrap();
        assert_eq!((interfaces(), tables()), before);
        network::detach(&second).unwrap();
    });
}

#[test]
fn a_veth_goes_with_its_box() {
    in_test_host("a_veth_goes_with_its_box", Role::Root, || {
        test_host::set_forwarding("1");
        let before = (interfaces(), tables());
        for _ in 0..3 {
            let inside = TestBox::new();
            let attachment = veth(&inside);
            assert!(inside.connects(Internet::ADDRESS, Internet::PORT));
            drop(inside);
            network::detach(&attachment).unwrap();
        }
        network::put_away().unwrap();
        assert_eq!((interfaces(), tables()), before);
    });
}

#[test]
fn a_box_has_not_all_connections_of_the_machine() {
    in_test_host("a_box_has_not_all_connections_of_the_machine", Role::Root, || {
        test_host::set_forwarding("1");
        let (greedy, other) = (TestBox::new(), TestBox::new());
        let first = veth(&greedy);
        let second = veth(&other);
        assert_eq!(greedy.datagrams_answered(Internet::ADDRESS, 53, 2100), 2048);
        assert!(!greedy.connects(Internet::ADDRESS, Internet::PORT), "it has what it can have");
        assert!(other.connects(Internet::ADDRESS, Internet::PORT), "another box has its own");
        network::detach(&first).unwrap();
        network::detach(&second).unwrap();
    });
}

#[test]
fn a_veth_is_chosen_where_packets_get_through() {
    in_test_host("a_veth_is_chosen_where_packets_get_through", Role::Root, || {
        test_host::set_forwarding("1");
        let before = (interfaces(), tables());
        assert_eq!(network::choose(None).unwrap(), Method::Veth);
        network::put_away().unwrap();
        assert_eq!((interfaces(), tables()), before, "nothing of the trial is left");
    });
}

#[test]
fn no_veth_is_chosen_where_a_filter_stops_packets() {
    in_test_host("no_veth_is_chosen_where_a_filter_stops_packets", Role::Root, || {
        test_host::set_forwarding("1");
        test_host::run(&["nft", "add table ip filter"]);
        test_host::run(&[
            "nft",
            "add chain ip filter FORWARD { type filter hook forward priority filter; policy drop; }",
        ]);
        let before = (interfaces(), tables());
        assert_eq!(network::choose(None).unwrap(), Method::Pasta);
        let error = network::choose(Some(Method::Veth)).unwrap_err();
        assert!(matches!(&error, Error::MissingFacility { reason, .. } if reason.contains("packet filter")), "{error}");
        assert_eq!((interfaces(), tables()), before);
    });
}

#[test]
fn a_taken_name_is_passed_over() {
    in_test_host("a_taken_name_is_passed_over", Role::Root, || {
        test_host::set_forwarding("1");
        let inside = TestBox::new();
        let mut attachment = network::intent(Method::Veth, &"test".parse().unwrap());
        let planned = attachment.clone();
        let taken = planned.interface.clone().unwrap();
        test_host::run(&["ip", "link", "add", &taken, "type", "veth", "peer", "name", "other"]);
        assert_ne!(network::intent(Method::Veth, &"test".parse().unwrap()), planned, "a free name is planned");
        network::attach(&mut attachment, &Target { agent_pid: inside.pid(), helper_cgroup: None, reserved: &[] })
            .unwrap();
        assert_ne!(attachment, planned);
        assert!(inside.connects(Internet::ADDRESS, Internet::PORT));
        network::detach(&attachment).unwrap();
        assert!(interfaces().contains(&taken), "the stranger's interface is untouched");
    });
}

#[test]
fn a_veth_is_not_available_without_forwarding() {
    in_test_host("a_veth_is_not_available_without_forwarding", Role::Root, || {
        test_host::set_forwarding("0");
        let error = network::choose(Some(Method::Veth)).unwrap_err();
        assert!(
            matches!(&error, Error::MissingFacility { fix, .. } if fix.contains("sysctl -w net.ipv4.ip_forward=1"))
        );
        assert_eq!(network::choose(None).unwrap(), Method::Pasta);
        test_host::run(&["ip", "route", "delete", "default"]);
        test_host::run(&["ip", "-6", "route", "delete", "default"]);
        assert_eq!(network::choose(None).unwrap(), Method::Slirp4netns, "pasta needs a route of the host to copy");
    });
}

#[test]
fn a_resolver_on_loopback_is_asked_through_slirp() {
    in_test_host("a_resolver_on_loopback_is_asked_through_slirp", Role::Root, || {
        std::fs::write("/etc/resolv.conf", "nameserver 127.0.0.53\n").unwrap();
        let error = network::choose(Some(Method::Pasta)).unwrap_err();
        assert!(matches!(&error, Error::MissingFacility { fix, .. } if fix.contains("apt-get install slirp4netns")));
        assert_eq!(network::choose(None).unwrap(), Method::Slirp4netns);
        let _stub = test_host::echo_datagrams("127.0.0.53");
        let inside = TestBox::new();
        let attachment =
            attach(Method::Slirp4netns, Target { agent_pid: inside.pid(), helper_cgroup: None, reserved: &[] });
        assert_reaches_internet(&inside, Method::Slirp4netns);
        network::detach(&attachment).unwrap();
    });
}
