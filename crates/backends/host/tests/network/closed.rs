//! What boxes with a network do not reach, whatever becomes of the host meanwhile: its addresses, ports that it passes on,
//! and reserved networks.

use std::net::TcpListener;

use crate::test_host::{self, Internet, Neighbor, Role, TestBox, in_test_host, wait_for};
use box_host::network::{self, Attachment, Method, Subnet, Target};
use box_host::process::Process;

const HELPERS: [Method; 2] = [Method::Pasta, Method::Slirp4netns];
const METHODS: [Method; 3] = [Method::Veth, Method::Pasta, Method::Slirp4netns];

fn attach(method: Method, inside: &TestBox) -> Attachment {
    attach_with(method, inside, &[])
}

fn attach_with(method: Method, inside: &TestBox, reserved: &[Subnet]) -> Attachment {
    if method == Method::Veth {
        test_host::set_forwarding("1");
    }
    assert_eq!(network::choose(Some(method)).unwrap(), method);
    let mut attachment = network::intent(method, &"test".parse().unwrap());
    network::attach(&mut attachment, &Target { agent_pid: inside.pid(), helper_cgroup: None, reserved }).unwrap();
    assert!(inside.connects(Internet::ADDRESS, Internet::PORT), "control: a way out by {method}");
    attachment
}

/// A listener on all addresses of the host.
fn host_service() -> (TcpListener, u16) {
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn ports_that_the_host_passes_on_are_closed() {
    in_test_host("closed::ports_that_the_host_passes_on_are_closed", Role::Root, || {
        let (_container, _private) = (Neighbor::new("docker9", "192.0.2"), Neighbor::new("docker8", "172.30.9"));
        let stranger = Neighbor::new("plain9", "192.0.3");
        let inside = TestBox::new();
        let attachment = attach(Method::Veth, &inside);
        // The host's rules hold by themselves.
        inside.run(&["nft", "delete", "table", "inet", "strongbox"]);
        test_host::run(&[
            "nft",
            "add table ip nat; add chain ip nat pre { type nat hook prerouting priority dstnat; }",
        ]);
        // One address is the host's, as for a port that an engine publishes. The other one only leads through the host.
        for (address, container) in [(Internet::HOST_ADDRESS, "192.0.2.2"), ("198.51.100.99", "172.30.9.2")] {
            let rule = format!("add rule ip nat pre ip daddr {address} tcp dport 9090 dnat to {container}:8080");
            test_host::run(&["nft", &rule]);
            assert!(stranger.connects(address, 9090), "control: {address}");
            assert!(!inside.connects(address, 9090), "{address}");
        }
        network::detach(&attachment).unwrap();
    });
}

#[test]
fn removed_rules_come_back_by_themselves() {
    in_test_host("closed::removed_rules_come_back_by_themselves", Role::Root, || {
        let inside = TestBox::new();
        let attachment = attach(Method::Veth, &inside);
        for undo in ["flush ruleset", "flush chain inet strongbox input", "delete table inet strongbox"] {
            let rules = test_host::table();
            test_host::run(&["nft", undo]);
            wait_for(&format!("rules after {undo}"), || test_host::table() == rules);
            wait_for("the way out", || inside.connects(Internet::ADDRESS, Internet::PORT));
        }
        network::detach(&attachment).unwrap();
        network::put_away().unwrap();
        assert!(!test_host::tables().contains("strongbox"), "rules that no box needs stay away");
    });
}

#[test]
fn boxes_are_cut_off_until_removed_rules_are_back() {
    in_test_host("closed::boxes_are_cut_off_until_removed_rules_are_back", Role::Root, || {
        let inside = TestBox::new();
        let attachment = attach(Method::Veth, &inside);
        let (interface, rules) = (attachment.interface.clone().unwrap(), test_host::table());
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("nft");
        std::fs::copy("/usr/sbin/nft", &copy).unwrap();
        // Rules cannot be written without a working nft.
        test_host::run(&["mount", "--bind", "/bin/false", "/usr/sbin/nft"]);
        test_host::run(&[copy.to_str().unwrap(), "flush", "ruleset"]);
        wait_for("the cut", || !test_host::is_up(&interface));
        assert!(!inside.connects(Internet::ADDRESS, Internet::PORT));
        test_host::run(&["umount", "/usr/sbin/nft"]);
        wait_for("the way out", || inside.connects(Internet::ADDRESS, Internet::PORT));
        assert_eq!(test_host::table(), rules);
        network::detach(&attachment).unwrap();
    });
}

#[test]
fn reserved_networks_are_closed() {
    in_test_host("closed::reserved_networks_are_closed", Role::Root, || {
        let (_private, _shared) = (Neighbor::new("lan9", "192.168.77"), Neighbor::new("cgn9", "100.64.9"));
        for method in METHODS {
            let inside = TestBox::new();
            let attachment = attach(method, &inside);
            for address in ["192.168.77.2", "100.64.9.2"] {
                assert!(test_host::host_connects(address, Internet::PORT), "control");
                assert!(!inside.connects(address, Internet::PORT), "{address} by {method}");
                assert!(!inside.connects_by_interface(address, Internet::PORT), "{address} by {method}");
            }
            network::detach(&attachment).unwrap();
        }
    });
}

#[test]
fn a_resolver_in_a_reserved_network_is_asked_for_names_only() {
    in_test_host("closed::a_resolver_in_a_reserved_network_is_asked_for_names_only", Role::Root, || {
        let _resolver = Neighbor::new("lan9", "192.168.77");
        std::fs::write("/etc/resolv.conf", "nameserver 192.168.77.2\n").unwrap();
        for method in [Method::Veth, Method::Pasta] {
            let inside = TestBox::new();
            let attachment = attach(method, &inside);
            assert!(inside.datagram_answered("192.168.77.2", 53), "{method}");
            assert!(!inside.connects("192.168.77.2", Internet::PORT), "{method}");
            network::detach(&attachment).unwrap();
        }
    });
}

#[test]
fn a_reserved_network_can_be_opened() {
    in_test_host("closed::a_reserved_network_can_be_opened", Role::Root, || {
        let (_open, _closed) = (Neighbor::new("lan9", "192.168.77"), Neighbor::new("lan8", "192.168.78"));
        let (_listener, port) = host_service();
        let reserved: [Subnet; 2] = ["192.168.76.0/23", "10.0.0.0/8"].map(|text| text.parse().unwrap());
        for method in METHODS {
            let (inside, other) = (TestBox::new(), TestBox::new());
            let attachment = attach_with(method, &inside, &reserved);
            assert!(inside.connects("192.168.77.2", Internet::PORT), "{method}");
            assert!(!inside.connects("192.168.78.2", Internet::PORT), "{method}");
            assert!(!inside.connects("192.168.77.1", port), "the host's address in it, by {method}");
            let neighbor = attach(Method::Veth, &other);
            let _other_listener = other.listen(7070);
            let address = test_host::next(other.gateway()).to_string();
            assert!(other.connects(&address, 7070), "control");
            assert!(!inside.connects(&address, 7070), "another box, by {method}");
            network::detach(&neighbor).unwrap();
            network::detach(&attachment).unwrap();
        }
    });
}

#[test]
fn a_box_of_an_earlier_process_is_kept_closed() {
    in_test_host("closed::a_box_of_an_earlier_process_is_kept_closed", Role::Root, || {
        let (_listener, port) = host_service();
        for method in METHODS {
            let inside = TestBox::new();
            let attachment = attach(method, &inside);
            // As an earlier version left it, on a host that has changed since.
            inside.run(&["nft", "delete", "table", "inet", "strongbox"]);
            test_host::run(&["nft", "flush", "ruleset"]);
            network::adopt(&attachment, Process::of(inside.pid()).unwrap(), &[]).unwrap();
            for address in [Internet::HOST_ADDRESS, Internet::SECOND_HOST_ADDRESS] {
                assert!(!inside.connects_by_interface(address, port), "{address} by {method}");
            }
            assert!(inside.datagram_answered(&resolver(method), 53), "names by {method}");
            assert!(inside.connects(Internet::ADDRESS, Internet::PORT), "{method}");
            network::detach(&attachment).unwrap();
        }
    });
}

fn resolver(method: Method) -> String {
    network::resolv_conf(method).unwrap().trim().strip_prefix("nameserver ").unwrap().to_owned()
}

/// The host by its address on the link, and all machines on a link by multicast.
fn link_local_story(methods: &[Method]) {
    let (_listener, port) = host_service();
    let host = |interface: &str| format!("{}%{interface}", Internet::HOST_LINK_LOCAL);
    assert!(test_host::host_connects(&host("up0"), port), "control");
    for method in methods {
        let inside = TestBox::new();
        let attachment = attach(*method, &inside);
        assert!(!inside.connects(&host("eth0"), port), "{method}");
        assert!(!inside.connects_by_interface(&host("eth0"), port), "{method}");
        assert!(inside.sends(Internet::ADDRESS, 9), "control");
        for group in ["ff02::1%eth0", "ff05::1", "224.0.0.1", "239.1.2.3"] {
            assert!(!inside.sends(group, 9), "{group} by {method}");
        }
        network::detach(&attachment).unwrap();
    }
}

#[test]
fn link_local_and_multicast_addresses_lead_nowhere() {
    in_test_host("closed::link_local_and_multicast_addresses_lead_nowhere", Role::Root, || link_local_story(&METHODS));
}

#[test]
fn link_local_addresses_lead_nowhere_for_an_ordinary_user() {
    in_test_host("closed::link_local_addresses_lead_nowhere_for_an_ordinary_user", Role::User, || {
        link_local_story(&HELPERS);
    });
}

#[test]
fn the_host_is_closed_to_sockets_that_are_bound_to_the_interface() {
    in_test_host("closed::the_host_is_closed_to_sockets_that_are_bound_to_the_interface", Role::Root, || {
        let (_listener, port) = host_service();
        for method in METHODS {
            let inside = TestBox::new();
            let attachment = attach(method, &inside);
            for address in [Internet::HOST_ADDRESS, Internet::HOST_ADDRESS6, Internet::SECOND_HOST_ADDRESS] {
                assert!(!inside.connects_by_interface(address, port), "{address} by {method}");
            }
            network::detach(&attachment).unwrap();
        }
    });
}

#[test]
fn addresses_that_the_host_gets_later_are_closed() {
    in_test_host("closed::addresses_that_the_host_gets_later_are_closed", Role::Root, || {
        let (_listener, port) = host_service();
        for method in METHODS {
            let inside = TestBox::new();
            let attachment = attach(method, &inside);
            for (address, bits) in [("203.0.113.77", 32), ("2001:db8:77::1", 128)] {
                let with_bits = format!("{address}/{bits}");
                test_host::run(&["ip", "address", "add", &with_bits, "dev", "lo"]);
                wait_for("control", || test_host::host_connects(address, port));
                wait_for(&format!("{address} to be closed for {method}"), || !inside.connects(address, port));
                test_host::run(&["ip", "address", "delete", &with_bits, "dev", "lo"]);
            }
            network::detach(&attachment).unwrap();
        }
    });
}
