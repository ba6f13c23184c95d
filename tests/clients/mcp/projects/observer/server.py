"""A server made with the official Python package, for what no reference server shows: whether a cancelled call was
cancelled here too, and what the client answers when a tool asks for its roots.
"""

import anyio
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("observer")
cancelled = 0


@server.tool()
async def wait(context: Context) -> str:
    """Says by its progress that it has begun, and ends only when it is cancelled."""
    global cancelled
    await context.report_progress(1, 1)
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        cancelled += 1
        raise
    return "never"


@server.tool()
def cancellations() -> str:
    """How many calls were cancelled."""
    return str(cancelled)


@server.tool()
def large(characters: int) -> str:
    """An answer of that many characters."""
    return "x" * characters


@server.tool()
async def roots(context: Context) -> str:
    """The roots of the client, as it names them now."""
    answer = await context.session.list_roots()
    return "\n".join(str(root.uri) for root in answer.roots)


@server.tool()
async def say(level: str, text: str, context: Context) -> str:
    """Logs something."""
    await context.log(level, text)
    return "said"


if __name__ == "__main__":
    server.run()
