//! Short-lived programs of the host (`ip`, `nft`), run on the host's network or inside a box's.
#![expect(unsafe_code, reason = "a program is moved into the box's namespaces between fork and exec")]

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use box_core::{Error, Result};
use rustix::process::{Gid, Uid};
use rustix::thread::LinkNameSpaceType;

use super::{failure, netlink};
use crate::program;

/// Runs a program to its end on the host's network.
pub(super) fn run(program: &str, arguments: &[&str], input: &str) -> Result<()> {
    finish(&mut command(program, arguments)?, program, arguments, input).map(drop)
}

/// Runs a program to its end on the host's network, and answers what it wrote.
pub(super) fn ask(program: &str, arguments: &[&str]) -> Result<String> {
    finish(&mut command(program, arguments)?, program, arguments, "")
}

/// Runs a program to its end in a network, as root of a user namespace, by default this process's own. Returns its
/// output.
pub(super) fn ask_inside(user: Option<&OwnedFd>, net: &OwnedFd, program: &str, arguments: &[&str]) -> Result<String> {
    let enter = enter(user, net).map_err(|source| Error::io("copy a descriptor", source))?;
    let mut command = command(program, arguments)?;
    // SAFETY: makes system calls only, on descriptors that the closure owns.
    unsafe { command.pre_exec(enter) };
    finish(&mut command, program, arguments, "")
}

/// Sends a batch to the packet filter of another network namespace.
///
/// A thread of root can go there by itself. An ordinary user has to enter the user namespace first, which a thread cannot.
pub(super) fn change_rules_inside(user: Option<&OwnedFd>, net: &OwnedFd, batch: Vec<u8>) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let act = || {
            rustix::thread::move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
            netlink::change_rules(&batch)
        };
        let done = std::thread::scope(|scope| scope.spawn(act).join());
        return done.unwrap_or_else(|_| Err(io::Error::other("a thread for another network panicked")));
    }
    let enter = enter(user, net)?;
    let mut command = command("true", &[]).map_err(io::Error::other)?;
    // SAFETY: makes system calls only, on a descriptor and bytes that the closure owns.
    unsafe { command.pre_exec(move || enter().and_then(|()| netlink::change_rules(&batch))) };
    command.stdin(Stdio::null()).spawn()?.wait_with_output().map(drop)
}

/// What a process does between fork and exec to enter namespaces.
fn enter(user: Option<&OwnedFd>, net: &OwnedFd) -> io::Result<impl Fn() -> io::Result<()> + Send + Sync + 'static> {
    let (user, net) = (user.map(OwnedFd::try_clone).transpose()?, net.try_clone()?);
    Ok(move || {
        if let Some(user) = &user {
            rustix::thread::move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
            rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
            rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
        }
        Ok(rustix::thread::move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?)
    })
}

fn command(program: &str, arguments: &[&str]) -> Result<Command> {
    let path = program::find(program).ok_or_else(|| failure(format!("the program {program} has disappeared")))?;
    let mut command = Command::new(path);
    command.args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

fn finish(command: &mut Command, program: &str, arguments: &[&str], input: &str) -> Result<String> {
    let context = |source| Error::io(format!("run {program}"), source);
    let mut child = command.spawn().map_err(context)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read to the end has failed, and its own message is better.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(context)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " / ");
    Err(failure(format!("`{program} {}` ended with {}: {words}", arguments.join(" "), output.status)))
}
