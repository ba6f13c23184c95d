"""A real MCP client session through the relay, against a server that runs inside the box."""

import asyncio
import contextlib
import os
import shutil
import warnings

import anyio
from mcp import ClientSession, types
from mcp.shared.message import SessionMessage

from relay import attach
from suite import case, equal, holds

PROGRAM = os.path.join(os.path.dirname(__file__), "..", "programs", "mcp_server.py")


@contextlib.asynccontextmanager
async def streams(box, session: str, process_id: str = "default"):
    """What an MCP session reads and writes: every frame is exactly one message, as LangBot has it."""
    incoming_writer, incoming = anyio.create_memory_object_stream(0)
    outgoing, outgoing_reader = anyio.create_memory_object_stream(0)
    # The size that LangBot's transport takes.
    async with attach(box, session, process_id, max_size=2**20) as socket:

        async def read() -> None:
            async with incoming_writer:
                async for text in socket:
                    await incoming_writer.send(SessionMessage(types.JSONRPCMessage.model_validate_json(text)))

        async def write() -> None:
            async with outgoing_reader:
                async for message in outgoing_reader:
                    await socket.send(message.message.model_dump_json(by_alias=True, exclude_none=True))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            yield incoming, outgoing
            tasks.cancel_scope.cancel()


def transport(box, session: str, process_id: str = "default"):
    """Without credentials to send, the transport that comes with the `mcp` package; LangBot does the same."""
    if box.context is not None:
        return streams(box, session, process_id)
    from mcp.client.websocket import websocket_client

    warnings.simplefilter("ignore")
    return websocket_client(box.relay_url(session, process_id))


@contextlib.asynccontextmanager
async def client(box, ground, on_log=None):
    """An MCP session with the server in the box, initialised."""
    place = os.path.join(ground.directory, box.name("mcp"))
    os.makedirs(place, exist_ok=True)
    shutil.copy(PROGRAM, place)
    await box.create_session(box.spec(host_path=place, workdir="/workspace"))
    spec = box.process_spec("python3", "mcp_server.py", cwd="/workspace")
    await box.start_managed_process(box.name("s"), spec)
    async with transport(box, "s") as (reading, writing):
        async with ClientSession(reading, writing, logging_callback=on_log) as session:
            hello = await session.initialize()
            equal(hello.serverInfo.name, "small", "the server's name")
            yield session


async def text_of(session, tool: str, **given) -> str:
    result = await session.call_tool(tool, given)
    holds(not result.isError, f"{tool} failed: {result}")
    return result.content[0].text


@case()
async def tools_are_listed_and_called(box, ground):
    async with client(box, ground) as session:
        tools = await session.list_tools()
        equal({tool.name for tool in tools.tools}, {"echo", "large", "burst", "slow", "write"}, "tools")
        equal(await text_of(session, "echo", text="hello"), "hello", "answer")


@case()
async def a_result_of_300_kilobytes_comes_whole(box, ground):
    async with client(box, ground) as session:
        equal(await text_of(session, "large", size=300_000), "漢" * 100_000, "answer")


@case()
async def a_burst_of_notifications_comes_one_by_one(box, ground):
    notes = []

    async def on_log(params) -> None:
        notes.append(params.data)

    async with client(box, ground, on_log) as session:
        equal(await text_of(session, "burst", count=500), "500 sent", "answer")
        equal(notes, [f"note {number} ü" for number in range(500)], "notifications")


@case()
async def parallel_calls_find_their_answers(box, ground):
    async with client(box, ground) as session:
        calls = [text_of(session, "slow", seconds=(7 * n % 10) / 50, text=f"answer {n}") for n in range(30)]
        equal(await asyncio.gather(*calls), [f"answer {n}" for n in range(30)], "answers")


@case()
async def text_of_every_plane_survives_the_round_trip(box, ground):
    text = 'größe 漢字 🙂 \u202e\ufeff \\n " \t' + "é🙂漢" * 30_000
    async with client(box, ground) as session:
        equal(await text_of(session, "echo", text=text), text, "text")


@case()
async def what_a_tool_writes_is_on_the_mounted_directory(box, ground):
    async with client(box, ground) as session:
        await text_of(session, "write", path="/workspace/made", text="by the tool")
    with open(os.path.join(ground.directory, box.name("mcp"), "made")) as file:
        equal(file.read(), "by the tool", "the file")


@case()
async def a_new_session_can_follow_on_the_same_process(box, ground):
    async with client(box, ground) as session:
        equal(await text_of(session, "echo", text="1"), "1", "answer")
    async with transport(box, "s") as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        equal(await text_of(session, "echo", text="2"), "2", "answer")
