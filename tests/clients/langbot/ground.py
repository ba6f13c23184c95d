"""Where servers come from: the one that all cases share, and servers for cases that need one of their own.

The command that starts a server comes from outside. It is `strongbox box`; whoever changes an expectation here can also
give the original (`python -m langbot_plugin.cli.__init__ box`) and see what that does.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import tempfile
import urllib.request
from dataclasses import dataclass, field

from link import INSTANCE, ActionContext, Link

START_LIMIT_SEC = 30.0


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Ground:
    """What a run works with."""

    transport: str
    command: list[str]
    directory: str
    base_config: dict
    shared: Link | None = None
    registries: dict[str, str] = field(default_factory=dict)

    def environment(self, place: str, config: dict, token: str | None, tenant: bool = True) -> dict[str, str]:
        """The environment of a server whose state is below `place`."""
        dropped = ("STRONGBOX_", "LANGBOT_", "BOX__")
        own = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        state = os.path.join(place, "state")
        os.makedirs(state, mode=0o700, exist_ok=True)
        file = os.path.join(place, "config.toml")
        with open(file, "w") as text:
            text.write(f"langbot.allowed_mount_roots = ['{self.directory}']\n")
        # The state goes with the case, so no later server could go on with its boxes.
        own |= {"STRONGBOX_STATE_DIR": state, "STRONGBOX_CONFIG": file, "STRONGBOX_ON_STOP": "destroy-all"}
        own |= {"LANGBOT_BOX_CONFIG": json.dumps(config)}
        if token:
            own["LANGBOT_BOX_CONTROL_TOKEN"] = token
        if tenant:
            own["LANGBOT_BOX_TRUSTED_INSTANCE_UUID"] = INSTANCE
        return own

    @contextlib.asynccontextmanager
    async def fresh(self, config: dict | None = None, token: str | None = None, **variables: str):
        """A server of the case's own, reached by the transport of this run. Gives the link to it."""
        async with self.serve(config, token, self.transport, **variables) as link:
            yield link

    @contextlib.asynccontextmanager
    async def serve(self, config: dict | None, token: str | None, transport: str, **variables: str):
        """The same by a chosen transport, with these variables in the server's environment."""
        with tempfile.TemporaryDirectory(prefix="sbt-", dir=self.directory) as place:
            port = free_port()
            base = f"http://127.0.0.1:{port}"
            environment = self.environment(
                place, self.base_config | (config or {}), token, tenant=ActionContext is not None
            )
            environment |= variables
            address = ["--host", "127.0.0.1", "--ws-control-port", str(port)]
            if transport == "stdio":
                link = await Link.open_stdio([*self.command, "-s", *address], environment, place, base, token)
                try:
                    yield link
                finally:
                    await link.close()
                return
            server = await Server.start([*self.command, *address], environment, place, port)
            try:
                link = await Link.open_websocket(base, token)
                link.server = server
                try:
                    yield link
                finally:
                    await link.close()
            finally:
                await server.stop()


class Server:
    """A server that listens on a port, as a child of ours."""

    def __init__(self, process, log: str):
        self.process = process
        self.log = log

    @classmethod
    async def start(cls, command: list[str], environment: dict, place: str, port: int) -> "Server":
        """Starts it and waits until it answers."""
        log = os.path.join(place, "log")
        with open(log, "wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, cwd=place, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink
            )
        server = cls(process, log)
        try:
            await asyncio.wait_for(server.listening(port), START_LIMIT_SEC)
        except BaseException:
            await server.stop(signal.SIGKILL)
            raise
        return server

    async def listening(self, port: int) -> None:
        while True:
            if self.process.returncode is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}: {self.told()}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return

    def told(self) -> str:
        """The end of its log."""
        with open(self.log, errors="replace") as log:
            return log.read()[-1500:]

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Ends it and waits for that."""
        if self.process.returncode is None:
            self.process.send_signal(how)
        try:
            return await asyncio.wait_for(self.process.wait(), 30)
        except TimeoutError:
            self.process.kill()
            raise AssertionError(f"the server did not end: {self.told()}")


async def get(url: str) -> tuple[int, str, str]:
    """A plain GET: status, content type, body."""

    def ask():
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=15) as answer:
                return answer.status, answer.headers.get("content-type", ""), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers.get("content-type", ""), error.read().decode()

    return await asyncio.to_thread(ask)
