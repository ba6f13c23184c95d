"""Workspaces: kept apart, moved on by generations, opened by credentials."""

import asyncio

from langbot_plugin.box.errors import BoxError, BoxSessionNotFoundError

from link import INSTANCE, Link, headers
from relay import attach, lines_until_close, next_frame, refusal
from suite import case, equal, holds, raises

TOKEN = "a-control-token-of-more-than-thirty-two-characters"


@case("tenancy")
async def workspaces_do_not_see_each_other(box, ground):
    other = box.link.box()
    await box.execute(box.spec("echo mine > /tmp/who", session_id="same"))
    result = await other.execute(other.spec("cat /tmp/who 2>/dev/null; echo theirs", session_id="same"))
    equal(result.stdout, "theirs", "what the other sees")
    equal([it["session_id"] for it in await other.get_sessions()], ["same"], "sessions of the other")
    await other.delete_session("same")
    equal(
        (await box.execute(box.spec("cat /tmp/who", session_id="same"))).stdout,
        "mine",
        "after the other has deleted its own",
    )
    await raises(BoxSessionNotFoundError, other.get_session("same"))


@case("tenancy")
async def a_call_without_a_workspace_is_refused(box, ground):
    call = box.link.client.get_status()
    await raises(BoxError, call, "PermissionError: Box tenant action requires a trusted Workspace context")


@case("tenancy")
async def a_call_for_another_instance_is_refused(box, ground):
    foreign = box.context.model_copy(update={"instance_uuid": "another-instance"})
    call = box.link.client.get_status(action_context=foreign)
    await raises(BoxError, call, "PermissionError: Box action context does not match the trusted instance")


@case("tenancy")
async def an_id_without_a_valid_character_is_refused(box, ground):
    try:
        await box.execute(box.spec("true", session_id=":::"))
    except BoxError as error:
        holds("Box session_id must contain a valid character" in str(error), f"the error is {error}")
    else:
        raise AssertionError("a command ran in a session without a name")


@case("tenancy")
async def a_new_generation_ends_the_old_one(box, ground):
    await box.run("echo old > /tmp/file")
    await box.start("s", "cat")
    async with attach(box, "s") as socket:
        await socket.send("x")
        await next_frame(socket)
        next_box = box.link.box(box.workspace, generation=2)
        next_box.prefix = box.prefix
        result = await next_box.run("cat /tmp/file 2>/dev/null; echo new")
        equal(result.stdout, "new", "what the new generation sees")
        equal(await lines_until_close(socket), [], "frames of the old relay")
    await raises(BoxError, box.get_status(), "PermissionError: Stale Box placement generation")
    await raises(BoxError, box.run("true"), "PermissionError: Stale Box placement generation")
    equal(len(await next_box.get_sessions()), 1, "sessions of the new generation")
    await next_box.clear()
    box.context = next_box.context


@case("tenancy", "ws")
async def a_token_opens_and_nothing_else_does(box, ground):
    async with ground.serve({}, TOKEN, "ws") as link:
        equal((await link.box().run("echo in")).stdout, "in", "with the token")
        for token in [None, TOKEN[:-1] + "x", TOKEN + "x"]:
            await refused(link.relay_base, headers(token))
        await refused(link.relay_base, {"X-LangBot-Box-Control-Token": TOKEN})
        await refused(link.relay_base, {})
        own = link.box()
        await own.start("s", "cat")
        for given in [{}, own.relay_headers() | headers(TOKEN + "x"), headers(TOKEN)]:
            equal((await refusal(own, "s", headers=given))[0], 401, f"refusal of a relay with {given}")
        await refused(link.relay_base, headers(TOKEN, "another-instance"))
        await refused(link.relay_base, headers(TOKEN, "not valid!"))


async def refused(base: str, given: dict) -> None:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus

    try:
        async with connect(base.replace("http", "ws", 1) + "/rpc/ws", additional_headers=given, proxy=None):
            raise AssertionError(f"connected with {given}")
    except InvalidStatus as answer:
        equal((answer.response.status_code, answer.response.body), (401, b"Unauthorized"), "refusal")


@case("tenancy", "ws")
async def two_connections_of_one_instance_share_their_sessions(box, ground):
    other = await Link.open_websocket(box.link.relay_base, box.link.token, INSTANCE)
    await box.run("echo shared > /tmp/file")
    twin = other.box(box.workspace)
    twin.prefix = box.prefix
    equal((await twin.run("cat /tmp/file")).stdout, "shared", "by the other connection")
    await other.close()
    await asyncio.sleep(0)
    holds((await box.run("cat /tmp/file")).ok, "the session has gone with a connection")
