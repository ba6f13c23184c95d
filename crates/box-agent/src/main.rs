//! The program that lives in every box. It is the box's first process, and its only privileged one.
//!
//! Life: started with one socket, it waits for the plan, turns fresh namespaces into a box, gives up all but a handful of
//! capabilities, reports, and then serves one request per dialled stream until the host or the last process ends it.
//!
//! The same program is also the host's *starter*: a process outside of all boxes that forks agents on request, which is faster
//! than executing each.

#![cfg_attr(not(test), no_main)]

mod control;
mod errand;
mod exec;
mod outbox;
mod server;
mod setup;
mod starter;
mod sys;

use std::os::fd::OwnedFd;

use box_wire::Report;
use rustix::process::DumpableBehavior;

/// The socket to the host that the agent is started with.
const CONTROL_DESCRIPTOR: i32 = 3;

/// What a started process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, expect(dead_code, reason = "tests bring an entry of their own"))]
enum Role {
    /// To be the first process of the box in which it was started.
    Agent,
    /// To fork agents.
    Starter,
}

/// The whole life, and the code with which it ends. Called by [`sys::main`].
#[cfg_attr(test, expect(dead_code, reason = "tests bring an entry of their own"))]
fn run(role: Role) -> i32 {
    let Ok(control) = sys::inherited(CONTROL_DESCRIPTOR) else { return 2 };
    match role {
        Role::Agent => be_agent(control),
        Role::Starter => starter::serve(control),
    }
}

/// The life of an agent, from the moment at which it finds itself in fresh namespaces.
fn be_agent(control: OwnedFd) -> i32 {
    let named = rustix::thread::set_name(c"strongbox-agent");
    sys::default_signals();
    let Ok((plan, descriptors)) = control::receive_plan(&control) else { return 3 };
    // Nothing may look into this process from here on. Not sooner: an ordinary user who makes a box writes its id maps until the
    // plan is sent, and may not do that to a process that hides. Nothing else lives in the box yet.
    let hidden = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Err(error) = hidden.and(named) {
        return report_failure(&control, &setup::Failure::new("hide", error));
    }
    match setup::apply(plan, descriptors) {
        Err(failure) => report_failure(&control, &failure),
        Ok(prepared) => match control::send_report(&control, &Report::Ready(prepared.verified.clone())) {
            Ok(()) => server::serve(prepared, control),
            Err(_) => 4,
        },
    }
}

fn report_failure(control: &OwnedFd, failure: &setup::Failure) -> i32 {
    let report = Report::Failed { step: failure.step.clone(), message: failure.message.clone() };
    // When the host is gone there is nobody left to tell; the box ends either way.
    let _ = control::send_report(control, &report);
    5
}
