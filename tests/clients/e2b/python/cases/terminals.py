"""Terminals."""

from e2b import CommandExitException, NotFoundException, PtySize, SandboxException

from streams import Terminal
from suite import case, equal, raises, until


@case()
async def a_terminal_answers_what_is_typed(desk):
    sandbox = await desk.sandbox()
    terminal = await desk.terminal(sandbox)
    await terminal.type("echo $((6 * 7)) größe; tty\n")
    await terminal.shows("42 größe")
    await terminal.shows("/dev/pts/")


@case()
async def a_terminal_has_the_size_that_it_is_given(desk):
    sandbox = await desk.sandbox()
    terminal = await desk.terminal(sandbox, rows=31, cols=97)
    await terminal.type("stty size\n")
    await terminal.shows("31 97")
    await sandbox.pty.resize(terminal.pid, PtySize(rows=44, cols=123))
    await terminal.type("stty size\n")
    await terminal.shows("44 123")


@case("users")
async def a_terminal_has_variables_a_place_and_a_user(desk):
    sandbox = await desk.sandbox(envs={"OF": "the sandbox"})
    terminal = await desk.terminal(sandbox, envs={"OWN": "mine"}, cwd="/tmp", user="root")
    await terminal.type('echo "<$OF|$OWN|$TERM|$PWD|$(whoami)>"\n')
    await terminal.shows("<the sandbox|mine|xterm-256color|/tmp|root>")


@case()
async def an_interrupt_is_typed(desk):
    sandbox = await desk.sandbox()
    terminal = await desk.terminal(sandbox)
    # What says that it is ready is what has the terminal.
    await terminal.type("sh -c 'echo ready; exec sleep 100'\n")
    await terminal.shows("ready\r\n")
    await terminal.type("\x03")
    await terminal.type("echo after-$?\n")
    await terminal.shows("after-130")


@case()
async def a_shell_that_exits_ends_its_terminal(desk):
    sandbox = await desk.sandbox()
    terminal = await desk.terminal(sandbox)
    await terminal.type("exit 9\n")
    error = await raises(CommandExitException, terminal.waiting)
    equal(error.exit_code, 9, "exit code")


@case()
async def a_terminal_is_killed_once(desk):
    sandbox = await desk.sandbox()
    terminal = await desk.terminal(sandbox)
    equal(await sandbox.pty.kill(terminal.pid), True, "the first kill")
    error = await raises(CommandExitException, terminal.waiting)
    equal(error.exit_code, -1, "exit code")

    async def gone():
        return await sandbox.pty.kill(terminal.pid) is False

    await until(gone, "killing it says that it is gone")


@case()
async def a_terminal_is_left_and_found_again(desk):
    sandbox = await desk.sandbox()
    terminal = await desk.terminal(sandbox)
    await terminal.type("KEPT=yes; echo set-$KEPT\n")
    await terminal.shows("set-yes")
    again = await Terminal.connect(desk.form, sandbox, terminal.pid)
    await terminal.type("echo still-$KEPT\n")
    await again.shows("still-yes")


@case()
async def a_terminal_is_listed_among_commands(desk):
    sandbox = await desk.sandbox()
    terminal = await desk.terminal(sandbox)
    listed = await sandbox.commands.list()
    equal([(it.pid, it.cmd, list(it.args)) for it in listed], [(terminal.pid, "/bin/bash", ["-i", "-l"])], "commands")


@case("since-2.45")
async def a_command_without_a_terminal_has_no_size(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "sleep 60")
    await raises(SandboxException, sandbox.pty.resize(running.pid, PtySize(rows=10, cols=10)))
    await raises(NotFoundException, sandbox.pty.resize(999_999, PtySize(rows=10, cols=10)))


@case()
async def colours_and_bytes_come_as_they_are(desk):
    sandbox = await desk.sandbox()
    terminal = await desk.terminal(sandbox)
    await terminal.type("printf '\\033[31mred\\033[0m-end\\n'\n")
    await terminal.shows("\x1b[31mred\x1b[0m-end")
