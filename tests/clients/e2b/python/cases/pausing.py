"""Sandboxes that wait: paused by hand or by their time, and woken by who comes back."""

from e2b import SandboxQuery, SandboxState

from link import NotRunning, SandboxMissing
from suite import case, equal, holds, raises, until


async def state(desk, sandbox):
    return (await desk.Sandbox.get_info(sandbox.sandbox_id)).state


async def paused(desk, **options):
    """A sandbox that its time has paused."""
    sandbox = await desk.sandbox(lifecycle={"on_timeout": "pause"} | options)
    await sandbox.set_timeout(1)

    async def is_paused():
        return await state(desk, sandbox) == SandboxState.PAUSED

    await until(is_paused, "it is paused")
    return sandbox


@case()
async def a_paused_sandbox_does_not_run_and_is_not_gone(desk):
    sandbox = await desk.sandbox()
    await sandbox.pause()
    equal(await state(desk, sandbox), SandboxState.PAUSED, "state")
    equal(await sandbox.is_running(), False, "is_running")
    await raises(NotRunning, sandbox.commands.run("true"))


@case()
async def connecting_wakes_a_paused_sandbox_with_its_files_and_programs(desk):
    sandbox = await desk.sandbox(envs={"SAID": "before"})
    await sandbox.files.write("/home/user/note", "kept")
    running = await desk.start(sandbox, "while sleep 0.1; do echo; done >/tmp/beats", timeout=0)
    await until(lambda: sandbox.files.exists("/tmp/beats"), "the program has begun")
    await desk.Sandbox.pause(sandbox.sandbox_id)
    again = await desk.Sandbox.connect(sandbox.sandbox_id, timeout=120)
    equal(again.sandbox_id, sandbox.sandbox_id, "id")
    equal(await state(desk, sandbox), SandboxState.RUNNING, "state")
    equal(await again.files.read("/home/user/note"), "kept", "file")
    equal((await again.commands.run("echo $SAID")).stdout, "before\n", "variable")
    equal([it.pid for it in await again.commands.list()], [running.pid], "commands")

    async def size():
        return (await again.files.get_info("/tmp/beats")).size

    before = await size()

    async def beats():
        return await size() > before

    await until(beats, "the program goes on")


@case()
async def an_old_handle_works_when_the_sandbox_is_awake_again(desk):
    sandbox = await desk.sandbox()
    await sandbox.pause()
    await sandbox.connect()
    equal((await sandbox.commands.run("echo awake")).stdout, "awake\n", "output")


@case("since-2.30")
async def pausing_twice_says_so(desk):
    sandbox = await desk.sandbox()
    equal(await sandbox.pause(), True, "the first time")
    equal(await sandbox.pause(), False, "the second time")


@case()
async def a_paused_sandbox_is_killed(desk):
    sandbox = await desk.sandbox()
    await sandbox.pause()
    equal(await desk.Sandbox.kill(sandbox.sandbox_id), True, "kill")
    await raises(SandboxMissing, desk.Sandbox.get_info(sandbox.sandbox_id))
    await raises(SandboxMissing, desk.Sandbox.connect(sandbox.sandbox_id))


@case()
async def a_paused_sandbox_does_not_end_with_its_time(desk):
    sandbox = await desk.sandbox(timeout=2)
    await sandbox.pause()

    async def over():
        listed = await desk.Sandbox.list(SandboxQuery(metadata={"mark": desk.mark})).next_items()
        return not listed

    try:
        await until(over, "it is gone", 4)
    except AssertionError:
        equal(await state(desk, sandbox), SandboxState.PAUSED, "state")
    else:
        raise AssertionError("it is gone")


@case()
async def a_sandbox_can_pause_instead_of_ending(desk):
    sandbox = await paused(desk)
    holds(not await sandbox.is_running(), "it does not run")
    again = await desk.Sandbox.connect(sandbox.sandbox_id, timeout=60)
    equal((await again.commands.run("echo awake")).stdout, "awake\n", "output")


@case()
async def who_comes_wakes_a_sandbox_that_was_made_for_it(desk):
    sandbox = await paused(desk, auto_resume=True)
    equal((await sandbox.commands.run("echo woken")).stdout, "woken\n", "output")
    equal(await state(desk, sandbox), SandboxState.RUNNING, "state")


@case()
async def an_unknown_sandbox_cannot_be_paused(desk):
    await raises(SandboxMissing, desk.Sandbox.pause("i" + "0" * 19))


@case("since-2.63")
async def a_pause_that_need_only_keep_files_keeps_them(desk):
    """What ran may be kept, too: nobody who asks for less is surprised by more."""
    sandbox = await desk.sandbox()
    await sandbox.files.write("/home/user/note", "kept")
    equal(await sandbox.pause(mode="filesystem"), True, "pause")
    again = await desk.Sandbox.connect(sandbox.sandbox_id)
    equal(await again.files.read("/home/user/note"), "kept", "file")
    equal((await again.commands.run("cat note")).stdout, "kept", "output")
