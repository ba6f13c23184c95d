"""Commands in the background: found, listened to, written to, left and ended."""

import asyncio
import hashlib
import random

from e2b import CommandExitException, NotFoundException, SandboxException, TimeoutException

from link import NotRunning
from suite import case, equal, holds, raises, until

UNKNOWN_PID = 999_999


@case()
async def a_command_runs_on_and_is_waited_for(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "sleep 0.5; echo done; echo oh >&2")
    holds(running.pid > 0, f"the pid is {running.pid}")
    result = await running.wait()
    equal((result.stdout, result.stderr, result.exit_code), ("done\n", "oh\n", 0), "result")
    equal(("".join(running.out), "".join(running.err)), ("done\n", "oh\n"), "what was told")


@case()
async def waiting_for_a_failure_raises_it(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "echo out; exit 4")
    error = await raises(CommandExitException, running.wait())
    equal((error.exit_code, error.stdout), (4, "out\n"), "error")


@case()
async def what_runs_is_listed_as_it_was_asked_for(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "sleep 60", cwd="/tmp", envs={"A": "1"})
    listed = await sandbox.commands.list()
    equal([it.pid for it in listed], [running.pid], "pids")
    found = listed[0]
    equal((found.cmd, list(found.args)), ("/bin/bash", ["-l", "-c", "sleep 60"]), "command")
    equal((found.cwd, dict(found.envs)), ("/tmp", {"A": "1"}), "place and variables")
    equal(await running.handle.kill(), True, "kill")


@case()
async def a_command_that_ended_is_not_listed(desk):
    sandbox = await desk.sandbox()
    await sandbox.commands.run("true")
    equal(await sandbox.commands.list(), [], "commands")


@case()
async def a_command_is_killed_once(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "sleep 60")
    equal(await running.handle.kill(), True, "the first kill")
    error = await raises(CommandExitException, running.wait())
    equal((error.exit_code, error.error), (-1, "signal: killed"), "end")

    async def gone():
        return await sandbox.commands.kill(running.pid) is False

    await until(gone, "killing it says that it is gone")
    equal(await sandbox.commands.list(), [], "commands")


@case()
async def an_unknown_pid_is_not_found(desk):
    sandbox = await desk.sandbox()
    equal(await sandbox.commands.kill(UNKNOWN_PID), False, "kill")
    await raises(NotFoundException, sandbox.commands.connect(UNKNOWN_PID))
    await raises(NotFoundException, sandbox.commands.send_stdin(UNKNOWN_PID, "x"))


@case()
async def the_pids_of_others_are_nobodys(desk):
    one, other = await desk.sandbox(), await desk.sandbox()
    running = await desk.start(one, "sleep 60")
    equal(await other.commands.list(), [], "commands of the other")
    equal(await other.commands.kill(running.pid), False, "kill by the other")
    equal([it.pid for it in await one.commands.list()], [running.pid], "commands of the one")


@case()
async def a_command_reads_what_is_sent(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "read a; echo got $a; read b; echo and $b", stdin=True)
    await sandbox.commands.send_stdin(running.pid, "größe\n")
    await running.said("got größe\n")
    await sandbox.commands.send_stdin(running.pid, "漢字\n")
    equal((await running.wait()).stdout, "got größe\nand 漢字\n", "output")


@case(limit_sec=120)
async def eight_mebibytes_of_input_arrive_in_one_call(desk):
    sandbox = await desk.sandbox()
    # The oldest version takes text only.
    content = random.Random(7).randbytes(4 << 20).hex()
    running = await desk.start(sandbox, f"head -c {len(content)} | sha256sum", stdin=True)
    await sandbox.commands.send_stdin(running.pid, content)
    equal((await running.wait()).stdout.split()[0], hashlib.sha256(content.encode()).hexdigest(), "sum")


@case("since-2.30")
async def a_command_sees_the_end_of_its_input(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "wc -c", stdin=True)
    for _ in range(4):
        await running.handle.send_stdin(b"\x00\xff" * 5000)
    await running.handle.close_stdin()
    equal((await running.wait()).stdout.strip(), "40000", "bytes")


@case("since-2.30")
async def input_can_be_closed_by_pid_and_twice(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "cat; sleep 1", stdin=True)
    await sandbox.commands.send_stdin(running.pid, "text")
    await sandbox.commands.close_stdin(running.pid)
    await sandbox.commands.close_stdin(running.pid)
    equal((await running.wait()).stdout, "text", "output")


@case("since-2.63", "sync")
async def input_can_be_a_stream(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "head -c 60 | tr a-z A-Z", stdin=True)
    await sandbox.commands.stream_input(running.pid, iter(["one ", b"two ", "x" * 52]))
    equal((await running.wait()).stdout, "ONE TWO " + "X" * 52, "output")


@case("since-2.63", "async")
async def input_can_be_queued(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "head -c 60 | tr a-z A-Z", stdin=True)
    queue = sandbox.commands.stream_input(running.pid)
    for piece in ("one ", b"two ", "x" * 52):
        await queue.send(piece)
    await queue.close()
    equal((await running.wait()).stdout, "ONE TWO " + "X" * 52, "output")


@case()
async def a_command_without_input_takes_none(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "sleep 60", stdin=False)
    await raises(SandboxException, sandbox.commands.send_stdin(running.pid, "x"))


@case()
async def who_leaves_does_not_end_a_command_and_can_come_back(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "echo first; read line; echo $line; exit 5", stdin=True)
    await running.handle.disconnect()
    equal([it.pid for it in await sandbox.commands.list()], [running.pid], "commands")
    again = await desk.connect(sandbox, running.pid)
    equal(again.pid, running.pid, "pid")
    again.listen()
    await sandbox.commands.send_stdin(running.pid, "second\n")
    error = await raises(CommandExitException, again.wait())
    equal(error.exit_code, 5, "exit code")
    holds(error.stdout.endswith("second\n"), f"the output is {error.stdout!r}")


@case()
async def who_comes_late_hears_everything_from_the_start(desk):
    sandbox = await desk.sandbox()
    command = "for n in $(seq 100); do echo line $n; done; echo oh >&2; touch /tmp/said; read line; echo $line"
    running = await desk.start(sandbox, command, stdin=True)
    await running.handle.disconnect()

    async def said():
        return await sandbox.files.exists("/tmp/said")

    await until(said, "everything is said")
    again = await desk.connect(sandbox, running.pid)
    again.listen()
    await again.said("line 100\n")
    await sandbox.commands.send_stdin(running.pid, "last\n")
    result = await again.wait()
    equal(result.stdout, "".join(f"line {n}\n" for n in range(1, 101)) + "last\n", "output")
    equal(result.stderr, "oh\n", "errors")
    late = await desk.connect(sandbox, running.pid)
    equal((await late.wait()).stdout, result.stdout, "output for who comes after the end")


@case(limit_sec=120)
async def who_comes_late_misses_nothing_in_the_middle(desk):
    sandbox = await desk.sandbox()
    # Lines of seven bytes: far more than servers keep that are started for this, before and after a line of input.
    command = "seq 100000 549999; touch /tmp/said; read line; seq 550000 999999"
    running = await desk.start(sandbox, command, stdin=True)
    await running.handle.disconnect()

    async def said():
        return await sandbox.files.exists("/tmp/said")

    await until(said, "more is said than is kept")
    again = await desk.connect(sandbox, running.pid)
    again.listen()
    await sandbox.commands.send_stdin(running.pid, "on\n")
    told = (await again.wait()).stdout
    everything = "".join(f"{n}\n" for n in range(100_000, 1_000_000))
    holds(len(told) > len(everything) / 2, f"it has only {len(told)} characters")
    holds(everything.endswith(told), "it is whole from where it begins")


@case()
async def a_command_is_found_by_another_client(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "read line; echo $line", stdin=True)
    other = await desk.Sandbox.connect(sandbox.sandbox_id)
    pid = (await other.commands.list())[0].pid
    equal(pid, running.pid, "pid")
    await other.commands.send_stdin(pid, "from another\n")
    equal((await running.wait()).stdout, "from another\n", "output")


@case()
async def two_clients_hear_the_same_command(desk):
    sandbox = await desk.sandbox()
    first = await desk.start(sandbox, "read line; echo $line", stdin=True)
    second = await desk.connect(sandbox, first.pid)
    second.listen()
    await sandbox.commands.send_stdin(first.pid, "for both\n")
    for it in (first, second):
        holds("for both\n" in (await it.wait()).stdout, "it is heard")


@case()
async def who_comes_after_the_end_is_told_the_end(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "exit 6")
    await raises(CommandExitException, running.wait())
    again = await desk.connect(sandbox, running.pid)
    error = await raises(CommandExitException, again.wait())
    equal(error.exit_code, 6, "exit code")


@case()
async def children_in_the_background_do_not_end_with_their_command(desk):
    sandbox = await desk.sandbox()
    result = await sandbox.commands.run("(sleep 1; echo late > late) >/dev/null 2>&1 & echo started")
    equal(result.stdout, "started\n", "output")

    async def late():
        return await sandbox.files.exists("/home/user/late")

    await until(late, "the child has written")


@case()
async def a_command_out_of_time_ends_even_if_nobody_listens(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "sleep 60", timeout=2)
    await running.handle.disconnect()

    async def gone():
        return await sandbox.commands.list() == []

    await until(gone, "it is gone")


@case()
async def killing_the_sandbox_tells_who_listens(desk):
    sandbox = await desk.sandbox()
    running = await desk.start(sandbox, "echo begun; sleep 60")
    await running.said("begun")
    await sandbox.kill()
    error = await raises(NotRunning, asyncio.wait_for(running.wait(), 20))
    holds(isinstance(error, TimeoutException), "it is what older versions raise")


@case()
async def an_old_handle_is_no_way_into_a_dead_sandbox(desk):
    sandbox = await desk.sandbox()
    await sandbox.kill()
    await raises(NotRunning, sandbox.commands.run("true"))
    await raises(NotRunning, sandbox.commands.list())
