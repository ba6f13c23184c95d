"""One connection of the official client, of whatever version is installed beside this interpreter.

The versions differ in names and in who holds the connection. Answers are given as they are on the wire, where all
versions agree.
"""

import asyncio
import contextlib
import warnings
from importlib.metadata import version

from mcp import ClientSession
from mcp.client.sse import sse_client

try:
    import mcp_types as types
    from mcp import Client
except ImportError:
    from mcp import types

    Client = None

try:
    from mcp.client.streamable_http import streamable_http_client
except ImportError:
    from mcp.client.streamable_http import streamablehttp_client as streamable_http_client

VERSION = version("mcp")

# The newest version of the protocol that begins with a handshake, and the one that has none.
NEWEST = "2026-07-28"

# Methods that newer clients call deprecated are what older servers need.
warnings.simplefilter("ignore")


def features(transport: str) -> set[str]:
    """What this client can do over this transport."""
    found = {transport, "newest" if transport == "newest" else "handshake"}
    if transport != "sse":
        found.add("streamable")
    if Client or "elicitation_callback" in ClientSession.__init__.__code__.co_varnames:
        found.add("elicitation")
    return found


def version_spoken(transport: str) -> str:
    """The version of the protocol that this client and our server agree on."""
    if transport == "newest":
        return NEWEST
    return "2025-11-25" if Client else types.LATEST_PROTOCOL_VERSION


def wire(model) -> dict:
    """An answer as it was sent."""
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


class Ears:
    """What a client is told and asked, and what it answers then."""

    SAMPLED = "the client thought of this"
    NAME = "Ada Lovelace"
    ROOT = "file:///home/ada/engine"

    def __init__(self):
        self.notes: list[str] = []
        self.updated: list[str] = []
        self.logs: list[dict] = []
        self.asked: list[dict] = []

    def callbacks(self) -> dict:
        """Everything that a client of this version can be told or asked."""
        found = {
            "sampling_callback": self.sample,
            "list_roots_callback": self.roots,
            "logging_callback": self.log,
            "message_handler": self.note,
        }
        return found | {"elicitation_callback": self.elicit} if "elicitation" in features("http") else found

    async def sample(self, _context, params):
        self.asked.append(wire(params))
        content = {"type": "text", "text": self.SAMPLED}
        return types.CreateMessageResult.model_validate({"role": "assistant", "content": content, "model": "none"})

    async def elicit(self, _context, params):
        self.asked.append(wire(params))
        return types.ElicitResult.model_validate({"action": "accept", "content": {"name": self.NAME}})

    async def roots(self, _context):
        return types.ListRootsResult.model_validate({"roots": [{"uri": self.ROOT, "name": "engine"}]})

    async def log(self, params) -> None:
        self.logs.append(wire(params))

    async def note(self, message) -> None:
        message = getattr(message, "root", message)
        method = getattr(message, "method", None)
        if method:
            self.notes.append(method)
        if method == "notifications/resources/updated":
            self.updated.append(str(message.params.uri))


class Link:
    """A connection. `client` is the newer client, or the session of the older one; most methods have the same names."""

    def __init__(self, client, spoken: str, transport: str):
        self.client = client
        self.spoken = spoken
        self.transport = transport

    async def tools(self) -> dict[str, dict]:
        """All tools by name."""
        return {tool["name"]: tool for tool in await self.pages("list_tools", "tools")}

    async def pages(self, method: str, field: str) -> list[dict]:
        """A whole list, however many pages it has."""
        found, cursor = [], None
        while True:
            page = wire(await getattr(self.client, method)(cursor=cursor))
            found += page[field]
            cursor = page.get("nextCursor")
            if cursor is None:
                return found

    async def call(self, tool: str, arguments: dict | None = None, on_progress=None) -> dict:
        """What a tool returns."""
        return wire(await self.client.call_tool(tool, arguments or {}, progress_callback=on_progress))

    async def text(self, tool: str, **arguments) -> str:
        """The text that a tool returns, which must not fail."""
        result = await self.call(tool, arguments)
        if result.get("isError"):
            raise AssertionError(f"{tool} failed: {result}")
        return result["content"][0]["text"]

    async def read(self, uri: str) -> dict:
        """The first content of a resource."""
        return wire(await self.client.read_resource(uri))["contents"][0]

    async def prompt(self, name: str, **arguments: str) -> str:
        """The text of a prompt's first message."""
        return wire(await self.client.get_prompt(name, arguments))["messages"][0]["content"]["text"]

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        """What an argument of a prompt could be."""
        kind = types.PromptReference.model_validate({"type": "ref/prompt", "name": prompt})
        found = await self.client.complete(kind, {"name": argument, "value": value})
        return wire(found)["completion"]["values"]

    async def begin(self, tool: str) -> tuple[asyncio.Task, int | None]:
        """Calls a tool that never ends and waits until it says that it has begun."""
        begun = asyncio.Event()

        async def on_progress(*_) -> None:
            begun.set()

        request_id = None if Client else self.client._request_id
        task = asyncio.create_task(self.call(tool, on_progress=on_progress))
        await asyncio.wait_for(begun.wait(), 30)
        return task, request_id

    async def cancel(self, begun: tuple[asyncio.Task, int | None]) -> None:
        """Cancels such a call. Before 2, a client that does not wait any more says nothing of it: its user does."""
        task, request_id = begun
        if request_id is not None:
            params = {"requestId": request_id, "reason": "enough"}
            note = {"method": "notifications/cancelled", "params": params}
            await self.client.send_notification(types.ClientNotification.model_validate(note))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def listening(self, ears: Ears):
        """While this is open, changes of lists come to the ears. Without a handshake they must be asked for."""
        if self.transport != "newest":
            yield
            return
        async with self.client.listen(tools_list_changed=True, prompts_list_changed=True) as events:

            async def hear() -> None:
                async for _ in events:
                    ears.notes.append("notifications/tools/list_changed")

            task = asyncio.create_task(hear())
            yield
            task.cancel()


@contextlib.asynccontextmanager
async def connect(url: str, transport: str, ears: Ears | None = None):
    """A client that is connected and has said hello."""
    callbacks = ears.callbacks() if ears else {}
    if Client:
        target = sse_client(url) if transport == "sse" else url
        mode = "auto" if transport == "newest" else "legacy"
        async with Client(target, mode=mode, cache=None, **callbacks) as client:
            yield Link(client, client.protocol_version, transport)
        return
    way = sse_client(url) if transport == "sse" else streamable_http_client(url)
    async with way as streams, ClientSession(streams[0], streams[1], **callbacks) as session:
        hello = await session.initialize()
        yield Link(session, hello.protocolVersion, transport)
