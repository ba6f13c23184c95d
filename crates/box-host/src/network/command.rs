//! Short-lived programs of the host (`ip`, `nft`), run on the host's network or inside a box's.
#![expect(unsafe_code, reason = "a program is moved into the box's namespaces between fork and exec")]

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use box_core::{Error, Result};
use rustix::process::{Gid, Uid};
use rustix::thread::LinkNameSpaceType;

use super::failure;
use crate::program;

/// Runs a program to its end on the host's network.
pub(super) fn run(program: &str, arguments: &[&str], input: &str) -> Result<()> {
    finish(&mut command(program, arguments)?, program, arguments, input).map(drop)
}

/// Runs a program to its end on the host's network, and answers what it wrote.
pub(super) fn ask(program: &str, arguments: &[&str]) -> Result<String> {
    finish(&mut command(program, arguments)?, program, arguments, "")
}

/// Runs a program to its end in a network, as root of a user namespace, which is our own where none is named. Answers what it wrote.
pub(super) fn ask_inside(
    user: Option<&OwnedFd>,
    net: &OwnedFd,
    program: &str,
    arguments: &[&str],
    input: &str,
) -> Result<String> {
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(|source| Error::io("copy a descriptor", source));
    let (user, net) = (user.map(copy).transpose()?, copy(net)?);
    let enter = move || -> io::Result<()> {
        if let Some(user) = &user {
            rustix::thread::move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
            rustix::thread::set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT)?;
            rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
        }
        rustix::thread::move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    };
    let mut command = command(program, arguments)?;
    // SAFETY: makes system calls only, on descriptors that the closure owns.
    unsafe { command.pre_exec(enter) };
    finish(&mut command, program, arguments, input)
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
        // A program that does not read to the end has failed, and its own words are better than ours.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(context)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " / ");
    Err(failure(format!("`{program} {}` ended with {}: {words}", arguments.join(" "), output.status)))
}
