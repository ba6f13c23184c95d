"""Contents of files: written and read, whole and piece by piece."""

import hashlib
import io
import os

from e2b import AuthenticationException, InvalidArgumentException

from link import FileMissing, kind
from streams import whole
from suite import case, equal, holds, raises

HOME = "/home/user"


@case()
async def text_is_written_and_read(desk):
    sandbox = await desk.sandbox()
    info = await sandbox.files.write(f"{HOME}/note.txt", "größe 漢字 🙂\r\n")
    equal((info.name, info.path, kind(info)), ("note.txt", f"{HOME}/note.txt", "file"), "what was written")
    equal(await sandbox.files.read(f"{HOME}/note.txt"), "größe 漢字 🙂\r\n", "text")
    equal((await sandbox.commands.run("wc -c < note.txt")).stdout.strip(), "21", "bytes")


@case()
async def bytes_are_written_and_read(desk):
    sandbox = await desk.sandbox()
    data = bytes(range(256)) * 40
    await sandbox.files.write(f"{HOME}/data", data)
    found = await sandbox.files.read(f"{HOME}/data", format="bytes")
    equal(bytes(found), data, "bytes")


@case()
async def a_file_is_read_piece_by_piece(desk):
    sandbox = await desk.sandbox()
    data = os.urandom(300_000)
    await sandbox.files.write(f"{HOME}/data", data)
    equal(await whole(await sandbox.files.read(f"{HOME}/data", format="stream")), data, "bytes")


@case()
async def a_file_is_written_from_an_open_one(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{HOME}/binary", io.BytesIO(b"\x00\x01\x02"))
    await sandbox.files.write(f"{HOME}/text", io.StringIO("größe"))
    equal(bytes(await sandbox.files.read(f"{HOME}/binary", format="bytes")), b"\x00\x01\x02", "bytes")
    equal(await sandbox.files.read(f"{HOME}/text"), "größe", "text")


@case("since-2.63", "sync")
async def a_file_is_written_piece_by_piece(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{HOME}/data", (bytes([n]) * 10_000 for n in range(20)))
    found = bytes(await sandbox.files.read(f"{HOME}/data", format="bytes"))
    equal(found, b"".join(bytes([n]) * 10_000 for n in range(20)), "bytes")


@case()
async def an_empty_file_is_a_file(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{HOME}/empty", "")
    equal(await sandbox.files.exists(f"{HOME}/empty"), True, "exists")
    equal(await sandbox.files.read(f"{HOME}/empty"), "", "text")
    equal(bytes(await sandbox.files.read(f"{HOME}/empty", format="bytes")), b"", "bytes")
    equal((await sandbox.files.get_info(f"{HOME}/empty")).size, 0, "size")


@case(limit_sec=120)
async def five_megabytes_go_and_come_unchanged(desk):
    sandbox = await desk.sandbox()
    data = os.urandom(5 * 1024 * 1024)
    await sandbox.files.write(f"{HOME}/large", data)
    told = (await sandbox.commands.run("sha256sum large | cut -d' ' -f1")).stdout.strip()
    equal(told, hashlib.sha256(data).hexdigest(), "sum inside")
    found = bytes(await sandbox.files.read(f"{HOME}/large", format="bytes"))
    equal(hashlib.sha256(found).hexdigest(), told, "sum outside")


@case()
async def writing_again_replaces_all_of_a_file(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{HOME}/note", "a long text that was there before")
    await sandbox.files.write(f"{HOME}/note", "short")
    equal(await sandbox.files.read(f"{HOME}/note"), "short", "text")


@case("users")
async def directories_on_the_way_are_made(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{HOME}/a/b/c/note", "deep")
    equal(await sandbox.files.read(f"{HOME}/a/b/c/note"), "deep", "text")
    equal((await sandbox.commands.run("stat -c %U a a/b/c a/b/c/note")).stdout, "user\n" * 3, "owners")


@case()
async def names_of_all_scripts_can_be_written(desk):
    sandbox = await desk.sandbox()
    for name in ("größe 漢字 🙂.txt", "with 'quotes\" & more?.txt", "100% sure+#.txt", "-dash"):
        await sandbox.files.write(f"{HOME}/{name}", name)
        equal(await sandbox.files.read(f"{HOME}/{name}"), name, f"text of {name}")


@case()
async def a_path_may_begin_at_home(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write("relative", "1")
    await sandbox.files.write("~/tilde", "2")
    equal(await sandbox.files.read(f"{HOME}/relative"), "1", "relative")
    equal(await sandbox.files.read(f"{HOME}/tilde"), "2", "tilde")


@case()
async def several_files_are_written_at_once(desk):
    sandbox = await desk.sandbox()
    entries = [
        {"path": f"{HOME}/one.txt", "data": "1"},
        {"path": f"{HOME}/sub dir/größe.bin", "data": b"\x00\x02"},
        {"path": "/tmp/three", "data": io.BytesIO(b"3")},
    ]
    written = await sandbox.files.write_files(entries)
    equal({it.path for it in written}, {it["path"] for it in entries}, "paths")
    equal(await sandbox.files.read(f"{HOME}/one.txt"), "1", "first")
    equal(bytes(await sandbox.files.read(f"{HOME}/sub dir/größe.bin", format="bytes")), b"\x00\x02", "second")
    equal(await sandbox.files.read("/tmp/three"), "3", "third")


@case("users")
async def many_files_small_and_large_are_written_at_once(desk):
    sandbox = await desk.sandbox()
    small = {f"{HOME}/many/{n % 7}/{n}": f"{n}\n" * (n % 50) for n in range(700)}
    large = {f"{HOME}/many/large-{n}": chr(97 + n) * 300_000 for n in range(2)}
    others = {"/srv/of root": "root's", "/srv/second": "too", "/open/one": "1", "/open/two": "2", f"{HOME}/last": ""}
    contents = small | large | others
    await sandbox.commands.run("mkdir -m 777 /open", user="root")
    written = await sandbox.files.write_files([{"path": path, "data": data} for path, data in contents.items()])
    equal([it.path for it in written], list(contents), "paths, in their order")
    found = await sandbox.commands.run("find many last -type f | wc -l; cat many/*/* | wc -c; stat -c %U many/3/3")
    expected = [len(small) + len(large) + 1, sum(map(len, small.values()))]
    equal(found.stdout.split()[:2], [str(it) for it in expected], "files and bytes")
    for path in (f"{HOME}/many/0/7", *large, *others):
        equal(await sandbox.files.read(path), contents[path], path)


@case()
async def many_small_files_take_few_processes(desk):
    sandbox = await desk.sandbox()

    async def count():
        # Each process in a sandbox gets the next number, and so does each file operation.
        return int((await sandbox.commands.run("echo $$")).stdout)

    before = await count()
    await sandbox.files.write_files([{"path": f"{HOME}/few/{n}", "data": f"{n}"} for n in range(500)])
    taken = await count() - before
    holds(0 < taken < 100, f"500 files took {taken} processes")


@case()
async def no_files_at_once_are_no_failure(desk):
    sandbox = await desk.sandbox()
    equal(await sandbox.files.write_files([]), [], "written")


@case("users")
async def a_file_belongs_to_who_writes_it(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write("/tmp/users", "u")
    await sandbox.files.write("/tmp/roots", "r", user="root")
    equal((await sandbox.commands.run("stat -c %U /tmp/users /tmp/roots")).stdout, "user\nroot\n", "owners")
    await sandbox.files.write("note", "at home", user="root")
    equal(await sandbox.files.read("/root/note", user="root"), "at home", "text")


@case()
async def an_unknown_user_has_no_files(desk):
    sandbox = await desk.sandbox()
    await raises(AuthenticationException, sandbox.files.write("/tmp/x", "x", user="stranger"))
    await raises(AuthenticationException, sandbox.files.read("/etc/hostname", user="stranger"))


@case()
async def a_missing_file_is_not_found(desk):
    sandbox = await desk.sandbox()
    await raises(FileMissing, sandbox.files.read(f"{HOME}/missing"))
    await raises(FileMissing, sandbox.files.read(f"{HOME}/missing", format="bytes"))
    await raises(FileMissing, sandbox.files.read(f"{HOME}/missing", format="stream"))


@case()
async def a_directory_is_not_read_as_a_file(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(f"{HOME}/dir")
    await raises(InvalidArgumentException, sandbox.files.read(f"{HOME}/dir"))


@case()
async def a_directory_is_not_written_as_a_file(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.make_dir(f"{HOME}/dir")
    await raises(InvalidArgumentException, sandbox.files.write(f"{HOME}/dir", "x"))


@case("since-2.30")
async def files_can_travel_compressed(desk):
    sandbox = await desk.sandbox()
    text = "again and again\n" * 20_000
    await sandbox.files.write(f"{HOME}/note", text, gzip=True)
    equal((await sandbox.commands.run("wc -c < note")).stdout.strip(), str(len(text)), "bytes")
    equal(await sandbox.files.read(f"{HOME}/note", gzip=True), text, "text")


@case("since-2.30")
async def files_can_travel_as_one_body_or_as_a_form(desk):
    sandbox = await desk.sandbox()
    for octets in (True, False):
        await sandbox.files.write(f"{HOME}/note", f"octets {octets}", use_octet_stream=octets)
        equal(await sandbox.files.read(f"{HOME}/note"), f"octets {octets}", "text")


@case("since-2.30")
async def a_file_keeps_its_metadata_until_it_is_written_again(desk):
    sandbox = await desk.sandbox()
    written = await sandbox.files.write(f"{HOME}/note", "1", metadata={"author": "Ada", "kind": "draft"})
    equal(written.metadata, {"author": "Ada", "kind": "draft"}, "metadata when written")
    equal((await sandbox.files.get_info(f"{HOME}/note")).metadata, {"author": "Ada", "kind": "draft"}, "metadata")
    await sandbox.files.write(f"{HOME}/note", "2", metadata={"author": "Bob"})
    equal((await sandbox.files.get_info(f"{HOME}/note")).metadata, {"author": "Bob"}, "metadata after a second write")
    await sandbox.files.write(f"{HOME}/note", "3")
    holds(not (await sandbox.files.get_info(f"{HOME}/note")).metadata, "no metadata after a third write")


@case("since-2.30")
async def metadata_goes_with_a_file_that_is_renamed(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(f"{HOME}/note", "1", metadata={"author": "Ada"})
    equal((await sandbox.files.rename(f"{HOME}/note", f"{HOME}/moved")).metadata, {"author": "Ada"}, "metadata")
    listed = await sandbox.files.list(HOME)
    equal([it.metadata for it in listed if it.name == "moved"], [{"author": "Ada"}], "metadata in a list")
