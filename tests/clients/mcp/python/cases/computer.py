"""Our own tools, at an address of their own."""

from suite import case, equal, holds


@case()
async def a_client_has_a_computer_in_a_box(desk):
    async with desk.connect("/mcp/box?session=clients") as link:
        holds({"exec", "read", "write", "edit", "glob", "grep"} <= set(await link.tools()), "the tools are listed")
        await link.text("write", path="note.txt", content="from a client\n")
        holds("from a client" in await link.text("read", path="note.txt"), "it is read")
        result = await link.call("exec", {"command": "cat note.txt; echo $((6 * 7))"})
        holds("from a client" in str(result["content"]) and "42" in str(result["content"]), f"the answer is {result}")
        await link.text("session_end")
    equal([name for name in await desk.house.sessions() if name == "clients"], [], "sessions that are left")
