"""A project of ours with `mcp` from PyPI in its requirements.txt: what arrives at a server."""

import asyncio

from link import Ears
from suite import case, equal, holds, until


@case()
async def a_cancelled_call_is_cancelled_in_the_box(desk):
    async with desk.connect() as link:
        before = int(await link.text("observer__cancellations"))
        await link.cancel(await link.begin("observer__wait"))

        async def seen():
            return int(await link.text("observer__cancellations")) == before + 1

        await until(seen, "the server has cancelled it")


@case()
async def a_client_that_leaves_takes_its_calls_along(desk):
    async with desk.connect() as other:
        before = int(await other.text("observer__cancellations"))
        async with desk.connect() as link:
            task, _ = await link.begin("observer__wait")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        async def seen():
            return int(await other.text("observer__cancellations")) == before + 1

        await until(seen, "the server has cancelled it")


@case()
async def a_server_that_wants_roots_gets_those_of_the_client(desk):
    async with desk.connect(ears=Ears()) as link:
        equal(await link.text("observer__roots"), Ears.ROOT, "roots")
    async with desk.connect() as link:
        equal(await link.call("observer__roots"), await link.call("observer__roots"), "two answers without roots")
        holds(Ears.ROOT not in str(await link.call("observer__roots")), "the roots of another client are not told")


@case("handshake")
async def a_client_hears_what_it_asked_to_hear(desk):
    ears = Ears()
    async with desk.connect(ears=ears) as link:
        await link.client.set_logging_level("error")
        await link.text("observer__say", level="info", text="too quiet")
        await link.text("observer__say", level="error", text="loud enough")

        async def heard():
            return [it["data"] for it in ears.logs if it["data"] in ("too quiet", "loud enough")]

        equal(await until(heard, "something is logged"), ["loud enough"], "what is heard")


@case("streamable")
async def an_answer_of_several_megabytes_arrives(desk):
    async with desk.connect("/mcp/observer") as link:
        equal(len(await link.text("large", characters=3 << 20)), 3 << 20, "characters")
