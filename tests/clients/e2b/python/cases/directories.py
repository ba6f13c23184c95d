"""Names: lists, kinds, moves, removals."""

from datetime import datetime, timedelta, timezone

from e2b import FileType, InvalidArgumentException

from link import FileMissing, aware
from suite import case, equal, holds, raises

PLACE = "/home/user/place"


async def tree(sandbox) -> None:
    """A small tree."""
    await sandbox.files.write_files(
        [{"path": f"{PLACE}/{name}", "data": name} for name in ("a.txt", "sub/b.txt", "sub/deep/c.txt")]
    )


async def names(sandbox, **options) -> list[str]:
    """What a list of the tree has, by its path below."""
    return [it.path.removeprefix(f"{PLACE}/") for it in await sandbox.files.list(PLACE, **options)]


@case()
async def a_list_is_as_deep_as_asked_for(desk):
    sandbox = await desk.sandbox()
    await tree(sandbox)
    equal(await names(sandbox), ["a.txt", "sub"], "depth 1")
    equal(await names(sandbox, depth=2), ["a.txt", "sub", "sub/b.txt", "sub/deep"], "depth 2")
    everything = ["a.txt", "sub", "sub/b.txt", "sub/deep", "sub/deep/c.txt"]
    equal(await names(sandbox, depth=16), everything, "depth 16")


@case("users")
async def entries_say_what_they_are(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{PLACE}/file", "12345")
    await sandbox.commands.run(f"cd {PLACE} && chmod 640 file && mkdir dir && ln -s file link")
    found = {it.name: it for it in await sandbox.files.list(PLACE)}
    file = found["file"]
    equal((file.type, file.size, file.path), (FileType.FILE, 5, f"{PLACE}/file"), "file")
    equal((file.mode & 0o777, file.permissions, file.owner), (0o640, "-rw-r-----", "user"), "rights")
    age = datetime.now(timezone.utc) - aware(file.modified_time)
    holds(abs(age) < timedelta(minutes=1), f"it was changed {age} ago")
    equal((found["dir"].type, found["dir"].permissions[0]), (FileType.DIR, "d"), "directory")
    equal(found["link"].symlink_target, f"{PLACE}/file", "target of the link")
    equal(file.symlink_target, None, "target of the file")


@case("since-2.63")
async def a_link_is_a_link(desk):
    sandbox = await desk.sandbox()
    await sandbox.commands.run(f"mkdir -p {PLACE} && ln -s /etc {PLACE}/link")
    equal((await sandbox.files.get_info(f"{PLACE}/link")).type, FileType.SYMLINK, "type")


@case()
async def lists_do_not_follow_links(desk):
    sandbox = await desk.sandbox()
    await sandbox.commands.run(f"mkdir -p {PLACE}/real && touch {PLACE}/real/file && ln -s real {PLACE}/link")
    equal(await names(sandbox, depth=5), ["link", "real", "real/file"], "list")


@case()
async def an_empty_directory_has_no_entries(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(PLACE)
    equal(await sandbox.files.list(PLACE), [], "list")


@case()
async def what_is_not_there_cannot_be_listed(desk):
    sandbox = await desk.sandbox()
    await raises(FileMissing, sandbox.files.list("/home/user/missing"))
    await sandbox.files.write("/home/user/file", "x")
    await raises(InvalidArgumentException, sandbox.files.list("/home/user/file"))


@case()
async def one_entry_can_be_asked_for(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{PLACE}/größe", "123")
    info = await sandbox.files.get_info(f"{PLACE}/größe")
    equal((info.name, info.type, info.size), ("größe", FileType.FILE, 3), "file")
    equal((await sandbox.files.get_info(PLACE)).type, FileType.DIR, "directory")
    await raises(FileMissing, sandbox.files.get_info(f"{PLACE}/missing"))


@case()
async def exists_tells_files_directories_and_nothing(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{PLACE}/file", "x")
    for path, expected in [(f"{PLACE}/file", True), (PLACE, True), (f"{PLACE}/missing", False), ("/no/such/place", False)]:
        equal(await sandbox.files.exists(path), expected, f"exists of {path}")


@case("users")
async def a_directory_is_made_once(desk):
    sandbox = await desk.sandbox()
    equal(await sandbox.files.make_dir(f"{PLACE}/a/b"), True, "the first time")
    equal(await sandbox.files.make_dir(f"{PLACE}/a/b"), False, "the second time")
    equal((await sandbox.commands.run(f"stat -c '%U %a' {PLACE}/a/b")).stdout, "user 755\n", "owner and rights")


@case()
async def a_directory_is_not_made_over_a_file(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{PLACE}/file", "x")
    await raises(InvalidArgumentException, sandbox.files.make_dir(f"{PLACE}/file"))


@case()
async def files_and_directories_are_renamed(desk):
    sandbox = await desk.sandbox()
    await tree(sandbox)
    info = await sandbox.files.rename(f"{PLACE}/a.txt", f"{PLACE}/new.txt")
    equal((info.name, info.path, info.type), ("new.txt", f"{PLACE}/new.txt", FileType.FILE), "file")
    info = await sandbox.files.rename(f"{PLACE}/sub", f"{PLACE}/made/on/the/way")
    equal((info.path, info.type), (f"{PLACE}/made/on/the/way", FileType.DIR), "directory")
    equal(await sandbox.files.read(f"{PLACE}/made/on/the/way/deep/c.txt"), "sub/deep/c.txt", "text")
    equal(await sandbox.files.exists(f"{PLACE}/sub"), False, "exists")


@case()
async def what_is_not_there_cannot_be_renamed(desk):
    sandbox = await desk.sandbox()
    await raises(FileMissing, sandbox.files.rename("/home/user/missing", "/home/user/new"))


@case()
async def files_and_directories_are_removed(desk):
    sandbox = await desk.sandbox()
    await tree(sandbox)
    await sandbox.files.remove(f"{PLACE}/a.txt")
    await sandbox.files.remove(f"{PLACE}/sub")
    equal(await names(sandbox), [], "list")


@case()
async def removing_what_is_not_there_is_no_failure(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.remove("/home/user/missing")
    equal(await sandbox.files.exists("/home/user/missing"), False, "exists")


@case()
async def a_home_of_others_is_refused(desk):
    sandbox = await desk.sandbox()
    await raises(InvalidArgumentException, sandbox.files.list("~stranger/x"))


@case()
async def a_large_directory_is_listed_whole(desk):
    sandbox = await desk.sandbox()
    await sandbox.commands.run(f"mkdir -p {PLACE} && cd {PLACE} && touch $(seq -f 'file-%04g' 1 1500)")
    equal(await names(sandbox), [f"file-{n:04}" for n in range(1, 1501)], "list")
