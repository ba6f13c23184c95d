"""One connection of a real LangBot client: the SDK's own controllers, handler and `ActionRPCBoxClient`.

The versions differ in one thing that every call shows: since 0.5 a call carries the workspace that it is for. `Box`
hides that.
"""

import asyncio
import contextlib
import functools
import inspect
import logging
import uuid
from importlib.metadata import version as installed_version
from types import SimpleNamespace

from langbot_plugin.box import errors, models
from langbot_plugin.box.client import ActionRPCBoxClient
from langbot_plugin.runtime.io.controllers.stdio.client import StdioClientController
from langbot_plugin.runtime.io.controllers.ws.client import WebSocketClientController
from langbot_plugin.runtime.io.handler import Handler

try:
    from langbot_plugin.entities.io.context import ActionContext
except ImportError:
    ActionContext = None

VERSION = installed_version("langbot-plugin")
# Every connection of a run comes from one LangBot: a server knows only one.
INSTANCE = "strongbox-client-tests"

LOGGER = logging.getLogger("langbot-client")


def features() -> set[str]:
    """What this version of the SDK can ask for."""
    found = {"tenancy"} if ActionContext else {"legacy"}
    for method, feature in [
        ("list_skills", "skills"),
        ("upsert_sandbox_admission_grant", "admission"),
        ("verify_shared_workspace", "shared-workspace"),
        ("get_storage_analysis", "storage"),
    ]:
        if hasattr(ActionRPCBoxClient, method):
            found.add(feature)
    if hasattr(errors, "BoxCapacityExceededError"):
        found.add("capacity")
    if "memory_mb" in models.BoxManagedProcessSpec.model_fields:
        found.add("process-memory")
    return found


def headers(token: str | None, instance: str = INSTANCE) -> dict[str, str]:
    """What a client of this version says of itself when it opens a socket."""
    if ActionContext is None:
        return {}
    own = {"X-LangBot-Instance-Id": instance}
    return own | {"X-LangBot-Box-Control-Token": token} if token else own


class Link:
    """A connection, open from `open_*` until `close`."""

    def __init__(self, relay_base: str, token: str | None, instance: str = INSTANCE):
        self.relay_base = relay_base
        self.token = token
        self.instance = instance
        self.client = ActionRPCBoxClient(logger=LOGGER)
        self.handler: Handler | None = None
        self.controller = None
        self.task: asyncio.Task | None = None
        self.failure: Exception | None = None
        self.ready = asyncio.Event()
        self.closed = asyncio.Event()

    @classmethod
    async def open_websocket(cls, relay_base: str, token: str | None = None, instance: str = INSTANCE) -> "Link":
        """Connects as LangBot does when an endpoint is configured."""
        link = cls(relay_base, token, instance)
        own = {"additional_headers": headers(token, instance)} if ActionContext else {}
        url = relay_base.replace("http", "ws", 1) + "/rpc/ws"
        link.controller = WebSocketClientController(url, link.connection_failed, **own)
        return await link.start()

    @classmethod
    async def open_stdio(cls, command: list[str], environment: dict, directory: str, relay_base: str, token) -> "Link":
        """Forks the server as LangBot does when no endpoint is configured."""
        link = cls(relay_base, token)
        link.controller = StdioClientController(command[0], command[1:], environment, directory)
        return await link.start()

    async def start(self) -> "Link":
        self.task = asyncio.create_task(self.run())
        await asyncio.wait_for(self.ready.wait(), 30)
        if self.failure:
            raise self.failure
        await self.client_call("ping")
        return self

    async def run(self) -> None:
        try:
            await self.controller.run(self.connected)
        except Exception as error:
            self.failure = error
        finally:
            self.ready.set()
            self.closed.set()

    async def connected(self, connection) -> None:
        self.handler = Handler.__new__(Handler)
        Handler.__init__(self.handler, connection)
        self.client.set_handler(self.handler)
        self.ready.set()
        await self.handler.run()

    async def connection_failed(self, _controller, error) -> None:
        self.failure = error or ConnectionError("no connection")

    async def client_call(self, name: str) -> None:
        """`ping` is the only action that LangBot sends past the client class."""
        await self.handler.call_action(SimpleNamespace(value=f"__{name}"), {}, timeout=15)

    @property
    def process(self):
        """The forked server, over stdio."""
        return getattr(self.controller, "process", None)

    def box(self, workspace: str | None = None, generation: int = 1) -> "Box":
        """The client as one workspace sees it; without a name, as a workspace of its own."""
        return Box(self, workspace or f"workspace-{uuid.uuid4().hex[:12]}", generation)

    async def close(self) -> None:
        """Ends the connection, and with it a forked server."""
        process = self.process
        if self.handler is not None:
            try:
                await asyncio.wait_for(self.handler.conn.close(), 10)
            except Exception as error:
                LOGGER.debug("closing: %s", error)
        if process is not None:
            if process.stdin is not None and not process.stdin.is_closing():
                process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.kill()
                raise AssertionError("the server did not end when its standard input did")
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Box:
    """The methods of the real client, called for one workspace."""

    def __init__(self, link: Link, workspace: str, generation: int):
        self.link = link
        self.workspace = workspace
        self.prefix = uuid.uuid4().hex[:8]
        self.context = None
        if ActionContext:
            self.context = ActionContext(
                instance_uuid=link.instance, workspace_uuid=workspace, placement_generation=generation
            )

    def __getattr__(self, name: str):
        method = getattr(self.link.client, name)
        if self.context is not None and "action_context" in inspect.signature(method).parameters:
            return functools.partial(method, action_context=self.context)
        return method

    def name(self, label: str) -> str:
        """A session id that nobody else uses: clients without tenancy share one list of sessions."""
        return f"{self.prefix}-{label}"

    def spec(self, cmd: str = "", session: str = "s", **fields) -> models.BoxSpec:
        """A spec for one of this box's sessions."""
        return models.BoxSpec(**{"cmd": cmd, "session_id": self.name(session), "workdir": "/tmp"} | fields)

    async def run(self, cmd: str, session: str = "s", **fields):
        """Runs a command in one of this box's sessions."""
        return await self.execute(self.spec(cmd, session, **fields))

    def process_spec(self, command: str, *args: str, **fields) -> models.BoxManagedProcessSpec:
        """A process that works in /tmp."""
        return models.BoxManagedProcessSpec(**{"command": command, "args": list(args), "cwd": "/tmp"} | fields)

    async def start(self, session: str, command: str, *args: str, **fields):
        """Creates a session if need be and starts a process in it."""
        await self.create_session(self.spec(session=session))
        return await self.start_managed_process(self.name(session), self.process_spec(command, *args, **fields))

    async def raw(self, action: str, data: dict, timeout: float = 15.0, context="own") -> dict:
        """An action past the client class, for what no method of it sends."""
        own = {}
        if self.context is not None:
            own["action_context"] = self.context if context == "own" else context
        return await self.link.handler.call_action(SimpleNamespace(value=action), data, timeout=timeout, **own)

    async def exec_raw(self, **fields) -> dict:
        """`box_exec` with exactly these fields."""
        return await self.raw("box_exec", fields, timeout=60)

    def physical(self, session: str) -> str:
        """The id that error texts and relay addresses carry."""
        if self.context is None:
            return self.name(session)
        from langbot_plugin.box.tenancy import namespace_session_id

        return namespace_session_id(self.context, self.name(session))

    def relay_url(self, session: str, process_id: str = "default") -> str:
        """Where a process of a session is attached, by the real client's own formula."""
        return self.get_managed_process_websocket_url(self.name(session), self.link.relay_base, process_id)

    def relay_headers(self) -> dict[str, str]:
        """What LangBot sends when it attaches."""
        if self.context is None:
            return {}
        return headers(self.link.token, self.link.instance) | {
            "X-LangBot-Workspace-Id": self.workspace,
            "X-LangBot-Placement-Generation": str(self.context.placement_generation),
        }

    async def clear(self) -> None:
        """Deletes the sessions of this box."""
        for session in await self.get_sessions():
            if self.context is not None or session["session_id"].startswith(self.prefix):
                # One that goes by itself in this moment is as good as deleted.
                with contextlib.suppress(errors.BoxSessionNotFoundError):
                    await self.delete_session(session["session_id"])
