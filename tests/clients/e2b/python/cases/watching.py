"""Events of directories."""

from e2b import FilesystemEventType as Kind
from e2b import InvalidArgumentException, SandboxException, TimeoutException

from link import FileMissing
from suite import case, equal, holds, raises, until

PLACE = "/home/user/watched"


@case()
async def what_happens_in_a_directory_is_told(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(PLACE)
    watch = await desk.watch(sandbox, PLACE)
    await sandbox.commands.run(f"cd {PLACE} && echo 1 > file && chmod 600 file && mv file moved && rm moved")
    for name, kind in [
        ("file", Kind.CREATE),
        ("file", Kind.WRITE),
        ("file", Kind.CHMOD),
        ("file", Kind.RENAME),
        ("moved", Kind.CREATE),
        ("moved", Kind.REMOVE),
    ]:
        await watch.sees(name, kind)
    await watch.stop()


@case()
async def what_the_package_writes_is_told(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(PLACE)
    watch = await desk.watch(sandbox, PLACE)
    await sandbox.files.write(f"{PLACE}/größe", "1")
    await watch.sees("größe", Kind.WRITE)
    await sandbox.files.rename(f"{PLACE}/größe", f"{PLACE}/new")
    await watch.sees("größe", Kind.RENAME)
    await sandbox.files.remove(f"{PLACE}/new")
    await watch.sees("new", Kind.REMOVE)
    await watch.stop()


@case()
async def directories_below_are_told_only_if_asked_for(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(f"{PLACE}/below")
    flat, deep = await desk.watch(sandbox, PLACE), await desk.watch(sandbox, PLACE, recursive=True)
    await sandbox.files.write(f"{PLACE}/below/file", "1")
    await sandbox.files.write(f"{PLACE}/last", "1")
    await deep.sees("below/file", Kind.CREATE)
    await deep.sees("last", Kind.CREATE)
    await flat.sees("last", Kind.CREATE)
    holds(all("/" not in it.name for it in await flat.look()), "nothing below is told")
    await flat.stop()
    await deep.stop()


@case()
async def directories_that_come_later_are_followed(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(PLACE)
    watch = await desk.watch(sandbox, PLACE, recursive=True)
    await sandbox.files.make_dir(f"{PLACE}/new")
    await watch.sees("new", Kind.CREATE)
    await sandbox.files.make_dir(f"{PLACE}/new/newer")
    await watch.sees("new/newer", Kind.CREATE)
    await sandbox.files.write(f"{PLACE}/new/newer/file", "1")
    await watch.sees("new/newer/file", Kind.WRITE)
    await watch.stop()


@case("async")
async def after_its_end_nothing_is_told(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(PLACE)
    watch = await desk.watch(sandbox, PLACE)
    await sandbox.files.write(f"{PLACE}/before", "1")
    await watch.sees("before", Kind.CREATE)
    await watch.stop()
    await sandbox.files.write(f"{PLACE}/after", "1")
    equal({it.name for it in watch.events}, {"before"}, "names")


@case("sync")
async def after_its_end_nothing_can_be_asked(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(PLACE)
    watch = await desk.watch(sandbox, PLACE)
    equal(await watch.look(), [], "events")
    await watch.stop()
    await raises(SandboxException, watch.look(), "already stopped")


@case()
async def only_directories_can_be_watched(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write("/home/user/file", "x")
    await raises(FileMissing, desk.watch(sandbox, "/home/user/missing"))
    await raises(InvalidArgumentException, desk.watch(sandbox, "/home/user/file"))


@case()
async def a_removed_directory_is_told(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(f"{PLACE}/inner")
    watch = await desk.watch(sandbox, PLACE)
    await sandbox.files.remove(f"{PLACE}/inner")
    await watch.sees("inner", Kind.REMOVE)
    await watch.stop()


@case("since-2.30")
async def an_event_can_bring_its_entry(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(PLACE)
    watch = await desk.watch(sandbox, PLACE, include_entry=True)
    await sandbox.files.write(f"{PLACE}/file", "12345")
    event = await watch.sees("file", Kind.WRITE)
    holds(event.entry is not None, "the event has an entry")
    equal((event.entry.name, event.entry.path), ("file", f"{PLACE}/file"), "entry")
    await watch.stop()


@case("async")
async def a_watch_out_of_time_ends(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(PLACE)
    watch = await desk.watch(sandbox, PLACE, timeout=1)

    async def ended():
        return watch.ends

    await until(ended, "it is told that the watch has ended")
    equal(type(watch.ends[0]), TimeoutException, "reason")
