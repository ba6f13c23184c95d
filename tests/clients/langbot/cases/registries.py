"""MCP servers from PyPI in one session for all of them, as LangBot runs them: installed by a command, each a process."""

import asyncio
import json

from mcp import ClientSession

from cases.mcp import text_of, transport
from suite import case, equal, holds

SHARED = "mcp-shared"
PACKAGE = "mcp-server-time==2026.10.19"
INSTALL = f"python3 -m venv /tmp/time && /tmp/time/bin/python -m pip install --quiet {PACKAGE}"


async def prepared(box, ground) -> None:
    """The session of all servers, with the package in it."""
    fields = {"session": SHARED, "network": "on", "read_only_rootfs": False, "env": ground.registries}
    await box.create_session(box.spec(**fields))
    result = await box.run(INSTALL, timeout_sec=240, **fields)
    equal(result.exit_code, 0, f"the exit code of an installation that said {result.stdout} {result.stderr}")


async def talk(box, process_id: str, zone: str) -> None:
    """A whole conversation with one server, as the loader of LangBot has it."""
    async with transport(box, SHARED, process_id) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        tools = (await session.list_tools()).tools
        equal({tool.name for tool in tools}, {"get_current_time", "convert_time"}, "tools")
        told = json.loads(await text_of(session, "get_current_time", timezone=zone))
        equal(told["timezone"], zone, "time zone")


@case("registries", limit_sec=300.0)
async def servers_from_pypi_share_a_session_and_are_reached_through_the_relay(box, ground):
    await prepared(box, ground)
    servers = {"time-one": "UTC", "time-two": "Asia/Tokyo"}
    for process_id in servers:
        spec = box.process_spec("/tmp/time/bin/python", "-m", "mcp_server_time", process_id=process_id)
        await box.start_managed_process(box.name(SHARED), spec)
    await asyncio.gather(*(talk(box, process_id, zone) for process_id, zone in servers.items()))
    # LangBot comes back to the same processes when it has lost a connection.
    await asyncio.gather(*(talk(box, process_id, zone) for process_id, zone in servers.items()))
    await box.stop_managed_process(box.name(SHARED), "time-one")
    await talk(box, "time-two", "UTC")
    holds((await box.get_session(box.name(SHARED))) is not None, "the session is still there")
