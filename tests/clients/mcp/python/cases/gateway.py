"""All servers at one address, and each at its own."""

import asyncio

from link import Ears, version_spoken
from suite import case, equal, holds, until


@case()
async def the_newest_version_that_both_know_is_spoken(desk):
    async with desk.connect() as link:
        equal(link.spoken, version_spoken(desk.transport), "version")


@case()
async def tools_of_all_servers_are_named_after_them(desk):
    async with desk.connect() as link:
        tools = set(await link.tools())
        known = {"time__convert_time", "everything__echo", "files__read_text_file", "observer__wait", "fetch__fetch"}
        holds(known <= tools, f"missing: {known - tools}")


@case()
async def one_server_has_an_address_with_its_own_names(desk):
    async with desk.connect("/mcp/time") as link:
        equal(set(await link.tools()), {"get_current_time", "convert_time"}, "tools")
        holds("UTC" in await link.text("get_current_time", timezone="UTC"), "it answers")
    async with desk.connect("/mcp/everything") as link:
        listed = {it["uri"] for it in await link.pages("list_resources", "resources")}
        holds("demo://resource/static/document/features.md" in listed, f"resources are {listed}")


@case()
async def clients_are_answered_at_the_same_time_each_with_its_own(desk):
    async def talk(number: int) -> None:
        async with desk.connect() as link:
            calls = [link.text("everything__echo", message=f"{number}.{n}") for n in range(10)]
            equal(await asyncio.gather(*calls), [f"Echo: {number}.{n}" for n in range(10)], "answers")

    await asyncio.gather(*(talk(number) for number in range(5)))


@case(limit_sec=120.0)
async def clients_are_told_when_servers_come_and_go(desk):
    ears = Ears()

    async def told():
        return "notifications/tools/list_changed" in ears.notes

    async with desk.connect(ears=ears) as link, link.listening(ears):
        await link.tools()
        await desk.house.put("clock", desk.house.definition(desk.house.time))
        try:
            await until(told, "the new server is told")
            holds("UTC" in await link.text("clock__get_current_time", timezone="UTC"), "it answers")
            holds("clock__convert_time" in await link.tools(), "it is listed")
        finally:
            ears.notes.clear()
            await desk.house.remove("clock")
        await until(told, "that it is gone is told")
        holds("clock__convert_time" not in await link.tools(), "it is not listed any more")


@case()
async def a_ping_is_answered(desk):
    for path in ("/mcp", "/mcp/observer", "/mcp/box"):
        async with desk.connect(path) as link:
            await link.client.send_ping()
