"""Copies of sandboxes: snapshots that others begin with, and forks.

With `--also networks`, also the network of a sandbox that runs, which our server changes for nobody.
"""

from e2b import InvalidArgumentException, SandboxException

from link import SandboxMissing, since
from suite import case, equal, holds, raises

NOTE = "/home/user/note"


async def all_of(paginator) -> list:
    found = []
    while paginator.has_next:
        found.extend(await paginator.next_items())
        holds(len(found) < 1000, "the pages do not end")
    return found


@case("saving")
async def a_sandbox_begins_as_a_snapshot_was(desk):
    source = await desk.sandbox()
    await source.files.write(NOTE, "then")
    snapshot = await source.create_snapshot()
    await source.files.write(NOTE, "now")
    copy = await desk.sandbox(snapshot.snapshot_id)
    equal(await copy.files.read(NOTE), "then", "the copy")
    equal(await source.files.read(NOTE), "now", "the source")
    holds(copy.sandbox_id != source.sandbox_id, "they are two")
    equal(await desk.Sandbox.delete_snapshot(snapshot.snapshot_id), True, "delete")


@case("saving")
async def the_source_runs_on(desk):
    source = await desk.sandbox()
    running = await desk.start(source, "read line; echo $line", stdin=True)
    snapshot = await source.create_snapshot()
    equal(await source.is_running(), True, "is_running")
    await source.commands.send_stdin(running.pid, "still here\n")
    equal((await running.wait()).stdout, "still here\n", "output")
    equal(await desk.Sandbox.delete_snapshot(snapshot.snapshot_id), True, "delete")


@case("saving", "volumes", "since-2.30")
async def what_is_in_a_volume_is_not_in_a_snapshot(desk):
    volume = await desk.volume()
    source = await desk.sandbox(volume_mounts={"/home/user/data": volume.name})
    await source.files.write(NOTE, "mine")
    await source.files.write("/home/user/data/shared", "then")
    snapshot = await source.create_snapshot()
    await source.files.write("/home/user/data/shared", "now")
    alone = await desk.sandbox(snapshot.snapshot_id)
    equal(await alone.files.read(NOTE), "mine", "what was the sandbox's own")
    equal([it.name for it in await alone.files.list("/home/user/data")], [], "where the volume was")
    both = await desk.sandbox(snapshot.snapshot_id, volume_mounts={"/home/user/data": volume.name})
    equal(await both.files.read("/home/user/data/shared"), "now", "the volume")
    equal(await desk.Sandbox.delete_snapshot(snapshot.snapshot_id), True, "delete")


@case("saving")
async def snapshots_are_listed_by_their_sandbox(desk):
    source, other = await desk.sandbox(), await desk.sandbox()
    made = {(await source.create_snapshot()).snapshot_id for _ in range(2)}
    equal(len(made), 2, "number of snapshots")
    equal({it.snapshot_id for it in await all_of(source.list_snapshots())}, made, "of the source")
    equal(await all_of(other.list_snapshots()), [], "of another")
    holds(made <= {it.snapshot_id for it in await all_of(desk.Sandbox.list_snapshots())}, "all of them are listed")
    for snapshot in made:
        equal(await desk.Sandbox.delete_snapshot(snapshot), True, "delete")
    equal(await all_of(source.list_snapshots()), [], "after they were deleted")


@case("saving")
async def a_snapshot_is_deleted_once_and_then_nothing_begins_with_it(desk):
    source = await desk.sandbox()
    snapshot = await source.create_snapshot()
    equal(await desk.Sandbox.delete_snapshot(snapshot.snapshot_id), True, "the first time")
    equal(await desk.Sandbox.delete_snapshot(snapshot.snapshot_id), False, "the second time")
    await raises(SandboxException, desk.sandbox(snapshot.snapshot_id), "404")


@case("saving")
async def a_snapshot_outlives_its_sandbox(desk):
    source = await desk.sandbox()
    await source.files.write(NOTE, "kept")
    snapshot = await source.create_snapshot()
    await source.kill()
    copy = await desk.sandbox(snapshot.snapshot_id)
    equal(await copy.files.read(NOTE), "kept", "the copy")
    await desk.Sandbox.delete_snapshot(snapshot.snapshot_id)


@case()
async def an_unknown_sandbox_has_no_snapshot(desk):
    await raises(SandboxMissing, desk.Sandbox.create_snapshot("i" + "0" * 19))


@case("saving", "since-2.30")
async def a_snapshot_can_have_a_name(desk):
    source = await desk.sandbox()
    name = f"named-{desk.mark[:12]}"
    snapshot = await source.create_snapshot(name)
    holds(any(name in it for it in snapshot.names), f"its names are {snapshot.names}")
    copy = await desk.sandbox(name)
    equal(await copy.is_running(), True, "is_running")
    await desk.Sandbox.delete_snapshot(snapshot.snapshot_id)


@case("saving", "since-2.45")
async def a_sandbox_is_forked(desk):
    source = await desk.sandbox()
    await source.files.write(NOTE, "common")
    forks = await source.fork(timeout=60, count=2)
    equal(len({it.sandbox_id for it in forks} | {source.sandbox_id}), 3, "number of sandboxes")
    for fork in forks:
        desk.keep(fork)
        equal(await fork.files.read(NOTE), "common", "file")
        await fork.files.write(NOTE, fork.sandbox_id)
    equal(await source.files.read(NOTE), "common", "file of the source")


@case("saving")
async def what_is_installed_and_removed_is_in_the_copy(desk):
    source = await desk.sandbox()
    await source.commands.run("mkdir -p /opt/tool && echo made > /opt/tool/file && rm -f /usr/bin/yes", user="root")
    await source.commands.run("mkdir -p deep/er && ln -s deep/er link && chmod 700 deep && touch deep/er/file")
    snapshot = await source.create_snapshot()
    copy = await desk.sandbox(snapshot.snapshot_id)
    seen = await copy.commands.run("cat /opt/tool/file; stat -c '%U %a' deep; ls link; test -e /usr/bin/yes || echo gone")
    equal(seen.stdout, "made\nuser 700\nfile\ngone\n", "what the copy has")
    equal(await desk.Sandbox.delete_snapshot(snapshot.snapshot_id), True, "delete")


@case("saving")
async def what_was_said_of_a_sandbox_holds_for_what_begins_with_it(desk):
    source = await desk.sandbox(envs={"ONE": "1", "TWO": "2"})
    snapshot = await source.create_snapshot()
    copy = await desk.sandbox(snapshot.snapshot_id, envs={"TWO": "second"})
    equal((await copy.commands.run("echo $ONE $TWO")).stdout, "1 second\n", "variables")
    equal(await desk.Sandbox.delete_snapshot(snapshot.snapshot_id), True, "delete")


@case("saving", "since-2.45")
async def a_fork_has_what_was_said_of_its_source(desk):
    source = await desk.sandbox(envs={"ONE": "1"}, metadata={"who": "source"})
    fork = desk.keep((await source.fork(timeout=60))[0])
    equal((await fork.commands.run("echo $ONE $E2B_SANDBOX_ID")).stdout, f"1 {fork.sandbox_id}\n", "variables")
    equal((await fork.get_info()).metadata, {"mark": desk.mark, "who": "source"}, "metadata")


@case("since-2.45")
async def forks_are_counted(desk):
    source = await desk.sandbox()
    await raises(InvalidArgumentException, source.fork(count=0))
    # Older versions leave it to the server how many are too many.
    await raises(InvalidArgumentException if since("2.63") else SandboxException, source.fork(count=21))


@case("networks", "since-2.30")
async def the_network_of_a_sandbox_can_be_closed(desk):
    sandbox = await desk.sandbox()
    await sandbox.update_network({"allow_internet_access": False})
    equal((await sandbox.commands.run("echo in")).stdout, "in\n", "commands work")
    await raises(SandboxMissing, desk.Sandbox.update_network("i" + "0" * 19, {"allow_internet_access": False}))
