"""`mcp-server-time` from PyPI, run by uvx; and a project whose dependency is `mcp-server-fetch`."""

import json

from suite import case, equal, holds


@case()
async def the_time_is_told_and_converted(desk):
    async with desk.connect() as link:
        now = json.loads(await link.text("time__get_current_time", timezone="UTC"))
        equal(now["timezone"], "UTC", "time zone")
        asked = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        found = json.loads(await link.text("time__convert_time", **asked))
        holds("T21:00:00+09:00" in found["target"]["datetime"], f"noon in London is {found}")


@case()
async def the_error_of_a_tool_is_its_own(desk):
    async with desk.connect() as link:
        result = await link.call("time__get_current_time", {"timezone": "Nowhere/Land"})
        equal(result.get("isError"), True, "isError")
        holds("Nowhere/Land" in result["content"][0]["text"], f"the error is {result}")


@case()
async def what_pyproject_asks_for_is_installed_and_runs(desk):
    async with desk.connect() as link:
        holds("fetch__fetch" in await link.tools(), "the tool is listed")
        holds(any(it["name"] == "fetch__fetch" for it in await link.pages("list_prompts", "prompts")), "the prompt too")
        # Nobody listens there: the loopback of a box is its own.
        answer = await link.call("fetch__fetch", {"url": "http://127.0.0.1:9/"})
        holds(answer.get("isError") and "127.0.0.1:9" in str(answer["content"]), f"the answer is {answer}")
