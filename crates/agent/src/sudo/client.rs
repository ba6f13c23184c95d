//! The program `sudo`: a command of a box like any other. It asks the agent, and ends as the command of root ends.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use box_wire::User;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::accounts::{Account, Accounts};
use super::answer::Answer;
use super::environment::{self, Variable};
use super::options::{self, Action, Options, Shell};
use super::request::{REQUEST_BYTES_MAX, Request};
use super::screen::Screen;
use crate::sys;

/// Signals that the command gets when this program gets them.
const PASSED_ON: [i32; 7] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2, libc::SIGALRM];

/// Signals that this program acts on itself. `SIGTTOU` only so that it stops nothing.
const OWN: [i32; 4] = [libc::SIGTSTP, libc::SIGCONT, libc::SIGWINCH, libc::SIGTTOU];

/// Runs a command line, and returns the code to exit with.
pub(crate) fn run(arguments: Vec<Vec<u8>>) -> i32 {
    try_run(arguments).unwrap_or_else(|reason| {
        say(rustix::stdio::stderr(), &format!("sudo: {reason}"));
        1
    })
}

fn say(to: BorrowedFd<'_>, text: &str) {
    let _ = rustix::io::write(to, format!("{text}\n").as_bytes());
}

fn try_run(arguments: Vec<Vec<u8>>) -> Result<i32, String> {
    let options = options::parse(arguments)?;
    let text = match options.action {
        Action::Run => return ask(&options),
        Action::Nothing => return Ok(0),
        Action::List => "root and the user of this box may run every command as every user of it, without a password",
        Action::Help => options::USAGE,
        Action::Version => concat!("sudo of Strongbox ", env!("CARGO_PKG_VERSION")),
    };
    say(rustix::stdio::stdout(), text);
    Ok(0)
}

fn ask(options: &Options) -> Result<i32, String> {
    let mut request = request(options)?;
    let signals = sys::signal_descriptor(&[PASSED_ON.as_slice(), &OWN].concat()).map_err(|error| error.to_string())?;
    let stream = connect()?;
    let nonce = match Answer::receive(&stream) {
        Some(Answer::Ask(nonce)) => nonce,
        other => return end(other),
    };
    let mut screen = Screen::open();
    request.controlling = screen.is_some();
    // An agent that refuses may hang up before it has read everything, and says why.
    let _ = send(&stream, &nonce, &request.encode(), screen.as_ref());
    if let Some(screen) = &mut screen {
        screen.hand_over();
    }
    let answer = attend(&stream, &signals, screen.as_mut());
    if let Some(mut screen) = screen {
        screen.end();
    }
    end(answer)
}

/// Ends as the command ended.
fn end(answer: Option<Answer>) -> Result<i32, String> {
    match answer {
        Some(Answer::Code(code)) => Ok(code.into()),
        Some(Answer::Signal(signal)) => {
            sys::end_by(signal.into());
            Ok(128 + i32::from(signal))
        }
        Some(Answer::Failed(reason)) => Err(reason),
        Some(Answer::Ask(_)) | None => Err("the process above the command was killed".to_owned()),
    }
}

fn request(options: &Options) -> Result<Request, String> {
    let accounts = Accounts::read();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let invoker = accounts.user_of(uid).unwrap_or_else(|| unnamed(uid, gid));
    let target = match (&options.user, &options.group) {
        (Some(name), _) => accounts.user(name).ok_or_else(|| format!("unknown user: {}", name.escape_ascii()))?,
        (None, Some(_)) => invoker.clone(),
        (None, None) => accounts.user_of(0).unwrap_or_else(|| unnamed(0, 0)),
    };
    let group = options
        .group
        .as_ref()
        .map(|name| accounts.group(name).ok_or_else(|| format!("unknown group: {}", name.escape_ascii())));
    let user = User { uid: target.uid, gid: group.transpose()?.unwrap_or(target.gid) };
    let variable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| (name.into_vec(), value.into_vec());
    let caller: Vec<Variable> = std::env::vars_os().map(variable).collect();
    let shell = std::env::var_os("SHELL").map(OsStringExt::into_vec);
    let (program, arguments) = environment::command(options, &target, shell);
    let said = if options.command.is_empty() { std::slice::from_ref(&program) } else { options.command.as_slice() };
    let environment = environment::environment(caller, options, &target, &invoker, said);
    let cwd = match options.shell {
        Shell::Login => target.home,
        _ => std::env::current_dir().map_or_else(|_| b"/".to_vec(), |path| path.into_os_string().into_vec()),
    };
    let string = |bytes: Vec<u8>| std::ffi::CString::new(bytes).map_err(|error| error.to_string());
    let strings = |all: Vec<Vec<u8>>| all.into_iter().map(string).collect::<Result<Vec<_>, _>>();
    let entries = environment.into_iter().map(|(name, value)| [name, value].join(&b'=')).collect();
    let request = Request {
        user,
        controlling: false,
        cwd: string(cwd)?,
        program: string(program)?,
        arguments: strings(arguments)?,
        environment: strings(entries)?,
    };
    match request.encode().len() {
        bytes if bytes > REQUEST_BYTES_MAX => {
            Err(format!("command and environment are {bytes} bytes, of at most {REQUEST_BYTES_MAX}"))
        }
        _ => Ok(request),
    }
}

/// A user that the files of the box do not list.
fn unnamed(uid: u32, gid: u32) -> Account {
    let name = if uid == 0 { "root".to_owned() } else { uid.to_string() };
    let home = if uid == 0 { b"/root".to_vec() } else { b"/".to_vec() };
    Account { name: name.into_bytes(), uid, gid, home, shell: b"/bin/sh".to_vec() }
}

fn connect() -> Result<OwnedFd, String> {
    let try_connect = || {
        let stream = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&stream, &SocketAddrUnix::new_abstract_name(super::NAME)?)?;
        Ok(stream)
    };
    try_connect().map_err(|error: Errno| match error {
        Errno::CONNREFUSED => {
            "root of this box has no capabilities; they need root_capabilities in the profile".to_owned()
        }
        error => format!("cannot reach the agent of this box: {error}"),
    })
}

fn send(stream: &OwnedFd, nonce: &[u8], body: &[u8], screen: Option<&Screen>) -> rustix::io::Result<()> {
    let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let streams = own.map(|stream| screen.map_or(stream, |screen| screen.instead_of(stream)));
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&streams));
    let head = [nonce, &length].concat();
    rustix::net::sendmsg(stream, &[IoSlice::new(&head)], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut rest = body;
    while !rest.is_empty() {
        match rustix::net::send(stream, rest, SendFlags::NOSIGNAL) {
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Passes signals and the terminal on until the command has ended.
fn attend(stream: &OwnedFd, signals: &OwnedFd, mut screen: Option<&mut Screen>) -> Option<Answer> {
    loop {
        let mut polled = vec![PollFd::new(stream, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        let timeout = screen.as_mut().and_then(|screen| screen.prepare());
        if let Some(screen) = &screen {
            polled.extend(screen.interests());
        }
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return None,
        }
        let has_ended = !polled[0].revents().is_empty();
        while let Some((signal, _)) = sys::read_signal(signals) {
            take_signal(signal, stream, screen.as_deref_mut());
        }
        if let Some(screen) = &mut screen {
            screen.turn();
        }
        if has_ended {
            return Answer::receive(stream);
        }
    }
}

fn take_signal(signal: i32, stream: &OwnedFd, mut screen: Option<&mut Screen>) {
    let pass_on = |signal: i32| {
        let byte = u8::try_from(signal).unwrap_or(0);
        let _ = rustix::net::send(stream.as_fd(), &[byte], SendFlags::NOSIGNAL);
    };
    match signal {
        libc::SIGTSTP => {
            // The command has a session of its own, which the terminal does not stop.
            pass_on(libc::SIGSTOP);
            if let Some(screen) = &mut screen {
                screen.restore();
            }
            let _ = sys::signal_child(std::process::id().cast_signed(), libc::SIGSTOP);
            pass_on(libc::SIGCONT);
        }
        libc::SIGCONT => screen.into_iter().for_each(Screen::forget),
        libc::SIGWINCH => screen.into_iter().for_each(|screen| screen.resize()),
        libc::SIGTTOU => {}
        signal => pass_on(signal),
    }
}
