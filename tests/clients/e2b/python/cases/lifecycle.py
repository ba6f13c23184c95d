"""Sandboxes come, are found again, live longer or shorter, and go."""

import asyncio
from datetime import datetime, timedelta, timezone

from e2b import SandboxException, SandboxState

from link import SandboxMissing
from suite import case, equal, holds, raises, until

UNKNOWN = "i" + "0" * 19
# What the clocks of two programs on one machine, and a slow machine, may differ by.
SLACK = timedelta(seconds=8)


async def ends_in(sandbox) -> timedelta:
    """How long a sandbox has yet to live."""
    return (await sandbox.get_info()).end_at - datetime.now(timezone.utc)


def about(found: timedelta, seconds: int, what: str) -> None:
    holds(abs(found - timedelta(seconds=seconds)) < SLACK, f"{what} is in {found}, not in {seconds} s")


@case()
async def a_sandbox_is_made_and_says_what_it_is(desk):
    sandbox = await desk.sandbox(metadata={"purpose": "größe 漢字"}, timeout=120)
    info = await sandbox.get_info()
    equal(info.sandbox_id, sandbox.sandbox_id, "id")
    equal(info.metadata, {"mark": desk.mark, "purpose": "größe 漢字"}, "metadata")
    equal(info.state, SandboxState.RUNNING, "state")
    holds("base" in (info.template_id, info.name), f"the template is {info.template_id} named {info.name}")
    holds(info.cpu_count >= 1 and info.memory_mb >= 1, f"it has {info.cpu_count} CPUs and {info.memory_mb} MB")
    holds(abs(info.started_at - datetime.now(timezone.utc)) < SLACK, f"it began at {info.started_at}")
    about(info.end_at - datetime.now(timezone.utc), 120, "its end")


@case()
async def an_id_has_only_small_letters_and_digits(desk):
    sandbox = await desk.sandbox()
    found = sandbox.sandbox_id
    holds(found.isascii() and found.isalnum() and found == found.lower(), f"the id is {found}")


@case()
async def two_sandboxes_know_nothing_of_each_other(desk):
    one, other = await asyncio.gather(desk.sandbox(), desk.sandbox())
    await one.files.write("/home/user/mine", "1")
    await one.commands.run("echo 1 > /tmp/mine")
    equal(await other.files.exists("/home/user/mine"), False, "exists")
    equal(await other.files.exists("/tmp/mine"), False, "exists")


@case()
async def a_killed_sandbox_is_gone_and_killing_it_again_says_so(desk):
    sandbox = await desk.sandbox()
    equal(await sandbox.is_running(), True, "is_running")
    equal(await sandbox.kill(), True, "the first kill")
    equal(await sandbox.kill(), False, "the second kill")
    equal(await desk.Sandbox.kill(sandbox.sandbox_id), False, "the third kill")
    equal(await sandbox.is_running(), False, "is_running")
    await raises(SandboxMissing, sandbox.get_info())


@case()
async def a_sandbox_is_killed_by_its_id(desk):
    sandbox = await desk.sandbox()
    equal(await desk.Sandbox.kill(sandbox.sandbox_id), True, "kill")
    equal(await sandbox.is_running(), False, "is_running")


@case()
async def an_unknown_id_is_not_found(desk):
    await raises(SandboxMissing, desk.Sandbox.get_info(UNKNOWN))
    await raises(SandboxMissing, desk.Sandbox.connect(UNKNOWN))
    await raises(SandboxMissing, desk.Sandbox.set_timeout(UNKNOWN, 60))
    equal(await desk.Sandbox.kill(UNKNOWN), False, "kill")


@case()
async def set_timeout_lengthens_and_shortens(desk):
    sandbox = await desk.sandbox(timeout=120)
    for seconds in (600, 60):
        await sandbox.set_timeout(seconds)
        about(await ends_in(sandbox), seconds, "its end")
    await desk.Sandbox.set_timeout(sandbox.sandbox_id, 240)
    about(await ends_in(sandbox), 240, "its end, set by id")


@case()
async def a_sandbox_ends_when_its_time_is_over(desk):
    sandbox = await desk.sandbox(timeout=120)
    await sandbox.set_timeout(1)

    async def gone():
        return not await sandbox.is_running()

    await until(gone, "it is gone")
    await raises(SandboxMissing, sandbox.get_info())


@case()
async def connecting_never_shortens_a_life(desk):
    sandbox = await desk.sandbox(timeout=300)
    before = (await sandbox.get_info()).end_at
    await desk.Sandbox.connect(sandbox.sandbox_id, timeout=30)
    holds((await sandbox.get_info()).end_at >= before, "its end did not come nearer")
    await desk.Sandbox.connect(sandbox.sandbox_id, timeout=900)
    about(await ends_in(sandbox), 900, "its end")


@case()
async def a_life_is_five_minutes_unless_said(desk):
    sandbox = desk.keep(await desk.Sandbox.create(metadata={"mark": desk.mark}))
    about(await ends_in(sandbox), 300, "its end")


@case()
async def a_sandbox_is_found_again_by_its_id(desk):
    first = await desk.sandbox(envs={"SAID": "at the beginning"})
    await first.files.write("/home/user/note", "kept")
    second = await desk.Sandbox.connect(first.sandbox_id)
    equal(second.sandbox_id, first.sandbox_id, "id")
    equal(await second.files.read("/home/user/note"), "kept", "file")
    equal((await second.commands.run("echo $SAID")).stdout, "at the beginning\n", "output")
    equal(await second.is_running(), True, "is_running")


@case()
async def a_sandbox_connects_to_itself_again(desk):
    sandbox = await desk.sandbox()
    again = await sandbox.connect(timeout=60)
    equal(again.sandbox_id, sandbox.sandbox_id, "id")
    equal((await again.commands.run("echo here")).stdout, "here\n", "output")


@case()
async def a_life_of_no_time_is_refused(desk):
    error = await raises(SandboxException, desk.sandbox(timeout=-1), "400")
    holds("imeout" in str(error), f"the reason is {error}")


@case()
async def an_unknown_template_is_refused(desk):
    await raises(SandboxException, desk.sandbox("no-such-template-here"), "404")


@case()
async def ten_sandboxes_live_at_the_same_time(desk):
    made = await asyncio.gather(*(desk.sandbox() for _ in range(10)))
    equal(len({it.sandbox_id for it in made}), 10, "number of sandboxes")
    results = await asyncio.gather(*(it.commands.run(f"echo {n}") for n, it in enumerate(made)))
    equal([it.stdout for it in results], [f"{n}\n" for n in range(10)], "what they say")


@case("since-2.30")
async def what_was_asked_for_is_told(desk):
    sandbox = await desk.sandbox(lifecycle={"on_timeout": "pause", "auto_resume": True})
    equal((await sandbox.get_info()).lifecycle, {"on_timeout": "pause", "auto_resume": True}, "lifecycle")


@case()
async def the_version_that_is_told_has_every_feature(desk):
    sandbox = await desk.sandbox()
    version = (await sandbox.get_info()).envd_version
    holds(tuple(map(int, version.split("."))) >= (0, 6, 4), f"the version is {version}")
