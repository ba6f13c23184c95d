"""LangBot's own E2B backend: it connects anew for every command, and copies mounts to and fro."""

import os

from langbot_plugin.box.errors import BoxError
from langbot_plugin.box.models import BoxExecutionStatus, BoxHostMountMode

from suite import case, equal, holds, raises


def put(directory: str, files: dict[str, str]) -> None:
    """Writes files below a directory of the host."""
    for name, text in files.items():
        path = os.path.join(directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)


def get(directory: str, name: str) -> str:
    with open(os.path.join(directory, name)) as file:
        return file.read()


@case()
async def it_is_available_with_a_key(desk):
    await desk.backend.initialize()
    equal(await desk.backend.is_available(), True, "is_available")


@case()
async def a_session_is_a_sandbox(desk):
    session = await desk.session()
    equal((session.session_id, session.backend_name), (desk.name, "e2b"), "session")
    found = session.backend_session_id
    holds(found.isalnum() and found == found.lower(), f"its id is {found}")


@case()
async def streams_and_exit_code_come_back(desk):
    session = await desk.session()
    result = await desk.run(session, "echo out; echo err >&2")
    equal((result.status, result.exit_code), (BoxExecutionStatus.COMPLETED, 0), "result")
    equal((result.stdout.strip(), result.stderr.strip()), ("out", "err"), "streams")


@case()
async def a_failing_command_is_an_error_of_that_backend(desk):
    """It takes every exception of the package for a failure of its own; what the package says must be in it."""
    session = await desk.session()
    await raises(BoxError, desk.run(session, "echo reason >&2; exit 3"), "exited with code 3", "reason")
    equal((await desk.run(session, "echo next")).stdout.strip(), "next", "the next command")


@case()
async def a_command_out_of_time_is_told_as_such(desk):
    session = await desk.session()
    result = await desk.run(session, "sleep 60", timeout_sec=1)
    equal((result.status, result.exit_code), (BoxExecutionStatus.TIMED_OUT, None), "result")
    equal((await desk.run(session, "echo next")).stdout.strip(), "next", "the next command")


@case()
async def a_command_runs_in_its_workspace(desk):
    session = await desk.session()
    equal((await desk.run(session, "pwd", workdir="/workspace/sub")).stdout.strip(), "/home/user/workspace/sub", "place")
    await desk.run(session, "echo kept > /workspace/note")
    equal((await desk.run(session, "cat note", workdir="/workspace")).stdout.strip(), "kept", "file")


@case()
async def variables_reach_the_command(desk):
    session = await desk.session(env={"OF": "the session"})
    result = await desk.run(session, 'echo "$OF $OWN"', env={"OWN": "and the command"})
    equal(result.stdout.strip(), "the session and the command", "variables")


@case(limit_sec=120)
async def a_mount_is_copied_there_and_back(desk):
    put(desk.directory, {"in.txt": "from the host", "sub dir/größe.txt": "below", ".git/config": "left out"})
    mounted = {"host_path": desk.directory, "host_path_mode": BoxHostMountMode.READ_WRITE}
    session = await desk.session(**mounted)
    command = "cat in.txt 'sub dir/größe.txt'; ls -a; echo changed > in.txt; mkdir -p new; echo made > new/out.txt"
    result = await desk.run(session, command, **mounted)
    holds("from the host" in result.stdout and "below" in result.stdout, f"inside it says {result.stdout}")
    holds(".git" not in result.stdout, "what is skipped is not there")
    equal((get(desk.directory, "in.txt"), get(desk.directory, "new/out.txt")), ("changed\n", "made\n"), "files outside")
    equal(get(desk.directory, "sub dir/größe.txt"), "below", "a file that was not touched")


@case(limit_sec=120)
async def a_read_only_mount_is_copied_only_there(desk):
    put(desk.directory, {"in.txt": "from the host", "sub/more.txt": "more"})
    mounted = {"host_path": desk.directory, "host_path_mode": BoxHostMountMode.READ_ONLY}
    session = await desk.session(**mounted)
    result = await desk.run(session, "cat in.txt sub/more.txt; echo changed 2>/dev/null > in.txt || true", **mounted)
    holds("from the host" in result.stdout and "more" in result.stdout, f"inside it says {result.stdout}")
    equal(get(desk.directory, "in.txt"), "from the host", "the file outside")


@case()
async def a_session_is_alive_until_it_is_stopped(desk):
    session = await desk.session()
    # Old versions do not ask: what every backend says there is that a session lives.
    alive = desk.backend.is_session_alive if "is_session_alive" in vars(type(desk.backend)) else None
    if alive is not None:
        equal(await alive(session), True, "alive")
    await desk.backend.stop_session(session)
    if alive is not None:
        equal(await alive(session), False, "alive")
    await raises(BoxError, desk.run(session, "true"), "Failed to connect")
    await desk.backend.stop_session(session)
