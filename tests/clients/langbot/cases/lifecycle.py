"""The lives of clients and servers: killed clients, ended servers, odd input."""

import asyncio
import json
import signal
import sys

from link import Link, headers
from suite import case, equal, holds, until

KILLED_CLIENT = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from link import Link
async def main():
    link = await Link.open_websocket(sys.argv[2])
    box = link.box(sys.argv[3]); box.prefix = sys.argv[4]
    await box.create_session(box.spec())
    task = asyncio.create_task(box.run("echo begun > /tmp/log; sleep 1; echo done >> /tmp/log", timeout_sec=30))
    await asyncio.sleep(0.3)
    print("running", flush=True)
    await task
asyncio.run(main())
"""


@case("ws")
async def a_client_killed_in_the_middle_loses_no_session(box, ground):
    import os

    here = os.path.dirname(os.path.dirname(__file__))
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        KILLED_CLIENT,
        here,
        box.link.relay_base,
        box.workspace,
        box.prefix,
        stdout=asyncio.subprocess.PIPE,
    )
    equal(await child.stdout.readline(), b"running\n", "the client's word")
    child.kill()
    await child.wait()

    async def idle():
        return (await box.get_session(box.name("s")))["status"] == "idle"

    await until(idle, "the command of the dead client has ended")
    lines = (await box.run("cat /tmp/log")).stdout.split()
    holds(lines in (["begun", "done"], ["begun"]), f"the log says {lines}")


@case("ws")
async def sigterm_says_goodbye_and_ends(box, ground):
    async with ground.fresh() as link:
        await link.box().run("true")
        link.server.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(link.closed.wait(), 20)
        equal(await asyncio.wait_for(link.server.process.wait(), 20), 0, "exit code")


@case("stdio")
async def the_end_of_standard_input_ends_the_server(box, ground):
    async with ground.fresh() as link:
        await link.box().run("true")
        process = link.process
        process.stdin.close()
        equal(await asyncio.wait_for(process.wait(), 20), 0, "exit code")


@case("ws")
async def odd_messages_are_ignored_and_the_connection_goes_on(box, ground):
    from websockets.asyncio.client import connect

    url = box.link.relay_base.replace("http", "ws", 1) + "/rpc/ws"
    own = headers(box.link.token)
    async with connect(url, additional_headers=own, proxy=None) as socket:
        # For a client without tenancy, text that does not parse may be the beginning of a longer message.
        odd = ["[1, 2]", '"text"', "{}", '{"seq_id": 1}', "null"] + (["no json"] if own else [])
        for text in odd:
            await socket.send(text)
        await socket.send(json.dumps({"seq_id": 7, "action": "__ping", "data": {}}))
        answer = json.loads(await asyncio.wait_for(socket.recv(), 10))
        equal(answer, {"seq_id": 7, "code": 0, "message": "success", "data": {}, "chunk_status": "continue"}, "answer")
        await socket.send(json.dumps({"action": "__ping", "data": {}}))
        equal(json.loads(await asyncio.wait_for(socket.recv(), 10))["seq_id"], -1, "seq_id")
        await socket.send(json.dumps({"seq_id": 9, "action": "__ping", "data": {}, "new_key": 1}))
        equal(json.loads(await asyncio.wait_for(socket.recv(), 10))["seq_id"], 9, "seq_id")


@case("ws")
async def a_message_in_fragments_is_one_message(box, ground):
    from websockets.asyncio.client import connect

    url = box.link.relay_base.replace("http", "ws", 1) + "/rpc/ws"
    async with connect(url, additional_headers=headers(box.link.token), proxy=None) as socket:
        text = json.dumps({"seq_id": 3, "action": "__ping", "data": {}, "filler": "ü" * 200_000}, ensure_ascii=False)
        await socket.send([text[at : at + 30_000] for at in range(0, len(text), 30_000)])
        equal(json.loads(await asyncio.wait_for(socket.recv(), 20))["seq_id"], 3, "seq_id")


@case("stdio")
async def the_port_of_a_stdio_server_serves_the_relay_too(box, ground):
    from relay import attach, next_frame

    await box.start("s", "cat")
    async with attach(box, "s") as socket:
        await socket.send("over the port")
        equal((await next_frame(socket)).strip(), "over the port", "line")


@case("stdio")
async def the_port_of_a_stdio_server_serves_actions_too(box, ground):
    twin = await Link.open_websocket(box.link.relay_base, box.link.token)
    await box.run("echo one > /tmp/file")
    other = twin.box(box.workspace)
    other.prefix = box.prefix
    equal((await other.run("cat /tmp/file")).stdout, "one", "by WebSocket")
    await twin.close()
