//! What is measured, group by group.

mod burst;
pub(crate) mod deadline;
pub(crate) mod e2b;
pub(crate) mod engines;
pub(crate) mod fork;
pub(crate) mod http;
pub(crate) mod idle;
pub(crate) mod langbot;
pub(crate) mod launch;
pub(crate) mod mcp;
pub(crate) mod output;
pub(crate) mod search;
pub(crate) mod strangers;

use std::path::Path;

use anyhow::Result;

use crate::boxes::Boxes;
use crate::options::Options;
use crate::report::Report;

/// Things that are measured together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) measure: fn(&Boxes, &Options, &Path, &mut Report) -> Result<()>,
}

/// All groups, in the order of a run. The comparison with peers is first, while this process is still small: the cost of
/// a plain fork grows with the memory of its caller. Idle memory is next, before bursts have left free memory in the
/// heap that would hide growth.
pub(crate) const ALL: &[Group] = &[
    Group {
        name: "launch",
        about: "`true` in fresh and in live boxes, next to the floor and the field",
        measure: launch::measure,
    },
    Group { name: "idle", about: "memory of a few idle boxes", measure: idle::measure_few },
    Group { name: "crowd", about: "many idle boxes at once", measure: idle::measure_crowd },
    Group { name: "burst", about: "many creates at the same time", measure: burst::measure },
    Group { name: "deadline", about: "from the deadline to the death of a stubborn tree", measure: deadline::measure },
    Group { name: "flood", about: "our memory while a box never stops talking", measure: output::measure_flood },
    Group { name: "http", about: "the server over loopback", measure: http::measure },
    Group {
        name: "strangers",
        about: "a caller with a token among 5,000 connections without one",
        measure: strangers::measure,
    },
    Group { name: "langbot", about: "LangBot's RPC, next to the original server", measure: langbot::measure },
    Group {
        name: "mcp",
        about: "a tool call through the gateway, next to one to the process itself",
        measure: mcp::measure,
    },
    Group { name: "e2b", about: "sandboxes of E2B's clients, next to a copy through a socket", measure: e2b::measure },
    Group { name: "fork", about: "copies of running sessions, small and large", measure: fork::measure },
    Group {
        name: "engines",
        about: "`true` in containers of Docker and Podman, by us, by their programs and by their API",
        measure: engines::measure,
    },
    Group { name: "search", about: "grep over many files in a box, next to rg on the host", measure: search::measure },
    Group { name: "throughput", about: "standard output next to a plain pipe", measure: output::measure_throughput },
];
