//! What SPECIFICATION.md promises, held against what was measured.

use crate::groups::{deadline, e2b, engines, fork, http, idle, langbot, launch, mcp, output, search, strangers};
use crate::report::{Report, Verdict};
use crate::samples::mib;

/// On which side of its bound a number has to be.
#[derive(Debug, Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

struct Promise {
    name: &'static str,
    text: &'static str,
    bound: Bound,
    measured: fn(&Report) -> Option<f64>,
}

const ALL: &[Promise] = &[
    Promise {
        name: "fresh_box",
        text: "create + first exec of `true` + destroy, over one bwrap run of the same box (p50)",
        bound: Bound::AtMost(1.0),
        measured: |report| ratio(report, launch::WHOLE, launch::BWRAP),
    },
    Promise {
        name: "fresh_box_tail",
        text: "create + first exec of `true` + destroy, p99 over p50",
        bound: Bound::AtMost(5.0),
        measured: |report| report.timing(launch::WHOLE).map(|it| it.summary.p99_ms / it.summary.p50_ms),
    },
    Promise {
        name: "oneshot_over_bwrap",
        text: "`strongbox run -- true` as a program, over one bwrap run of the same box (p50)",
        bound: Bound::AtMost(1.5),
        measured: |report| ratio(report, launch::PROGRAM, launch::BWRAP),
    },
    Promise {
        name: "live_exec",
        text: "exec of `true` in a live box, over a bare fork+exec (p50)",
        bound: Bound::AtMost(2.0),
        measured: |report| ratio(report, launch::LIVE, launch::FLOOR),
    },
    Promise {
        name: "idle_box_memory",
        text: "memory of an idle box, MiB",
        bound: Bound::AtMost(1.5),
        measured: |report| report.value(idle::EACH),
    },
    Promise {
        name: "idle_crowd",
        text: "failures among 500 idle boxes at once",
        bound: Bound::AtMost(0.0),
        measured: |report| report.value(idle::AT_ONCE).filter(|boxes| *boxes >= 500.0).and(report.value(idle::FAILED)),
    },
    Promise {
        name: "agent_size",
        text: "the agent's program, MiB",
        bound: Bound::AtMost(4.0),
        measured: |_| Some(mib(box_agent_image::AGENT.len() as u64)),
    },
    Promise {
        name: "output_throughput",
        text: "throughput of standard output, over a plain pipe",
        bound: Bound::AtLeast(0.5),
        measured: |report| report.value(output::SHARE),
    },
    Promise {
        name: "flood_memory",
        text: "growth of our memory in a flood (10 GiB with --full), MiB",
        bound: Bound::AtMost(32.0),
        measured: |report| report.value(output::GROWTH),
    },
    Promise {
        name: "deadline_overtime",
        text: "from the deadline to a dead tree, the slowest, ms",
        bound: Bound::AtMost(500.0),
        measured: |report| report.timing(deadline::OVERTIME).map(|it| it.summary.max_ms),
    },
    Promise {
        name: "http_exec",
        text: "POST exec of `true` in a live session by `ab`, an independent client, over a bare fork+exec in a loop (p50)",
        bound: Bound::AtMost(3.5),
        measured: |report| ratio(report, http::AB, http::LOOP),
    },
    Promise {
        name: "http_exec_rate",
        text: "execs over several connections, 1/s",
        bound: Bound::AtLeast(500.0),
        measured: |report| report.value(http::RATE),
    },
    Promise {
        name: "http_session_rate",
        text: "create + exec + delete over HTTP, sustained, 1/s",
        bound: Bound::AtLeast(80.0),
        measured: |report| report.value(http::LIVES),
    },
    Promise {
        name: "http_session_failures",
        text: "failures in that time",
        bound: Bound::AtMost(0.0),
        measured: |report| report.value(http::LIVES_FAILED),
    },
    Promise {
        name: "http_burst",
        text: "each of 100 creates at once, p99, ms",
        bound: Bound::AtMost(1500.0),
        measured: |report| {
            let whole = report.value(http::BURST_FAILED).is_some_and(|failed| failed <= 0.0);
            report.timing(http::BURST).map(|it| if whole { it.summary.p99_ms } else { f64::NAN })
        },
    },
    Promise {
        name: "http_idle_memory",
        text: "the server with 1000 idle sessions, MiB",
        bound: Bound::AtMost(200.0),
        measured: |report| {
            report.value(http::IDLE).filter(|count| *count >= 1000.0).and(report.value(http::IDLE_MEMORY))
        },
    },
    Promise {
        name: "http_list",
        text: "listing 1000 sessions (p50), ms",
        bound: Bound::AtMost(50.0),
        measured: |report| report.timing(http::LIST).map(|it| it.summary.p50_ms),
    },
    Promise {
        name: "http_adoption",
        text: "from a start after kill -9 to an answer with 200 sessions adopted, the slowest, ms",
        bound: Bound::AtMost(3000.0),
        measured: |report| report.timing(http::ADOPTED).map(|it| it.summary.max_ms),
    },
    Promise {
        name: "strangers",
        text: "a request with a token while 5,000 connections without one come, p99, ms",
        bound: Bound::AtMost(100.0),
        measured: |report| {
            let whole = report.value(strangers::FAILED).is_some_and(|failed| failed <= 0.0);
            report.timing(strangers::CROWDED).map(|it| if whole { it.summary.p99_ms } else { f64::NAN })
        },
    },
    Promise {
        name: "langbot_exec",
        text: "LangBot's RPC exec of `true` in a live session, over the original server with its own sandbox (p50)",
        bound: Bound::AtMost(0.5),
        measured: |report| ratio(report, langbot::OURS, langbot::NSJAIL),
    },
    Promise {
        name: "mcp_call",
        text: "a tool call through the gateway to a server in a box, less one to the process itself (p50), ms",
        bound: Bound::AtMost(1.0),
        measured: |report| {
            Some(report.timing(mcp::GATEWAY)?.summary.p50_ms - report.timing(mcp::DIRECT)?.summary.p50_ms)
        },
    },
    Promise {
        name: "e2b_life",
        text: "create + run of `true` + kill of a sandbox where packets are forwarded, by Python's http.client, over a bare \
               fork+exec (p50)",
        bound: Bound::AtMost(30.0),
        measured: |report| ratio(report, e2b::LIFE_BY_PYTHON, e2b::FLOOR),
    },
    Promise {
        name: "e2b_write",
        text: "100 MiB written into a sandbox, over a copy through a socket (throughput)",
        bound: Bound::AtLeast(0.5),
        measured: |report| report.value(e2b::WRITE_SHARE),
    },
    Promise {
        name: "e2b_read",
        text: "100 MiB read out of a sandbox, over a copy through a socket (throughput)",
        bound: Bound::AtLeast(0.5),
        measured: |report| report.value(e2b::READ_SHARE),
    },
    // 20 ms, and a millisecond more for each MB.
    Promise {
        name: "fork_1mib",
        text: "fork of a session with 1 MiB (p50), ms",
        bound: Bound::AtMost(21.0),
        measured: |report| report.timing(fork::SMALL).map(|it| it.summary.p50_ms),
    },
    Promise {
        name: "fork_100mib",
        text: "fork of a session with 100 MiB (p50), ms",
        bound: Bound::AtMost(125.0),
        measured: |report| report.timing(fork::LARGE).map(|it| it.summary.p50_ms),
    },
    Promise {
        name: "docker_exec",
        text: "`docker exec` of `true`, over ours in a container of the same engine (p50)",
        bound: Bound::AtLeast(10.0),
        measured: |report| ratio(report, engines::DOCKER.program, engines::DOCKER.exec),
    },
    Promise {
        name: "podman_exec",
        text: "`podman exec` of `true`, over ours in a container of the same engine (p50)",
        bound: Bound::AtLeast(10.0),
        measured: |report| ratio(report, engines::PODMAN.program, engines::PODMAN.exec),
    },
    Promise {
        name: "docker_pool",
        text: "creating a box on Docker cold, over taking one from the pool (p50)",
        bound: Bound::AtLeast(2.0),
        measured: |report| ratio(report, engines::DOCKER.cold, engines::DOCKER.warm),
    },
    Promise {
        name: "podman_pool",
        text: "creating a box on Podman cold, over taking one from the pool (p50)",
        bound: Bound::AtLeast(2.0),
        measured: |report| ratio(report, engines::PODMAN.cold, engines::PODMAN.warm),
    },
    Promise {
        name: "grep_100k",
        text: "grep over 100,000 files in a box, over `rg` on the host (p50)",
        bound: Bound::AtMost(1.5),
        measured: |report| ratio(report, search::GREP, search::RIPGREP),
    },
];

/// Fills in the verdicts.
pub(crate) fn judge(report: &mut Report) {
    report.verdicts = ALL.iter().map(|promise| verdict(promise, (promise.measured)(report))).collect();
}

fn verdict(promise: &Promise, measured: Option<f64>) -> Verdict {
    let (bound, holds) = match promise.bound {
        Bound::AtMost(most) => (most, measured.map(|it| it <= most)),
        Bound::AtLeast(least) => (least, measured.map(|it| it >= least)),
    };
    Verdict { name: promise.name, promise: promise.text, limit: promise.bound.text(), measured, bound, holds }
}

fn ratio(report: &Report, name: &str, to: &str) -> Option<f64> {
    Some(report.timing(name)?.summary.p50_ms / report.timing(to)?.summary.p50_ms)
}

impl Bound {
    fn text(self) -> &'static str {
        match self {
            Self::AtMost(_) => "≤",
            Self::AtLeast(_) => "≥",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bound: Bound, measured: Option<f64>) -> Option<bool> {
        verdict(&Promise { name: "x", text: "", bound, measured: |_| None }, measured).holds
    }

    #[test]
    fn bounds_are_kept_on_their_side_and_what_was_not_measured_is_neither_held_nor_broken() {
        assert_eq!(held(Bound::AtMost(2.0), Some(2.0)), Some(true));
        assert_eq!(held(Bound::AtMost(2.0), Some(2.1)), Some(false));
        assert_eq!(held(Bound::AtLeast(0.5), Some(0.4)), Some(false));
        assert_eq!(held(Bound::AtMost(2.0), Some(f64::NAN)), Some(false));
        assert_eq!(held(Bound::AtMost(2.0), None), None);
    }
}
