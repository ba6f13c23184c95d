"""Managed processes: started, seen, replaced, stopped."""

import os

from langbot_plugin.box.errors import BoxManagedProcessNotFoundError, BoxSessionNotFoundError
from langbot_plugin.box.models import BoxManagedProcessStatus
from langbot_plugin.entities.io.errors import ActionCallError

from suite import case, equal, holds, raises, until


async def ended(box, session: str = "s", process_id: str = "default"):
    """Waits until a process has ended, and returns what is then said of it."""

    async def look():
        info = await box.get_managed_process(box.name(session), process_id)
        return info if info.status == BoxManagedProcessStatus.EXITED else None

    return await until(look, "the process has ended")


@case()
async def a_started_process_is_described(box, ground):
    info = await box.start("s", "sh", "-c", "exec sleep 60", process_id="p1", env={"Z": "1", "B": "2"})
    equal(
        (info.session_id, info.process_id, info.status),
        (box.name("s"), "p1", BoxManagedProcessStatus.RUNNING),
        "process",
    )
    equal((info.command, info.args, info.cwd), ("sh", ["-c", "exec sleep 60"], "/tmp"), "command")
    equal((info.env_keys, info.attached, info.exit_code, info.exited_at), (["B", "Z"], False, None, None), "state")
    again = await box.get_managed_process(box.name("s"), "p1")
    equal((again.status, again.started_at), (info.status, info.started_at), "process")


@case()
async def a_session_shows_its_processes(box, ground):
    await box.start("s", "sleep", "60")
    await box.start("s", "sleep", "60", process_id="other")
    session = await box.get_session(box.name("s"))
    equal(set(session["managed_processes"]), {"default", "other"}, "managed_processes")
    equal(session["managed_process"], session["managed_processes"]["default"], "managed_process")
    await box.stop_managed_process(box.name("s"))
    session = await box.get_session(box.name("s"))
    holds("managed_process" not in session and set(session["managed_processes"]) == {"other"}, f"session is {session}")


@case()
async def the_end_of_a_process_is_seen_with_code_and_error_output(box, ground):
    await box.start("s", "sh", "-c", "echo bye >&2; exit 7")
    info = await ended(box)
    equal((info.exit_code, info.stderr_preview), (7, "bye"), "end")
    holds(info.exited_at is not None and info.exited_at >= info.started_at, f"ended at {info.exited_at}")
    await box.stop_managed_process(box.name("s"))


@case()
async def error_output_is_kept_to_four_thousand_characters(box, ground):
    await box.start("s", "sh", "-c", "seq 1 5000 >&2; exit 0")
    info = await ended(box)
    holds(0 < len(info.stderr_preview) <= 4000, f"{len(info.stderr_preview)} characters")
    holds(info.stderr_preview.rstrip().endswith("5000"), f"the end is {info.stderr_preview[-40:]!r}")


@case()
async def stopping_forgets_the_process(box, ground):
    await box.start("s", "sleep", "60", process_id="p")
    answer = await box.raw("box_stop_managed_process", {"session_id": box.name("s"), "process_id": "p"}, timeout=30)
    equal(answer, {"stopped": "p"}, "answer")
    text = "has no managed process with process_id=p"
    await raises(BoxManagedProcessNotFoundError, box.get_managed_process(box.name("s"), "p"), text)
    await raises(BoxManagedProcessNotFoundError, box.stop_managed_process(box.name("s"), "p"), text)


@case()
async def unknown_sessions_and_processes_are_not_found(box, ground):
    await raises(
        BoxSessionNotFoundError, box.get_managed_process(box.name("no")), f"session {box.physical('no')} not found"
    )
    call = box.start_managed_process(box.name("no"), box.process_spec("true"))
    await raises(BoxSessionNotFoundError, call, f"session {box.physical('no')} not found")
    await box.create_session(box.spec())
    text = f"session {box.physical('s')} has no managed process with process_id=default"
    await raises(BoxManagedProcessNotFoundError, box.get_managed_process(box.name("s")), text)


@case()
async def an_omitted_process_id_means_default(box, ground):
    await box.start("s", "sleep", "60")
    info = await box.raw("box_get_managed_process", {"session_id": box.name("s")})
    equal((info["process_id"], info["status"]), ("default", "running"), "process")
    equal(
        await box.raw("box_stop_managed_process", {"session_id": box.name("s")}, 30), {"stopped": "default"}, "answer"
    )


@case()
async def starting_a_running_process_replaces_it(box, ground):
    place = os.path.join(ground.directory, box.name("host"))
    await box.create_session(box.spec(host_path=place, workdir="/workspace"))
    first = "echo first >> /workspace/log; exec sleep 60"
    one = await box.start_managed_process(box.name("s"), box.process_spec("sh", "-c", first, cwd="/workspace"))
    two = await box.start_managed_process(box.name("s"), box.process_spec("sleep", "61", cwd="/workspace"))
    holds(two.started_at > one.started_at and two.args == ["61"], f"process is {two}")
    left = await box.run(
        "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p; echo; done | grep -c '^sleep 60 ' ",
        host_path=place,
        workdir="/workspace",
    )
    equal(left.stdout, "0", "processes of the first start")


@case()
async def a_process_that_ignores_every_request_to_end_is_killed(box, ground):
    """The original left it running in the box."""
    script = "trap '' TERM; trap '' HUP; echo up >&2; while :; do sleep 0.2; done"
    await box.start("s", "sh", "-c", script, process_id="stubborn")

    async def is_up():
        return (await box.get_managed_process(box.name("s"), "stubborn")).stderr_preview == "up"

    await until(is_up, "the process has begun")
    await box.stop_managed_process(box.name("s"), "stubborn")
    left = await box.run("for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $p; echo; done | grep -c '^sh -c trap' ")
    equal(left.stdout, "0", "processes left")


@case()
async def words_reach_the_process_as_they_are(box, ground):
    args = ["-c", "import sys; print(sys.argv[1:], file=sys.stderr)", "two words", "it's", '"', "$HOME", "*", "", "ü"]
    await box.start("s", "python3", *args)
    equal((await ended(box)).stderr_preview, str(args[2:]), "arguments")


@case()
async def environment_and_directory_of_a_process_are_its_own(box, ground):
    await box.start("s", "sh", "-c", 'echo "$A|$PWD" >&2', env={"A": "x y"}, cwd="/tmp/of its own")
    equal((await ended(box)).stderr_preview, "x y|/tmp/of its own", "environment and directory")


@case()
async def a_bad_process_spec_is_refused(box, ground):
    await box.create_session(box.spec())
    for spec in [{}, {"command": "  "}, {"command": "true", "cwd": "relative"}, {"command": "true", "args": "no list"}]:
        call = box.raw("box_start_managed_process", {"session_id": box.name("s"), "spec": spec}, 30)
        await raises(ActionCallError, call, "BoxValidationError:")
    unknown = {"command": "true", "cwd": "/tmp", "memory_mb": 128, "new_key": 1}
    info = await box.raw("box_start_managed_process", {"session_id": box.name("s"), "spec": unknown}, 30)
    equal(info["command"], "true", "a spec with an unknown key")


@case()
async def a_command_that_does_not_exist_ends_with_127(box, ground):
    await box.start("s", "no-such-program-here")
    equal((await ended(box)).exit_code, 127, "exit_code")


@case()
async def deleting_a_session_ends_its_processes(box, ground):
    await box.start("s", "sleep", "60")
    await box.delete_session(box.name("s"))
    await raises(BoxSessionNotFoundError, box.get_managed_process(box.name("s")))


@case()
async def a_process_and_commands_share_one_box(box, ground):
    await box.start("s", "sh", "-c", "echo written > /tmp/by-process; exec sleep 60")

    async def seen():
        return (await box.run("cat /tmp/by-process 2>/dev/null")).stdout == "written"

    await until(seen, "the file of the process is there")
