"""Sessions: made, found, listed, deleted, kept apart."""

import asyncio
import re

from langbot_plugin.box.errors import BoxSessionNotFoundError
from langbot_plugin.box.models import BoxSessionInfo

from gate import Gate
from suite import case, equal, holds, raises, until

FIELDS = {
    "session_id",
    "backend_name",
    "backend_session_id",
    "image",
    "network",
    "host_path",
    "host_path_mode",
    "mount_path",
    "persistent",
    "cpus",
    "memory_mb",
    "pids_limit",
    "read_only_rootfs",
    "workspace_quota_mb",
    "created_at",
    "last_used_at",
    "status",
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@case()
async def a_session_has_every_field_in_its_form(box, ground):
    session = await box.create_session(box.spec(image="alpine:latest"))
    equal(set(session), FIELDS, "fields")
    BoxSessionInfo.model_validate(session)
    equal(
        (session["session_id"], session["image"], session["status"]),
        (box.name("s"), "alpine:latest", "idle"),
        "session",
    )
    equal(session["backend_name"], (await box.get_backend_info())["name"], "backend_name")
    holds(box.name("s") in [it["session_id"] for it in await box.get_sessions()], "it is not listed")
    for key in ["created_at", "last_used_at"]:
        holds(TIME.fullmatch(session[key]), f"{key} is {session[key]}")


@case()
async def creating_again_gives_the_same_session(box, ground):
    one = await box.create_session(box.spec())
    await box.run("echo kept > /tmp/file")
    two = await box.create_session(box.spec())
    equal(two["backend_session_id"], one["backend_session_id"], "backend_session_id")
    equal((await box.run("cat /tmp/file")).stdout, "kept", "file")


@case()
async def ten_creates_at_once_make_one_session(box, ground):
    made = await asyncio.gather(*(box.create_session(box.spec()) for _ in range(10)))
    equal(len({session["backend_session_id"] for session in made}), 1, "boxes")
    equal(len({session["created_at"] for session in made}), 1, "times")


@case()
async def a_command_makes_its_session(box, ground):
    await box.run("true")
    session = await box.get_session(box.name("s"))
    equal(set(session), FIELDS, "fields of a session without processes")


@case()
async def sessions_are_listed(box, ground):
    for name in ["a", "b"]:
        await box.create_session(box.spec(session=name))
    found = {session["session_id"] for session in await box.get_sessions()}
    holds({box.name("a"), box.name("b")} <= found, f"listed are {found}")
    if box.context:
        equal(len(found), 2, "sessions of this workspace")


@case()
async def a_deleted_session_is_gone_and_its_files_with_it(box, ground):
    await box.run("echo lost > /tmp/file")
    answer = await box.raw("box_delete_session", {"session_id": box.name("s")}, timeout=30)
    equal(answer, {"deleted": box.name("s")}, "answer")
    await raises(BoxSessionNotFoundError, box.get_session(box.name("s")), f"session {box.physical('s')} not found")
    await raises(BoxSessionNotFoundError, box.delete_session(box.name("s")), f"session {box.physical('s')} not found")
    equal((await box.run("cat /tmp/file 2>/dev/null; echo new")).stdout, "new", "the new session")


@case()
async def a_running_command_shows_in_the_state_of_its_session(box, ground):
    gate = Gate(box, ground)
    await box.create_session(box.spec(**gate.fields()))
    running = asyncio.create_task(box.run(gate.script(), **gate.fields()))

    async def is_running():
        return (await box.get_session(box.name("s")))["status"] == "running"

    await until(is_running, "the session is running")
    gate.open()
    equal((await running).exit_code, 0, "exit_code")
    equal((await box.get_session(box.name("s")))["status"], "idle", "status")


@case()
async def use_moves_the_time_of_last_use(box, ground):
    before = await box.create_session(box.spec())
    await box.run("true")
    after = await box.get_session(box.name("s"))
    equal(after["created_at"], before["created_at"], "created_at")
    holds(after["last_used_at"] > before["last_used_at"], f"{after['last_used_at']} is not later")


@case()
async def ids_with_unclean_characters_are_accepted(box, ground):
    """LangBot's own ids look like `person_12:34`; since 0.5 they come back cleaned."""
    name = f"{box.prefix}:person 12/34"
    result = await box.execute(box.spec("echo hello", session_id=name))
    shown = re.sub(r"[^A-Za-z0-9_.-]+", "-", name) if box.context else name
    equal((result.stdout, result.session_id), ("hello", shown), "result")
    equal((await box.get_session(name))["session_id"], shown, "session_id")
    equal(await box.raw("box_delete_session", {"session_id": name}), {"deleted": name}, "the answer to delete")


@case()
async def ids_that_look_alike_when_cleaned_are_two_boxes(box, ground):
    """Where the original mixed them up."""
    await box.execute(box.spec("echo colon > /tmp/who", session_id=f"{box.prefix}a:b"))
    result = await box.execute(box.spec("cat /tmp/who 2>/dev/null; echo end", session_id=f"{box.prefix}a-b"))
    equal(result.stdout, "end", "what the other box sees")
    for name in [f"{box.prefix}a:b", f"{box.prefix}a-b"]:
        await box.delete_session(name)


@case("tenancy")
async def a_session_is_found_by_the_id_that_is_shown(box, ground):
    """Who lists sessions knows nothing else of them."""
    await box.execute(box.spec("true", session_id="room:1"))
    shown = [it["session_id"] for it in await box.get_sessions()]
    equal(shown, ["room-1"], "sessions")
    equal((await box.get_session("room-1"))["session_id"], "room-1", "session_id")
    await box.delete_session("room-1")
    equal(await box.get_sessions(), [], "sessions")


@case()
async def a_persistent_session_is_like_any_other(box, ground):
    session = await box.create_session(box.spec(persistent=True))
    equal(session["persistent"], True, "persistent")
    await box.delete_session(box.name("s"))
    await raises(BoxSessionNotFoundError, box.get_session(box.name("s")))


@case()
async def deleting_waits_for_a_running_command_or_ends_it(box, ground):
    await box.create_session(box.spec())
    running = asyncio.create_task(box.run("sleep 2; echo done", timeout_sec=20))

    async def is_running():
        return (await box.get_session(box.name("s")))["status"] == "running"

    await until(is_running, "the command runs")
    await box.delete_session(box.name("s"))
    await asyncio.wait([running], timeout=30)
    holds(running.done(), "the command never came back")
    running.exception()
    await raises(BoxSessionNotFoundError, box.get_session(box.name("s")))


@case()
async def an_idle_session_goes_and_one_with_a_process_stays(box, ground):
    async with ground.fresh(STRONGBOX_SESSION_TTL_SEC="1") as link:
        own = link.box()
        await own.create_session(own.spec(session="idle"))
        await own.start("busy", "sleep", "60")

        async def left():
            return [it["session_id"] for it in await own.get_sessions()] == [own.name("busy")]

        await until(left, "only the session with a process is left", limit_sec=40)
        await own.stop_managed_process(own.name("busy"))

        async def none_left():
            return not await own.get_sessions()

        await until(none_left, "no session is left", limit_sec=40)
