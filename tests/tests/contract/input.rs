//! Every field is checked at the edge, by name, and nothing is half-made.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use box_core::{BoxSpec, MountMode, Profile, limits};
use box_tests::Ground;
use box_tests::ground::{mount, shell};
use box_wire::{BoxId, ExecRequest, GuestPath, Program, User, WindowSize};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        bad_boxes_are_refused_by_field,
        bad_mount_targets_are_refused,
        bad_execs_are_refused_by_field,
        bad_names_and_paths_do_not_exist,
    ]
}

fn bad_specs() -> Vec<(&'static str, BoxSpec)> {
    let spec = || Profile::default().spec();
    let mut table = Vec::new();
    for cpus in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, 0.009] {
        table.push(("cpus", BoxSpec { cpus, ..spec() }));
    }
    for memory_mb in [0, 31, limits::MEMORY_MB_MAX + 1, u64::MAX] {
        table.push(("memory_mb", BoxSpec { memory_mb, ..spec() }));
    }
    for pids_limit in [0, limits::PIDS_MAX + 1, u64::MAX] {
        table.push(("pids_limit", BoxSpec { pids_limit, ..spec() }));
    }
    for disk_mb in [limits::DISK_MB_MAX + 1, u64::MAX] {
        table.push(("disk_mb", BoxSpec { disk_mb, ..spec() }));
    }
    table.push(("user", BoxSpec { user: User { uid: 65535, gid: 0 }, ..spec() }));
    table.push(("user", BoxSpec { user: User { uid: u32::MAX, gid: 0 }, ..spec() }));
    table.push(("group", BoxSpec { user: User { uid: 0, gid: u32::MAX }, ..spec() }));
    table
}

async fn bad_boxes_are_refused_by_field(ground: Arc<Ground>) -> Result<()> {
    let before = ground.leaks();
    for (field, spec) in bad_specs() {
        invalid(field, &ground.try_make(&spec).await)?;
    }
    let left = ground.leaks().since(&before);
    ensure!(left.is_empty(), "half-made: {left:?}");
    Ok(())
}

async fn bad_mount_targets_are_refused(ground: Arc<Ground>) -> Result<()> {
    let source = ground.mount_source()?;
    let before = ground.leaks();
    let with = |targets: &[&str]| -> Result<BoxSpec> {
        let mounts = targets.iter().map(|target| mount(&source, target, MountMode::Rw)).collect::<Result<_>>()?;
        Ok(BoxSpec { mounts, ..Profile::default().spec() })
    };
    let reserved =
        ["/", "/proc", "/proc/self", "/sys", "/dev", "/dev/null", "/usr", "/usr/bin", "/bin/sh", "/etc/ld.so.preload"];
    for target in reserved.into_iter().chain(["/a:b", "/a,b", "/a b"]) {
        invalid("mount_path", &ground.try_make(&with(&[target])?).await)?;
    }
    invalid("mount_path", &ground.try_make(&with(&["/workspace", "/workspace"])?).await)?;
    let many: Vec<String> = (0..1000).map(|number| format!("/mnt/{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    invalid("mounts", &ground.try_make(&with(&many)?).await)?;
    let left = ground.leaks().since(&before);
    ensure!(left.is_empty(), "half-made: {left:?}");
    Ok(())
}

fn bad_execs() -> Vec<(&'static str, ExecRequest)> {
    let plain = || shell("true");
    let argv = |argv: Vec<String>| ExecRequest { program: Program::Argv(argv), ..plain() };
    let env = |name: &str, value: String| ExecRequest { env: vec![(name.to_owned(), value)], ..plain() };
    let mut table = vec![
        ("command", argv(vec![])),
        ("command", argv(vec![String::new()])),
        ("command", shell("a\0b")),
        ("command", argv(vec!["true".to_owned(), "a\0b".to_owned()])),
        ("command", shell(&"a".repeat(131_073))),
        ("command", argv(vec!["true".to_owned(); 200_000])),
        ("command", argv(vec!["x".repeat(100_000); 20])),
        ("env", ExecRequest { env: (0..100_000).map(|n| (format!("V{n}"), String::new())).collect(), ..plain() }),
        ("env", env("A", "v".repeat(4 << 20))),
        ("env", env("A", "a\0b".to_owned())),
    ];
    table.extend(["", "A=B", "1A", "A B", "Ä", "A\n"].map(|name| ("env", env(name, "x".to_owned()))));
    table.extend([0, u64::MAX].map(|ms| ("timeout", ExecRequest { timeout_ms: Some(ms), ..plain() })));
    for (rows, columns) in [(0, 80), (24, 0), (u16::MAX, 80)] {
        table.push(("terminal", ExecRequest { terminal: Some(WindowSize { rows, columns }), ..plain() }));
    }
    table
}

async fn bad_execs_are_refused_by_field(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    for (field, request) in bad_execs() {
        invalid(field, &one.run(&request).await)?;
    }
    ensure!(one.check("echo usable").await? == "usable");
    Ok(())
}

async fn bad_names_and_paths_do_not_exist(_: Arc<Ground>) -> Result<()> {
    for name in ["", "-a", "A", "a_b", "a/b", "..", "a\n", "a\0", &"x".repeat(64)] {
        ensure!(name.parse::<BoxId>().is_err(), "{name:?} is taken as a name");
    }
    for path in ["", "relative", "/a/../b", "/..", "/a\0b", "/a\nb", "//", &"/x".repeat(3000)] {
        ensure!(path.parse::<GuestPath>().is_err(), "{path:?} is taken as a path");
    }
    Ok(())
}

fn invalid<T: std::fmt::Debug>(field: &str, result: &box_core::Result<T>) -> Result<()> {
    match result {
        Err(box_core::Error::Invalid(invalid)) if invalid.field == field => {
            ensure!(!invalid.allowed.is_empty() && !invalid.value.is_empty(), "{invalid:?}");
            Ok(())
        }
        other => bail!("expected a refusal that names {field}, got {other:?}"),
    }
}
