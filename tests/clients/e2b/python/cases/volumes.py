"""Directories that outlive sandboxes: made, filled and read without a sandbox, and had by several."""

import io

from e2b import AuthenticationException, SandboxException

from link import VolumeException, VolumeMissing, VolumePathMissing, kind, since
from suite import case, equal, holds, raises

MOUNTED = "/mnt/data"
UNKNOWN = "v" + "0" * 19
USER = 1000


async def gathered(stream) -> bytes:
    if hasattr(stream, "__aiter__"):
        return b"".join([piece async for piece in stream])
    return b"".join(stream)


@case("volumes", "since-2.30")
async def a_volume_is_made_found_listed_and_removed(desk):
    volume = await desk.volume()
    holds(volume.volume_id and volume.token, "it has an id and a token")
    found = await desk.Volume.get_info(volume.volume_id)
    equal((found.volume_id, found.name, found.token), (volume.volume_id, volume.name, volume.token), "info")
    again = await desk.Volume.connect(volume.volume_id)
    equal((again.name, again.token), (volume.name, volume.token), "connected")
    listed = {it.volume_id: it.name for it in await desk.Volume.list()}
    equal(listed.get(volume.volume_id), volume.name, "in the list")
    equal(await desk.Volume.destroy(volume.volume_id), True, "the first time")
    equal(await desk.Volume.destroy(volume.volume_id), False, "the second time")
    await raises(VolumeMissing, desk.Volume.get_info(volume.volume_id))
    holds(volume.volume_id not in {it.volume_id for it in await desk.Volume.list()}, "it is still listed")


@case("volumes", "since-2.30")
async def a_name_is_taken_once_and_is_plain(desk):
    volume = await desk.volume()
    await raises(VolumeException, desk.Volume.create(volume.name), "409", volume.name)
    for name in ("", "a b", "../x", "x" * 200):
        await raises(VolumeException, desk.Volume.create(name), "400", "name")


@case("volumes", "users", "since-2.30")
async def files_are_written_and_read_in_every_form(desk):
    volume = await desk.volume()
    written = await volume.write_file("/note.txt", "größe 漢字")
    equal((written.name, written.path, kind(written), written.size), ("note.txt", "/note.txt", "file", 14), "written")
    equal((written.uid, written.gid), (USER, USER), "owner")
    equal(await volume.read_file("/note.txt"), "größe 漢字", "text")
    equal(bytes(await volume.read_file("note.txt", format="bytes")), "größe 漢字".encode(), "bytes")
    equal(await gathered(await volume.read_file("/note.txt", format="stream")), "größe 漢字".encode(), "stream")
    await volume.write_file("/note.txt", b"\x00\xff")
    equal(bytes(await volume.read_file("/note.txt", format="bytes")), b"\x00\xff", "written again")
    await volume.write_file("/deep/er/empty", "")
    equal(await volume.read_file("/deep/er/empty"), "", "empty")
    many = bytes(range(256)) * 20_000
    await volume.write_file("/many", io.BytesIO(many))
    equal(bytes(await volume.read_file("/many", format="bytes")) == many, True, "five million bytes")


@case("volumes", "since-2.30")
async def directories_are_made_listed_and_removed(desk):
    volume = await desk.volume()
    made = await volume.make_dir("/a")
    equal((made.name, made.path, kind(made)), ("a", "/a", "directory"), "made")
    await raises(VolumePathMissing, volume.make_dir("/x/y"))
    await raises(VolumeException, volume.make_dir("/a"), "409")
    equal((await volume.make_dir("/a/b/c", force=True)).path, "/a/b/c", "with those above")
    equal((await volume.make_dir("/a", force=True)).path, "/a", "with force it may be there")
    await volume.write_file("/a/file", "x")
    equal([it.path for it in await volume.list("/")], ["/a"], "list")
    equal(sorted(it.path for it in await volume.list("/a")), ["/a/b", "/a/file"], "list of a directory")
    equal(sorted(it.path for it in await volume.list("/", depth=3)), ["/a", "/a/b", "/a/b/c", "/a/file"], "levels")
    await volume.remove("/a")
    equal(await volume.list("/"), [], "after that")
    await raises(VolumePathMissing, volume.remove("/a"))
    await raises(VolumeException, volume.remove("/"), "400")


@case("volumes", "since-2.30")
async def files_say_what_they_are(desk):
    volume = await desk.volume()
    await volume.write_file("/file", "12345", mode=0o640)
    info = await volume.get_info("/file")
    equal((info.name, kind(info), info.size, info.mode & 0o777), ("file", "file", 5, 0o640), "file")
    holds(info.mtime.tzinfo is not None or not since("2.45"), "its time has a zone")
    equal((await volume.get_info("/")).path, "/", "the root")
    equal(kind(await volume.get_info("/")), "directory", "the root")
    equal((await volume.exists("/file"), await volume.exists("/none"), await volume.exists("/file/x")), (True, False, False), "exists")
    for call in (volume.get_info("/none"), volume.read_file("/none"), volume.list("/none"), volume.read_file("/file/x")):
        await raises(VolumePathMissing, call)
    await volume.make_dir("/dir")
    await raises(VolumeException, volume.read_file("/dir"), "400")


@case("volumes", "users", "since-2.30")
async def owners_and_bits_can_be_changed(desk):
    volume = await desk.volume()
    root = await volume.write_file("/of-root", "x", uid=0, gid=0, mode=0o600)
    equal((root.uid, root.gid, root.mode & 0o777), (0, 0, 0o600), "written for root")
    equal(await volume.read_file("/of-root"), "x", "who has the token reads everything")
    given = await volume.update_metadata("/of-root", uid=USER, gid=USER, mode=0o644)
    equal((given.uid, given.gid, given.mode & 0o777), (USER, USER, 0o644), "given to user")
    made = await volume.make_dir("/dir", mode=0o700, uid=0)
    equal((made.uid, made.gid, made.mode & 0o777), (0, USER, 0o700), "directory")
    await raises(VolumeException, volume.update_metadata("/of-root", uid=12), "400", "uid")
    await raises(VolumeException, volume.update_metadata("/of-root", mode=0o4755), "400", "mode")
    await raises(VolumePathMissing, volume.update_metadata("/none", mode=0o600))


@case("volumes", "users", "since-2.30")
async def sandboxes_have_the_same_files_one_after_the_other(desk):
    volume = await desk.volume()
    await volume.write_file("/from-outside", "hello")
    first = await desk.sandbox(volume_mounts={MOUNTED: volume.name})
    mounts = [{"name": volume.name, "path": MOUNTED}]
    equal((await first.get_info()).volume_mounts if since("2.45") else mounts, mounts, "mounts")
    equal((await first.commands.run(f"cat {MOUNTED}/from-outside")).stdout, "hello", "a file from outside")
    await first.commands.run(f"echo again >> {MOUNTED}/from-outside && mkdir {MOUNTED}/dir && echo user > {MOUNTED}/dir/user")
    await first.commands.run(f"echo root > {MOUNTED}/dir/root && stat -c %u {MOUNTED}/dir/root", user="root")
    await first.files.write(f"{MOUNTED}/uploaded", "by file")
    await first.files.write(f"{MOUNTED}/uploaded-by-root", "by root", user="root")
    equal(await volume.read_file("/from-outside"), "helloagain\n", "seen from outside while it runs")
    await first.kill()
    second = await desk.sandbox(volume_mounts={"/home/user/data": getattr(volume, "thing", volume)})
    shown = await second.commands.run("cd data && cat dir/user dir/root uploaded uploaded-by-root; stat -c %U dir/user dir/root")
    equal(shown.stdout, "user\nroot\nby fileby rootuser\nroot\n", "in another sandbox")
    equal(sorted(it.name for it in await second.files.list("/home/user/data")),
          ["dir", "from-outside", "uploaded", "uploaded-by-root"], "list")
    equal((await volume.get_info("/dir/root")).uid, 0, "owner from outside")


@case("volumes", "since-2.30")
async def a_volume_is_in_two_sandboxes_at_once_and_stays_as_long(desk):
    volume = await desk.volume()
    sandboxes = [await desk.sandbox(volume_mounts={MOUNTED: volume.name}) for _ in range(2)]
    await sandboxes[0].files.write(f"{MOUNTED}/note", "shared")
    equal(await sandboxes[1].files.read(f"{MOUNTED}/note"), "shared", "in the other")
    await raises(VolumeException, desk.Volume.destroy(volume.volume_id), "409", "mounted")
    for sandbox in sandboxes:
        await sandbox.kill()
    equal(await desk.Volume.destroy(volume.volume_id), True, "when nobody has it")


@case("volumes", "since-2.30")
async def links_lead_nowhere_outside(desk):
    volume = await desk.volume()
    sandbox = await desk.sandbox(volume_mounts={MOUNTED: volume.name})
    await sandbox.commands.run(f"cd {MOUNTED} && echo in > file && ln -s file near && ln -s /etc/passwd far && ln -s ../.. up")
    equal(await volume.read_file("/near"), "in\n", "a link within")
    equal((kind(await volume.get_info("/far")), (await volume.get_info("/far")).target), ("symlink", "/etc/passwd"), "told")
    for path in ("/far", "/up/etc/passwd"):
        await raises(VolumeException, volume.read_file(path), "400")
    await raises(VolumeException, volume.write_file("/far", "x"), "400")
    await volume.remove("/far")
    equal(await volume.exists("/far"), False, "a link can be removed")


@case("volumes", "since-2.30")
async def what_cannot_be_mounted_is_refused(desk):
    volume = await desk.volume()
    await raises(SandboxException, desk.sandbox(volume_mounts={MOUNTED: "none-" + desk.mark}), "404", "none-")
    for path in ("/etc/x", "/home/user", "relative", "/"):
        await raises(SandboxException, desk.sandbox(volume_mounts={path: volume.name}), "400", "volumeMounts")
    many = {f"/mnt/{number}": volume.name for number in range(9)}
    await raises(SandboxException, desk.sandbox(volume_mounts=many), "400", "volumeMounts")


@case("volumes", "since-2.30")
async def only_its_token_opens_a_volume(desk):
    volume = await desk.volume()
    await raises(AuthenticationException, volume.list("/", token="0" * 64))
    other = await desk.volume("other")
    await raises(AuthenticationException, volume.list("/", token=other.token))
    await raises(VolumeMissing, desk.Volume.connect(UNKNOWN))


@case("volumes", "since-2.30", "guarded")
async def tenants_have_volumes_of_their_own(desk):
    with desk.behind_tokens("left"):
        volume = await desk.volume()
    with desk.behind_tokens("right"):
        await raises(VolumeMissing, desk.Volume.get_info(volume.volume_id))
        equal(await desk.Volume.destroy(volume.volume_id), False, "destroy")
        holds(volume.volume_id not in {it.volume_id for it in await desk.Volume.list()}, "it is listed")
        await raises(SandboxException, desk.sandbox(volume_mounts={MOUNTED: volume.name}), "404")
