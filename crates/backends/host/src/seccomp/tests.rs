use super::interpreter::{Call, I386, Outcome, X86_64, run};
use super::*;
use box_core::{MountMode, MountSpec, Origin, Profile};

const ALLOW: u32 = 0x7FFF_0000;
const EPERM: u32 = 0x0005_0001;
const ENOSYS: u32 = 0x0005_0026;
const EINVAL: u32 = 0x0005_0016;
const EPROTONOSUPPORT: u32 = 0x0005_005D;
const KILL_PROCESS: u32 = 0x8000_0000;

/// Rubbish for the upper half of an argument, which the kernel ignores where it takes an `int`.
const RUBBISH: u64 = 0xDEAD_BEEF_0000_0000;

fn outcome(set: SyscallSet, architecture: u32, number: u32, arguments: &[u64]) -> Outcome {
    outcome_of(&programs(set).unwrap(), architecture, number, arguments)
}

fn outcome_of(programs: &[Vec<u8>], architecture: u32, number: u32, arguments: &[u64]) -> Outcome {
    assert_eq!(programs.len(), 1);
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    run(&programs[0], Call { architecture, number, arguments: all })
}

fn action(number: i64, arguments: &[u64]) -> u32 {
    outcome(SyscallSet::Default, X86_64, u32::try_from(number).unwrap(), arguments).action
}

/// Asks twice: with clean arguments and with rubbish in every upper half.
fn expect(number: i64, arguments: &[u64], expected: u32) {
    let dirty: Vec<u64> = arguments.iter().map(|argument| argument | RUBBISH).collect();
    for arguments in [arguments, &dirty] {
        let found = action(number, arguments);
        assert_eq!(found, expected, "call {number} with {arguments:x?} answered {found:#x}, not {expected:#x}");
    }
}

fn verdicts(set: SyscallSet) -> Vec<String> {
    let line = |number: i64| {
        let outcome = outcome(set, X86_64, u32::try_from(number).unwrap(), &[]);
        let verdict = match outcome {
            Outcome { looked_at_arguments: true, .. } => "depends".to_owned(),
            Outcome { action: ALLOW, .. } => "allow".to_owned(),
            Outcome { action: EPERM, .. } => "errno EPERM".to_owned(),
            Outcome { action: ENOSYS, .. } => "errno ENOSYS".to_owned(),
            Outcome { action, .. } => format!("{action:#x}"),
        };
        let name = names::name(number).map_or_else(|| format!("number {number}"), str::to_owned);
        format!("{name}: {verdict}")
    };
    (0..=470).map(line).collect()
}

#[test]
fn every_verdict_is_as_it_was() {
    insta::assert_snapshot!("default", verdicts(SyscallSet::Default).join("\n"));
}

#[test]
fn debug_adds_tracing_and_nothing_else() {
    let default = verdicts(SyscallSet::Default);
    let added: Vec<_> = verdicts(SyscallSet::Debug).into_iter().filter(|line| !default.contains(line)).collect();
    assert_eq!(added, ["ptrace: allow", "process_vm_readv: allow", "process_vm_writev: allow"]);
}

#[test]
fn programs_are_small() {
    for set in [SyscallSet::Default, SyscallSet::Debug] {
        for program in programs(set).unwrap() {
            assert_eq!(program.len() % compile::INSTRUCTION_BYTES, 0);
            let count = program.len() / compile::INSTRUCTION_BYTES;
            assert!(count < 800, "{count} instructions: installing it slows every command down");
        }
    }
}

#[test]
fn foreign_tables_are_shut() {
    let getpid_of_i386 = outcome(SyscallSet::Default, I386, 20, &[]);
    assert_eq!(getpid_of_i386.action, KILL_PROCESS);
    for number in [0, 39, 435, 512, 547] {
        let x32 = outcome(SyscallSet::Default, X86_64, 0x4000_0000 | number, &[]);
        assert_eq!(x32.action, ENOSYS, "x32 call {number}");
    }
    for number in [471, 1000, u32::MAX] {
        assert_eq!(outcome(SyscallSet::Default, X86_64, number, &[]).action, ENOSYS, "call {number}");
    }
}

#[test]
fn clone_makes_processes_and_threads_but_no_namespaces() {
    let fork = 0x0120_0011;
    let thread = 0x003D_0F00;
    expect(libc::SYS_clone, &[fork], ALLOW);
    expect(libc::SYS_clone, &[thread], ALLOW);
    for flag in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ] {
        let flag = u64::from(flag.cast_unsigned());
        expect(libc::SYS_clone, &[flag], EPERM);
        expect(libc::SYS_clone, &[flag | fork], EPERM);
    }
    expect(libc::SYS_clone3, &[0], ENOSYS);
}

#[test]
fn sockets_are_chosen_by_family_type_and_protocol() {
    const CLOEXEC_NONBLOCK: u64 = 0o2_004_000;
    let good = [
        (1, 1, 0),
        (1, 2, 0),
        (1, 5, 0),
        (16, 3, 0),
        (16, 2, 0),
        (2, 1, 0),
        (2, 1, 6),
        (2, 2, 0),
        (2, 2, 17),
        (2, 2, 1),
        (10, 1, 0),
        (10, 1, 6),
        (10, 2, 0),
        (10, 2, 17),
        (10, 2, 58),
    ];
    let bad = [
        // Raw and packet sockets, and protocols that are not for boxes: raw, SCTP, UDP-Lite, DCCP, L2TP.
        (2, 3, 1),
        (2, 3, 255),
        (10, 3, 58),
        (2, 10, 768),
        (2, 1, 132),
        (2, 5, 132),
        (10, 1, 132),
        (2, 2, 136),
        (2, 6, 33),
        (2, 2, 115),
        (2, 2, 58),
        (10, 2, 1),
        // Netlink beyond routes: netfilter, xfrm, crypto, audit, generic, kobject events.
        (16, 3, 12),
        (16, 3, 6),
        (16, 3, 21),
        (16, 3, 9),
        (16, 3, 16),
        (16, 2, 15),
        // Other families: alg, vsock, packet, xdp, key, tipc, bluetooth, can, rds, nfc, kcm, qrtr, smc, rxrpc, pppox, none.
        (38, 5, 0),
        (40, 1, 0),
        (17, 3, 0),
        (44, 3, 0),
        (15, 3, 2),
        (30, 5, 0),
        (31, 3, 0),
        (29, 3, 1),
        (21, 5, 0),
        (39, 5, 0),
        (41, 5, 0),
        (42, 2, 0),
        (43, 1, 0),
        (33, 2, 2),
        (24, 1, 0),
        (0, 1, 0),
    ];
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        for (family, kind, protocol) in good {
            expect(call, &[family, kind, protocol], ALLOW);
            expect(call, &[family, kind | CLOEXEC_NONBLOCK, protocol], ALLOW);
        }
        for (family, kind, protocol) in bad {
            expect(call, &[family, kind, protocol], EPERM);
            expect(call, &[family, kind | CLOEXEC_NONBLOCK, protocol], EPERM);
        }
        expect(call, &[2, 1, 262], EPROTONOSUPPORT);
    }
}

#[test]
fn terminals_cannot_be_typed_into() {
    const TIOCSTI: u64 = 0x5412;
    const TIOCSETD: u64 = 0x5423;
    const TIOCLINUX: u64 = 0x541C;
    for request in [TIOCSTI, TIOCLINUX, TIOCSETD] {
        expect(libc::SYS_ioctl, &[0, request], EPERM);
    }
    for request in [libc::TCGETS, libc::TIOCGWINSZ, libc::TIOCSCTTY, libc::FIONREAD] {
        expect(libc::SYS_ioctl, &[0, request], ALLOW);
    }
}

#[test]
fn no_lease_and_nothing_that_nobody_counts_can_be_taken() {
    const F_SETLEASE: u64 = 1024;
    const F_GETLEASE: u64 = 1025;
    const F_NOTIFY: u64 = 1026;
    for command in [F_SETLEASE, F_NOTIFY] {
        expect(libc::SYS_fcntl, &[0, command], EPERM);
    }
    for command in [libc::F_OFD_SETLK, libc::F_OFD_SETLKW] {
        expect(libc::SYS_fcntl, &[0, u64::from(command.cast_unsigned())], EINVAL);
    }
    for command in [libc::F_DUPFD, libc::F_SETFL, libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_GETLK] {
        expect(libc::SYS_fcntl, &[0, u64::from(command.cast_unsigned())], ALLOW);
    }
    expect(libc::SYS_fcntl, &[0, F_GETLEASE], ALLOW);
}

#[test]
fn personality_keeps_randomisation() {
    for value in [0, 0x8, 0x20000, 0x20008, 0xFFFF_FFFF] {
        expect(libc::SYS_personality, &[value], ALLOW);
    }
    for value in [0x40000, 0x0040_0000, 0x0010_0000, 0x40008, 1] {
        expect(libc::SYS_personality, &[value], EPERM);
    }
}

#[test]
fn nobody_becomes_the_agent() {
    let (agent, user, same) = (65535, 1000, u64::from(u32::MAX));
    for call in [libc::SYS_setuid, libc::SYS_setfsuid] {
        expect(call, &[agent], EPERM);
        expect(call, &[user], ALLOW);
        // Registers that the call does not read do not matter.
        expect(call, &[user, agent, agent], ALLOW);
    }
    for (call, count) in [(libc::SYS_setreuid, 2), (libc::SYS_setresuid, 3)] {
        expect(call, &vec![user; count], ALLOW);
        for position in 0..count {
            let mut ids = vec![same; count];
            ids[position] = agent;
            expect(call, &ids, EPERM);
        }
    }
}

#[test]
fn no_devices_are_made() {
    for (call, before_mode) in [(libc::SYS_mknod, 1), (libc::SYS_mknodat, 2)] {
        let arguments = |kind: u32| [vec![0; before_mode], vec![u64::from(kind | 0o644)]].concat();
        for kind in [0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK] {
            expect(call, &arguments(kind), ALLOW);
        }
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            expect(call, &arguments(kind), EPERM);
        }
    }
}

#[test]
fn files_of_the_host_get_no_set_id_bits() {
    const CREATE: u64 = 0o100;
    const UNNAMED: u64 = 0o20_200_000;
    let mount = MountSpec {
        source: "/srv/data".into(),
        target: "/workspace".parse().unwrap(),
        mode: MountMode::Rw,
        origin: Origin::Operator,
    };
    let spec = |mounts: Vec<MountSpec>| BoxSpec { mounts, ..Profile::default().spec() };
    assert_eq!(mode_guard(&spec(vec![])), ModeGuard::default());
    let read_only = MountSpec { mode: MountMode::Ro, ..mount.clone() };
    assert_eq!(mode_guard(&spec(vec![read_only])), ModeGuard::default());
    let guard = mode_guard(&spec(vec![mount]));
    let by = |programs: &[Vec<u8>], number: i64, arguments: &[u64]| {
        outcome_of(programs, X86_64, u32::try_from(number).unwrap(), arguments).action
    };
    let guarded = |number: i64, arguments: &[u64]| {
        let action = by(&guard.commands, number, arguments);
        if number != libc::SYS_openat2 {
            assert_eq!(by(&guard.file_ops, number, arguments), action, "file operations: call {number}");
        }
        action
    };
    let regular = u64::from(libc::S_IFREG);
    for mode in [0o4755, 0o2755, 0o6000, 0o7777, 0o4000 | RUBBISH] {
        let refused: [(i64, &[u64]); 11] = [
            (libc::SYS_chmod, &[0, mode]),
            (libc::SYS_fchmod, &[0, mode]),
            (libc::SYS_fchmodat, &[0, 0, mode]),
            (libc::SYS_fchmodat2, &[0, 0, mode, 0]),
            (libc::SYS_creat, &[0, mode]),
            (libc::SYS_open, &[0, CREATE | 2, mode]),
            (libc::SYS_open, &[0, UNNAMED | 2, mode]),
            (libc::SYS_openat, &[0, 0, CREATE | 1, mode]),
            (libc::SYS_openat, &[0, 0, UNNAMED | RUBBISH, mode]),
            (libc::SYS_mknod, &[0, regular | mode, 0]),
            (libc::SYS_mknodat, &[0, 0, mode, 0]),
        ];
        for (number, arguments) in refused {
            assert_eq!(guarded(number, arguments), EPERM, "call {number} with {arguments:x?}");
            assert_eq!(action(number, arguments), ALLOW, "call {number} with {arguments:x?}");
        }
    }
    for (number, arguments) in [
        (libc::SYS_chmod, &[0, 0o1777][..]),
        (libc::SYS_fchmodat, &[0, 0, 0o755]),
        (libc::SYS_open, &[0, CREATE, 0o666]),
        // Whatever is in the register of an argument that is not used.
        (libc::SYS_open, &[0, 0, 0o6755]),
        (libc::SYS_openat, &[0, 0, 0o200_000, 0o6755]),
        (libc::SYS_mkdir, &[0, 0o2755]),
        (libc::SYS_mknod, &[0, regular | 0o644, 0]),
        (libc::SYS_renameat2, &[0, 0, 0, 0, 1]),
    ] {
        assert_eq!(guarded(number, arguments), ALLOW, "call {number} with {arguments:x?}");
    }
    assert_eq!(guarded(libc::SYS_openat2, &[]), ENOSYS);
    assert_eq!(by(&guard.file_ops, libc::SYS_openat2, &[]), ALLOW);
    for flags in [u64::from(libc::RENAME_WHITEOUT), 5, 4 | RUBBISH] {
        assert_eq!(guarded(libc::SYS_renameat2, &[0, 0, 0, 0, flags]), EPERM, "{flags:x}");
    }
    // The four calls that make subvolumes and snapshots of btrfs, and one that reads their flags.
    for request in [0x5000_9401, 0x5000_940E, 0x5000_9417, 0x5000_9418 | RUBBISH] {
        assert_eq!(guarded(libc::SYS_ioctl, &[0, request]), EPERM, "{request:x}");
        assert_eq!(action(libc::SYS_ioctl, &[0, request]), ALLOW, "{request:x}");
    }
    assert_eq!(guarded(libc::SYS_ioctl, &[0, 0x8008_9419]), ALLOW);
}
