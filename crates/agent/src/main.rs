//! The program that lives in every box. It is the box's first process, and its only privileged one.
//!
//! Life: started with one socket, it waits for the plan, turns fresh namespaces into a box, gives up all but a handful of
//! capabilities, reports, and then serves one request per dialed stream until the host or the last process ends it.
//!
//! The same program is also the host's *zygote*: a process outside of all boxes that forks agents on request, which is faster
//! than executing each. And it is the first process of an engine's container, where it runs in a container that it did not make;
//! there it can also be a *dialler*, the way to the agent for a host that shares nothing with the container. Outside of containers it is
//! the *attacher*, which puts the host's mounts into one, and the *guard*, which ends a helper of a box with the box. As a command
//! of a box it is *sudo*, which asks the agent for a command of root.

#![cfg_attr(not(test), no_main)]

mod absence;
mod control;
mod dialler;
mod exec;
mod file_op;
mod guard;
mod locks;
mod metered;
mod outbox;
mod port;
mod server;
mod setup;
mod snapshot;
mod sudo;
mod sys;
mod zygote;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use box_wire::message::Verified;
use box_wire::{Kind, Report};
use rustix::process::DumpableBehavior;
use setup::Step;

/// The socket to the host that the agent is started with.
const CONTROL_DESCRIPTOR: i32 = 3;

/// Whether an agent was started in a network namespace of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Made,
    /// It makes one while the host prepares its plan.
    Missing,
}

/// The role of a started process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(test, expect(dead_code, reason = "tests bring an entry of their own"))]
enum Role {
    /// To be the first process of the box in which it was started.
    Agent(Network),
    /// To fork agents.
    Zygote,
    /// To be the first process of a container, whose host waits behind this socket; `-` means the standard streams.
    Lodger(PathBuf),
    /// To carry bytes between the standard streams and the agent of this container.
    Dialler,
    /// Puts mounts of the host into a container, as requested over standard input.
    Attacher,
    /// To end the process that standard output names when the one that standard input names has ended.
    Guard,
    /// To be a command of a box under the name `sudo`, with these arguments.
    Sudo(Vec<Vec<u8>>),
}

/// The whole life, and the code with which it ends. Called by [`sys::main`].
#[cfg_attr(test, expect(dead_code, reason = "tests bring an entry of their own"))]
fn run(role: Role) -> i32 {
    let inherited = || sys::inherited(CONTROL_DESCRIPTOR);
    match role {
        Role::Agent(network) => inherited().map_or(2, |control| be_agent(control, network)),
        Role::Zygote => inherited().map_or(2, zygote::serve),
        Role::Lodger(socket) => control::dial_host(&socket).map_or(2, be_lodger),
        Role::Dialler => dialler::carry(),
        Role::Attacher => sys::inherited(0).map_or(2, |control| be_attacher(&control)),
        Role::Guard => match (sys::inherited(0), sys::inherited(1)) {
            (Ok(agent), Ok(helper)) => be_guard(&agent, &helper),
            _ => 2,
        },
        Role::Sudo(arguments) => sudo::run(arguments),
    }
}

/// The life of an agent, from the moment at which it finds itself in fresh namespaces.
fn be_agent(control: OwnedFd, network: Network) -> i32 {
    let named = rustix::thread::set_name(c"strongbox-agent");
    sys::default_signals();
    let connected = match network {
        Network::Made => Ok(()),
        Network::Missing => sys::unshare_network(),
    };
    let Ok((plan, descriptors)) = control::receive(&control, Kind::Plan) else { return 3 };
    // Nothing may look into this process from here on. Not sooner: an ordinary user who makes a box writes its id maps until the
    // plan is sent, and may not do that to a process that hides. Nothing else lives in the box yet.
    let hidden = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Err(error) = hidden.and(named) {
        return report_failure(&control, &setup::Failure::new("hide", error));
    }
    if let Err(error) = connected {
        return report_failure(&control, &setup::Failure::new("network_namespace", error));
    }
    match setup::apply(plan, descriptors) {
        Err(failure) => report_failure(&control, &failure),
        Ok(prepared) => match control::send_report(&control, &Report::Ready(prepared.verified.clone())) {
            Ok(()) => server::serve(prepared, control),
            Err(_) => 4,
        },
    }
}

/// The life of an agent in a container that an engine made: less to set up, and nothing to give up that was never given.
fn be_lodger(control: control::Control) -> i32 {
    let hidden = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    sys::default_signals();
    let Ok((setup, descriptors)) = control::receive(&control.incoming, Kind::ContainerSetup) else { return 3 };
    let named = rustix::thread::set_name(c"strongbox-agent");
    if let Err(error) = hidden.and(named) {
        return report_failure(&control.outgoing, &setup::Failure::new("hide", error));
    }
    match setup::move_in(setup, descriptors) {
        Err(failure) => report_failure(&control.outgoing, &failure),
        Ok(mut prepared) => match control::send_report(&control.outgoing, &Report::Ready(prepared.verified.clone())) {
            Ok(()) => {
                drop(control.outgoing);
                let lifeline = prepared.maker.take().unwrap_or(control.incoming);
                server::serve(prepared, lifeline)
            }
            Err(_) => 4,
        },
    }
}

/// The life of a process that has one order to carry out.
fn be_attacher(control: &OwnedFd) -> i32 {
    let named = rustix::thread::set_name(c"strongbox-mount");
    sys::default_signals();
    let Ok((order, descriptors)) = control::receive(control, Kind::Attaching) else { return 3 };
    match named.step("name").and_then(|()| setup::attach(&order, descriptors)) {
        Err(failure) => report_failure(control, &failure),
        Ok(()) => control::send_report(control, &Report::Ready(Verified::default())).map_or(4, |()| 0),
    }
}

/// The life of a process that waits for the end of a box.
fn be_guard(agent: &OwnedFd, helper: &OwnedFd) -> i32 {
    match rustix::thread::set_name(c"strongbox-guard") {
        Ok(()) => guard::keep(agent, helper),
        Err(_) => 3,
    }
}

fn report_failure(control: &OwnedFd, failure: &setup::Failure) -> i32 {
    let report = Report::Failed { step: failure.step.clone(), message: failure.message.clone() };
    // When the host is gone the report cannot be sent; the box ends either way.
    let _ = control::send_report(control, &report);
    5
}

/// Reports that the running test is skipped: what is missing, and how to get it.
#[cfg(test)]
fn skip(reason: &str) {
    let thread = std::thread::current();
    eprintln!("skipped: {}::{}: {reason}", env!("CARGO_PKG_NAME"), thread.name().unwrap_or("unnamed"));
}
