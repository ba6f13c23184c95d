//! Checks what an engine can do for boxes, and the reasons for what it cannot.

use box_core::PullPolicy;
use box_core::backend::{Finding, FindingState};

use crate::backend::Inner;
use crate::config::EngineKind;
use crate::container::Mounts;
use crate::facts::{EngineFacts, Ids, Reach};
use crate::reference;

/// Looks at everything that boxes of an engine depend on, one finding each.
pub(crate) async fn findings(inner: &Inner) -> Vec<Finding> {
    let asked = match inner.client.ping().await {
        Ok(()) => EngineFacts::ask(&inner.client, &inner.settings).await,
        Err(error) => Err(error),
    };
    let facts = match asked {
        Ok(facts) => facts,
        Err(error) => {
            let fix = format!("start it, and see that it listens at {}", inner.client.endpoint());
            return vec![missing("engine", error.to_string(), &fix)];
        }
    };
    let kind = inner.client.kind;
    let mut all = vec![good("engine", format!("{kind} {} at {}", facts.version, inner.client.endpoint()))];
    all.push(image(inner).await);
    all.push(reach(&facts));
    all.push(identity(&facts));
    all.push(limits(&facts));
    all.push(filter(&facts));
    all.push(mounts(inner));
    all.push(runtime(inner, &facts));
    all.push(storage(inner, &facts));
    all.push(network(inner));
    all
}

async fn image(inner: &Inner) -> Finding {
    let name = &inner.settings.image;
    let Ok(reference) = reference::parse(name) else {
        return missing(
            "image",
            format!("{name} is not a valid image reference"),
            "set a default image such as python:3.12-slim",
        );
    };
    match (inner.images().has(&reference).await, inner.settings.pull) {
        (true, _) => good("image", format!("{reference} is there")),
        (false, PullPolicy::Never) => {
            missing("image", format!("{reference} is not there, and nothing may be fetched"), "strongbox image pull")
        }
        (false, _) => weaker("image", format!("{reference} is fetched by the first box"), Some("strongbox image pull")),
    }
}

fn reach(facts: &EngineFacts) -> Finding {
    match facts.reach {
        Reach::Shared => good("reach", "it shares files and kernel with us: agents are dialled by their own sockets"),
        Reach::Remote => weaker(
            "reach",
            "another machine or another kernel: agents are dialled through the engine; no mounts, no journals",
            None,
        ),
    }
}

fn identity(facts: &EngineFacts) -> Finding {
    match facts.ids {
        Ids::Same if rustix::process::geteuid().is_root() => {
            good("identity", "boxes are an id that no account of the host has")
        }
        Ids::Same => weaker("identity", "boxes are the user who runs strongbox", Some("run strongbox as root")),
        Ids::Mapped => weaker("identity", "root of a box is an ordinary user of the host", None),
    }
}

fn limits(facts: &EngineFacts) -> Finding {
    if facts.limits {
        return good("limits", "memory, processors and processes are limited by cgroups");
    }
    weaker(
        "limits",
        "the engine cannot limit memory or processes",
        Some("use cgroup v2 with delegation, or run as root"),
    )
}

fn filter(facts: &EngineFacts) -> Finding {
    if facts.seccomp {
        return good("seccomp", "containers get our filter of system calls, and each command one of its own");
    }
    weaker("seccomp", "the engine takes no filter for containers; each command has one of its own", None)
}

fn mounts(inner: &Inner) -> Finding {
    match inner.mounts {
        Mounts::Attached => good("mounts", "put into containers by descriptor, with owners mapped"),
        Mounts::Bound => weaker("mounts", "mounted by the engine by path, and compared with what was decided on", None),
    }
}

fn runtime(inner: &Inner, facts: &EngineFacts) -> Finding {
    let Some(wanted) = &inner.settings.runtime else {
        return good("runtime", format!("{} (the engine's default)", facts.default_runtime));
    };
    if facts.runtimes.iter().any(|name| name == wanted) {
        return good("runtime", wanted.clone());
    }
    let known = facts.runtimes.join(", ");
    missing("runtime", format!("the engine does not know {wanted}, only {known}"), "set another runtime, or none")
}

fn storage(inner: &Inner, facts: &EngineFacts) -> Finding {
    if inner.tries_storage_quota() {
        return good("storage", facts.storage.clone());
    }
    let detail = format!("{}: what is written to a writable root has no limit", facts.storage);
    weaker("storage", detail, Some("keep read_only_rootfs, or use overlay2 on xfs with pquota"))
}

fn network(inner: &Inner) -> Finding {
    match (inner.client.kind, &inner.settings.network) {
        (_, Some(name)) => good("network", format!("boxes that have one are on {name}")),
        (EngineKind::Docker, None) => good("network", "a bridge of our own that carries nothing between boxes"),
        (EngineKind::Podman, None) => good("network", "a way of its own for each box"),
    }
}

fn good(name: &str, detail: impl Into<String>) -> Finding {
    Finding { name: name.to_owned(), state: FindingState::Good, detail: detail.into(), fix: None }
}

fn weaker(name: &str, detail: impl Into<String>, fix: Option<&str>) -> Finding {
    let fix = fix.map(str::to_owned);
    Finding { name: name.to_owned(), state: FindingState::Weaker, detail: detail.into(), fix }
}

fn missing(name: &str, detail: impl Into<String>, fix: &str) -> Finding {
    let fix = Some(fix.to_owned());
    Finding { name: name.to_owned(), state: FindingState::Missing, detail: detail.into(), fix }
}
