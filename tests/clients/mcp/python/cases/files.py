"""`@modelcontextprotocol/server-filesystem` on a directory of the host, which it sees as its workspace."""

import os

from suite import case, equal, holds


@case()
async def a_directory_of_the_host_is_its_workspace(desk):
    async with desk.connect() as link:
        allowed = await link.text("files__list_allowed_directories")
        holds("/workspace" in allowed and desk.house.files not in allowed, f"it may see {allowed}")
        holds("greeting.txt" in await link.text("files__list_directory", path="/workspace"), "the file is listed")
        equal((await link.text("files__read_text_file", path="/workspace/greeting.txt")).strip(), "hello", "file")


@case()
async def it_is_read_only_unless_somebody_says_otherwise(desk):
    async with desk.connect() as link:
        result = await link.call("files__write_file", {"path": "/workspace/new.txt", "content": "x"})
        equal(result.get("isError"), True, "isError")
        equal(os.listdir(desk.house.files), ["greeting.txt"], "the directory of the host")
