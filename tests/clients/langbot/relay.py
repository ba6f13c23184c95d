"""A managed process, attached with the `websockets` client that LangBot uses."""

import asyncio

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from suite import equal

FRAME_BYTES_MAX = 64 * 1024 * 1024


def attach(
    box, session: str, process_id: str = "default", url: str | None = None, headers: dict | None = None, **options
):
    """Attaches as LangBot does. To be used with `async with`."""
    own = {"subprotocols": [Subprotocol("mcp")], "proxy": None, "max_size": FRAME_BYTES_MAX} | options
    own["additional_headers"] = box.relay_headers() if headers is None else headers
    return connect(url or box.relay_url(session, process_id), **own)


async def next_frame(socket, limit_sec: float = 20.0) -> str:
    """The next frame, which must come."""
    return await asyncio.wait_for(socket.recv(), limit_sec)


async def frames(socket, count: int) -> list[str]:
    """As many frames as are said."""
    return [await next_frame(socket) for _ in range(count)]


async def lines_until_close(socket, limit_sec: float = 20.0) -> list[str]:
    """Every frame until the server closes, which must be with 1000 and no reason."""
    found = []
    try:
        while True:
            found.append(await next_frame(socket, limit_sec))
    except ConnectionClosed:
        equal((socket.close_code, socket.close_reason), (1000, ""), "the end")
    return found


async def refusal(box, session: str, process_id: str = "default", **options) -> tuple[int, str]:
    """The HTTP answer to an attachment that must be refused: status and body."""
    try:
        async with attach(box, session, process_id, **options):
            raise AssertionError("it was attached")
    except InvalidStatus as refused:
        return refused.response.status_code, (refused.response.body or b"").decode()
