//! The programs at work in the kernel: ordinary programs run under them, and refused calls answer as the table says.
#![expect(unsafe_code, reason = "installs a filter between fork and exec, which only system calls can do")]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use super::*;

/// Installs programs in this process, for good. Safe between fork and exec: makes system calls only.
fn install(programs: &[Vec<u8>]) -> std::io::Result<()> {
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    for program in programs {
        let length = u16::try_from(program.len() / compile::INSTRUCTION_BYTES).map_err(std::io::Error::other)?;
        let header = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
        // SAFETY: the header describes `program`, which lives until the call returns and is copied by the kernel.
        let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const header) };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Runs a command under the filter, in a directory of its own. `None` when the program is not on this machine.
fn confined(set: SyscallSet, program: &str, arguments: &[&str]) -> Option<Output> {
    if !Path::new(program).exists() {
        // Not a skip: the test goes on with the programs that there are.
        eprintln!("not tried: {program} is not installed");
        return None;
    }
    let programs = programs(set).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory.path()).env("HOME", directory.path());
    // SAFETY: `install` makes system calls on memory that was made before the fork.
    unsafe { command.pre_exec(move || install(&programs)) };
    Some(command.output().unwrap())
}

fn succeeds(set: SyscallSet, program: &str, arguments: &[&str]) {
    if let Some(output) = confined(set, program, arguments) {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {}\n{stderr}", output.status);
    }
}

#[test]
fn ordinary_programs_work() {
    let python = "import ssl, sqlite3, threading, subprocess, socket, tempfile, select, multiprocessing as m\n\
        p = m.Pool(2); assert p.map(abs, [-1, -2]) == [1, 2]; p.close(); p.join()\n\
        t = threading.Thread(target=print); t.start(); t.join()\n\
        d = sqlite3.connect('a.db'); d.execute('create table t(x)'); d.commit()\n\
        s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); c.close()\n\
        select.epoll().close(); assert subprocess.run(['true']).returncode == 0";
    succeeds(SyscallSet::Default, "/usr/bin/python3", &["-c", python]);
    let gcc = "printf '#include <stdio.h>\\nint main(){puts(\"hi\");return 0;}' > a.c && gcc a.c -o a && ./a";
    succeeds(SyscallSet::Default, "/bin/sh", &["-c", gcc]);
    let node = "const w = require('worker_threads'); require('fs').readdirSync('.'); \
        require('child_process').execSync('true'); if (w.isMainThread) new w.Worker('1', {eval: true});";
    succeeds(SyscallSet::Default, "/usr/bin/node", &["-e", node]);
    for git in ["/usr/bin/git", "/usr/local/bin/git"] {
        succeeds(SyscallSet::Default, git, &["init", "-q", "g"]);
    }
    succeeds(
        SyscallSet::Default,
        "/usr/bin/perl",
        &["-e", "use POSIX; my $p = fork; exit 0 unless $p; waitpid $p, 0; exit $?"],
    );
    succeeds(
        SyscallSet::Default,
        "/bin/bash",
        &["-c", "set -e; seq 1 1000 | xargs -P4 -n10 true; cat <(echo a) | sort"],
    );
    succeeds(
        SyscallSet::Default,
        "/bin/sh",
        &["-c", "echo a > a; tar cf t.tar a; tar xf t.tar; mkfifo p; touch -d yesterday a"],
    );
    succeeds(SyscallSet::Default, "/usr/bin/java", &["-version"]);
    succeeds(SyscallSet::Default, "/usr/bin/dpkg", &["-l"]);
}

#[test]
fn refused_calls_answer_as_the_table_says() {
    let probe = "import ctypes, os, sys\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        def errno_of(*a):\n  ctypes.set_errno(0); r = libc.syscall(*a); return ctypes.get_errno() if r == -1 else 0\n\
        word = ctypes.c_ulong\n\
        print(errno_of(272, 0x10000000), errno_of(435, None, 88), errno_of(0x40000000 | 39), errno_of(321, 0, None, 0),\n\
            errno_of(41, 38, 5, 0), errno_of(16, -1, word((0x123 << 32) | 0x5412), b'x'), errno_of(135, 0x40000),\n\
            errno_of(101, 16, 1, 0, 0), errno_of(39))";
    let found = |set| {
        let output = confined(set, "/usr/bin/python3", &["-c", probe]).expect("python3 is needed for this test");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(found(SyscallSet::Default), "1 38 38 1 1 1 1 1 0\n");
    // In the debugging set the kernel itself refuses ptrace: pid 1 belongs to another user, or is the tracer's own
    // ancestor.
    assert!(found(SyscallSet::Debug).starts_with("1 38 38 1 1 1 1 "));
}

#[test]
fn the_32_bit_table_kills() {
    use std::os::unix::process::ExitStatusExt;
    let probe = "import ctypes, mmap\n\
        m = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('b814000000cd80c3'))\n\
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()";
    let output =
        confined(SyscallSet::Default, "/usr/bin/python3", &["-c", probe]).expect("python3 is needed for this test");
    assert_eq!(output.status.signal(), Some(libc::SIGSYS));
}

#[test]
fn debuggers_work_in_the_debug_set_only() {
    let probe = "import ctypes, os, signal, sys\n\
        libc = ctypes.CDLL(None, use_errno=True); child = os.fork()\n\
        if child == 0: signal.pause()\n\
        result = libc.ptrace(0x4206, child, None, None); os.kill(child, 9); os.waitpid(child, 0); sys.exit(-result)";
    succeeds(SyscallSet::Debug, "/usr/bin/python3", &["-c", probe]);
    let refused =
        confined(SyscallSet::Default, "/usr/bin/python3", &["-c", probe]).expect("python3 is needed for this test");
    assert_eq!(refused.status.code(), Some(1));
}
