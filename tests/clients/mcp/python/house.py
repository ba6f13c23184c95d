"""The server under test, past MCP: its REST interface and its command line."""

import asyncio
import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass

from suite import equal, holds, until

# The servers that whoever starts the drivers has defined.
SERVERS = ("time", "everything", "files", "observer", "fetch")

# The first start of each downloads what it needs.
START_LIMIT_SEC = 600.0


@dataclass
class House:
    """Where it is, and what a server in a box needs to know of package registries."""

    url: str
    owner: str
    strongbox: str
    files: str
    env: dict[str, str]
    time: list[str]
    everything: list[str]

    async def ask(self, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
        """One request by REST: status and answer."""
        return await asyncio.to_thread(self.ask_now, method, path, body)

    def ask_now(self, method: str, path: str, body: dict | None) -> tuple[int, dict]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=300) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            return error.code, json.loads(text) if text.startswith("{") else {"text": text}

    async def must(self, method: str, path: str, body: dict | None = None) -> dict:
        """The same for a request that cannot be refused."""
        status, answer = await self.ask(method, path, body)
        holds(status in (200, 201), f"{method} {path}: {status} {answer}")
        return answer

    def definition(self, command: list[str], **more: str) -> dict:
        """A server from a registry, with these variables besides."""
        return {"command": command[0], "args": command[1:], "env": self.env | more}

    async def put(self, name: str, definition: dict) -> None:
        """Defines a server of the operator, which shares its box with others, and waits until it answers."""
        given = [key if key in self.env else f"{key}={value}" for key, value in definition["env"].items()]
        variables = [part for variable in given for part in ("-e", variable)]
        await self.command("mcp", "add", name, *variables, "--", definition["command"], *definition["args"])
        await self.connected(name)

    async def remove(self, name: str) -> None:
        """Forgets a server."""
        await self.must("DELETE", f"/v1/mcp/servers/{name}")

    async def connected(self, name: str, limit_sec: float = 90.0) -> None:
        """Waits until a server answers. One that has been given up is not waited for."""

        async def look():
            shown = await self.must("GET", f"/v1/mcp/servers/{name}")
            holds(shown["status"] != "error", f"{name} failed: {shown['runtime_info']}; {await self.log(name)}")
            return shown["status"] == "connected"

        await until(look, f"{name} is connected", limit_sec)

    async def ready(self) -> None:
        """Waits for all servers of this house."""
        for name in SERVERS:
            await self.connected(name, START_LIMIT_SEC)

    async def log(self, name: str) -> list[str]:
        """What is known of a server's starts, the oldest first."""
        lines = (await self.must("GET", f"/v1/mcp/servers/{name}/logs?lines=400"))["lines"]
        return [f"{line['source']}: {line['text']}" for line in lines]

    async def sessions(self) -> list[str]:
        """The boxes that are there."""
        answer = await self.must("GET", "/v1/sessions")
        found = answer if isinstance(answer, list) else answer["sessions"]
        return sorted(session["session_id"] for session in found)

    async def command(self, *arguments: str) -> str:
        """Runs a command of `strongbox` that must end well, and returns what it writes."""
        pipe = asyncio.subprocess.PIPE
        env = os.environ | self.env | {"STRONGBOX_URL": self.owner}
        process = await asyncio.create_subprocess_exec(self.strongbox, *arguments, env=env, stdout=pipe, stderr=pipe)
        out, err = (text.decode() for text in await process.communicate())
        equal(process.returncode, 0, f"exit code of {arguments}, which said {out} {err}")
        return out
