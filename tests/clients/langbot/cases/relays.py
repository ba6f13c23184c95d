"""The relay: a process's standard streams over a WebSocket."""

import asyncio
import json

from relay import attach, frames, lines_until_close, next_frame, refusal
from suite import case, equal, until

LINES = "i=0; while [ $i -lt 2000 ]; do echo line-$i; i=$((i+1)); done"


async def attached(box, session: str = "s", process_id: str = "default") -> bool:
    return (await box.get_managed_process(box.name(session), process_id)).attached


async def numbered(socket, numbers: range) -> None:
    """Reads long lines that begin with their number; the first that is missing ends it."""
    for number in numbers:
        line = (await next_frame(socket)).removesuffix("\n")
        equal(line, f"{number} {'x' * 100_000}", f"line {number}")


@case()
async def lines_go_in_and_come_out_one_frame_each(box, ground):
    await box.start("s", "cat")
    async with attach(box, "s") as socket:
        equal(socket.subprotocol, "mcp", "subprotocol")
        for line in ["hello", "", "größe 漢字 🙂", "  blanks kept  ", '{"a": 1}']:
            await socket.send(line)
            equal((await next_frame(socket)).removesuffix("\n"), line, "line")
        await socket.send("one\ntwo\n\nthree")
        equal([line.removesuffix("\n") for line in await frames(socket, 4)], ["one", "two", "", "three"], "lines")


@case()
async def no_subprotocol_is_fine(box, ground):
    await box.start("s", "cat")
    async with attach(box, "s", subprotocols=None) as socket:
        equal(socket.subprotocol, None, "subprotocol")
        await socket.send("x")
        equal((await next_frame(socket)).strip(), "x", "line")


@case()
async def the_short_address_means_the_default_process(box, ground):
    await box.start("s", "cat")
    url = box.relay_url("s").replace("/managed-process/default/ws", "/managed-process/ws")
    async with attach(box, "s", url=url) as socket:
        await socket.send("x")
        equal((await next_frame(socket)).strip(), "x", "line")


@case()
async def a_line_of_a_mebibyte_goes_both_ways_whole(box, ground):
    await box.start("s", "cat")
    async with attach(box, "s") as socket:
        line = "ü" * 500_000
        await socket.send(line)
        equal((await next_frame(socket)).removesuffix("\n"), line, "line")


@case()
async def text_cut_inside_a_character_is_joined(box, ground):
    script = r"printf '\346\274'; sleep 0.3; printf '\242\n'; printf 'half'; sleep 0.3; echo ' line'; exec sleep 60"
    await box.start("s", "sh", "-c", script)
    async with attach(box, "s") as socket:
        equal([line.removesuffix("\n") for line in await frames(socket, 2)], ["漢", "half line"], "lines")


@case()
async def output_made_before_anybody_attached_is_delivered(box, ground):
    await box.start("s", "sh", "-c", "echo early; echo bird; exec cat")
    await asyncio.sleep(0.2)
    async with attach(box, "s") as socket:
        equal([line.strip() for line in await frames(socket, 2)], ["early", "bird"], "lines")


@case()
async def the_end_of_a_process_closes_with_1000_after_its_last_words(box, ground):
    await box.start("s", "sh", "-c", "read x; echo got $x; printf unfinished")
    async with attach(box, "s") as socket:
        await socket.send("it")
        lines = await lines_until_close(socket)
    equal([line.removesuffix("\n") for line in lines], ["got it", "unfinished"], "lines")


@case()
async def stopping_and_deleting_close_with_1000(box, ground):
    await box.start("s", "cat", process_id="a")
    async with attach(box, "s", "a") as socket:
        await socket.send("x")
        await next_frame(socket)
        await box.stop_managed_process(box.name("s"), "a")
        equal(await lines_until_close(socket), [], "frames after stop")
    await box.start("s", "cat", process_id="b")
    async with attach(box, "s", "b") as socket:
        await socket.send("x")
        await next_frame(socket)
        await box.delete_session(box.name("s"))
        equal(await lines_until_close(socket), [], "frames after delete")


@case()
async def output_between_two_attachments_is_not_lost(box, ground):
    wait = "while [ ! -e /tmp/go ]; do sleep 0.05; done"
    await box.start("s", "sh", "-c", f"echo first; {wait}; {LINES}; exec cat")
    async with attach(box, "s") as socket:
        equal((await next_frame(socket)).strip(), "first", "line")
    await box.run("touch /tmp/go")
    async with attach(box, "s") as socket:
        equal([line.strip() for line in await frames(socket, 2000)], [f"line-{n}" for n in range(2000)], "lines")
        await socket.send("mark")
        equal((await next_frame(socket)).strip(), "mark", "line")


@case()
async def a_client_that_leaves_in_a_flood_harms_nobody(box, ground):
    await box.start("s", "sh", "-c", f"read go; {LINES}; exec cat")
    async with attach(box, "s") as socket:
        await socket.send("go")
        await frames(socket, 5)
    async with attach(box, "s") as socket:
        await socket.send("mark")
        rest = []
        while not rest or rest[-1] != "mark":
            rest.append((await next_frame(socket)).strip())
    numbers = [int(line.removeprefix("line-")) for line in rest[:-1]]
    equal(numbers, list(range(2000 - len(numbers), 2000)), "lines without a gap")


@case()
async def a_second_client_waits_until_the_first_has_gone(box, ground):
    await box.start("s", "cat")
    async with attach(box, "s") as first:
        await first.send("one")
        equal((await next_frame(first)).strip(), "one", "the first client's line")
        equal(await attached(box), True, "attached")
        async with attach(box, "s") as second:
            await second.send("queued")
            try:
                frame = await asyncio.wait_for(second.recv(), 0.5)
                raise AssertionError(f"the second client was served: {frame!r}")
            except TimeoutError:
                pass
            await first.send("still mine")
            equal((await next_frame(first)).strip(), "still mine", "the first client's line")
            await first.close()
            equal((await next_frame(second)).strip(), "queued", "the second client's line")

    async def is_free():
        return not await attached(box)

    await until(is_free, "nobody is attached")


@case()
async def binary_frames_are_ignored(box, ground):
    await box.start("s", "cat")
    async with attach(box, "s") as socket:
        await socket.send(b"binary")
        await socket.send("text")
        equal((await next_frame(socket)).strip(), "text", "line")


@case()
async def what_cannot_be_attached_is_refused_before_the_upgrade(box, ground):
    await box.create_session(box.spec())
    table = [
        ("no", "default", "BoxSessionNotFoundError", f"session {box.physical('no')} not found"),
        (
            "s",
            "p",
            "BoxManagedProcessNotFoundError",
            f"session {box.physical('s')} has no managed process with process_id=p",
        ),
    ]
    for session, process_id, code, message in table:
        status, body = await refusal(box, session, process_id)
        equal((status, json.loads(body)), (400, {"error": {"code": code, "message": message}}), "refusal")
    await box.start("s", "true")
    from cases.processes import ended

    await ended(box)
    status, body = await refusal(box, "s")
    equal((status, json.loads(body)["error"]["code"]), (400, "BoxManagedProcessConflictError"), "refusal")


@case("tenancy")
async def credentials_of_the_relay_are_checked(box, ground):
    await box.start("s", "cat")
    right = box.relay_headers()
    wrong = [
        right | {"X-LangBot-Instance-Id": "another"},
        right | {"X-LangBot-Workspace-Id": "another"},
        right | {"X-LangBot-Placement-Generation": "2"},
        right | {"X-LangBot-Placement-Generation": "01"},
        {key: value for key, value in right.items() if "Workspace" not in key},
    ]
    for headers in wrong:
        status, body = await refusal(box, "s", headers=headers)
        equal((status, body), (401, "Unauthorized"), f"refusal of {headers}")
    other = box.link.box()
    await other.get_status()
    status, _ = await refusal(box, "s", headers=other.relay_headers())
    equal(status, 401, "refusal of another workspace")


@case()
async def traffic_counts_as_use_of_the_session(box, ground):
    await box.start("s", "cat")
    async with attach(box, "s") as socket:
        before = (await box.get_session(box.name("s")))["last_used_at"]
        await socket.send("x")
        await next_frame(socket)

        async def moved():
            return (await box.get_session(box.name("s")))["last_used_at"] > before

        await until(moved, "the time of last use has moved")


@case()
async def a_flood_that_nobody_read_yet_comes_whole(box, ground):
    """More than any pipe holds, written before somebody attached."""
    script = "for n in range(200): print(n, 'x' * 100_000)\nprint('end', flush=True)\ninput()"
    await box.start("s", "python3", "-c", script)
    await asyncio.sleep(1)
    async with attach(box, "s") as socket:
        await numbered(socket, range(200))
        equal((await next_frame(socket)).strip(), "end", "the last line")
        await socket.send("go")
        equal(await lines_until_close(socket), [], "lines after the end")


@case()
async def a_slow_reader_loses_nothing(box, ground):
    """What a process says waits for its reader; as much as this is kept."""
    script = "input()\nfor n in range(600): print(n, 'x' * 100_000)\nprint('end', flush=True)\ninput()"
    await box.start("s", "python3", "-c", script)
    async with attach(box, "s") as socket:
        await socket.send("go")
        await numbered(socket, range(1))
        await asyncio.sleep(3)
        await numbered(socket, range(1, 600))
        equal((await next_frame(socket)).strip(), "end", "the last line")
