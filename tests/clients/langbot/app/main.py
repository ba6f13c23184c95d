"""Starts a whole LangBot, pointed at a running Box server, and has it use the box.

    app/main.py --url ws://127.0.0.1:5410 --directory DIR [part of a name]...

LangBot is built by its own start-up code: configuration, database, box service with its start-up checks, tools, web
server. What needs a model, a chat platform or the network is left out: no pipeline answers a message here, the plugin
runtime is off, and nothing is asked of LangBot's own servers. What runs is what a pipeline would call: the box
service's exec, the agent's tools, the MCP loader.
"""

import argparse
import asyncio
import base64
import os
import shutil
import sys
from importlib.metadata import version

HERE = os.path.dirname(os.path.abspath(__file__))
# What all drivers share, and the connection of the SDK's drivers.
sys.path[:0] = [os.path.dirname(os.path.dirname(HERE)), os.path.dirname(HERE)]

from suite import CASES, Suite, case, equal, holds, until  # noqa: E402

PROGRAM = os.path.join(os.path.dirname(HERE), "programs", "mcp_server.py")


def environment(url: str, directory: str) -> dict[str, str]:
    """LangBot's settings, in the form in which an operator overrides its configuration file."""
    return {
        "BOX__RUNTIME__ENDPOINT": url,
        "BOX__LOCAL__HOST_ROOT": os.path.join(directory, "box"),
        "BOX__LOCAL__ALLOWED_MOUNT_ROOTS": directory,
        "PLUGIN__ENABLE": "false",
        "SPACE__DISABLE_TELEMETRY": "true",
        "SPACE__DISABLE_MODELS_SERVICE": "true",
    }


async def context_of(app):
    """The one workspace of a LangBot that serves one organisation."""
    from langbot.pkg.api.http.context import ExecutionContext, PrincipalContext, PrincipalType

    binding = await app.workspace_service.get_local_execution_binding()
    return ExecutionContext(
        instance_uuid=binding.instance_uuid,
        workspace_uuid=binding.workspace_uuid,
        placement_generation=binding.placement_generation,
        trigger_principal=PrincipalContext(PrincipalType.SYSTEM),
    )


async def query_of(app):
    """As much of a query as the tools of an agent look at."""
    import langbot_plugin.api.entities.builtin.pipeline.query as pipeline_query

    context = await context_of(app)
    query = pipeline_query.Query.model_construct(
        query_id=42,
        variables={},
        pipeline_config={},
        instance_uuid=context.instance_uuid,
        workspace_uuid=context.workspace_uuid,
        placement_generation=context.placement_generation,
    )
    object.__setattr__(query, "_execution_context", context)
    try:
        from langbot.pkg.box.runner import RunnerBoxService
    except ImportError:
        return query
    # Since 4.11 whoever runs an agent chooses the box first.
    runner = RunnerBoxService(app.box_service)
    acquired = await runner.acquire(context, {"reuse_key": "conversation"}, query)
    await runner.bind(context, query, "run", acquired["id"])
    return query


@case()
async def start_up_checks_of_the_box_pass(app, _):
    holds(app.box_service.enabled and app.box_service.available, "LangBot says that the box is not available")
    status = await app.box_service.get_status(await context_of(app))
    holds(status["available"] and status["enabled"], f"status is {status}")
    holds(status["backend"]["available"], f"backend is {status['backend']}")


@case()
async def the_box_service_executes(app, _):
    spec = {"cmd": "echo out; echo err >&2; exit 3", "session_id": "person_1:2", "workdir": "/workspace"}
    result = await app.box_service.execute_in_context(await context_of(app), spec)
    equal((result.stdout, result.stderr, result.exit_code), ("out", "err", 3), "result")


@case()
async def the_exec_tool_of_an_agent_works(app, _):
    query = await query_of(app)
    result = await app.box_service.execute_tool({"command": "echo service-path; pwd"}, query)
    equal((result["ok"], result["status"], result["stdout"]), (True, "completed", "service-path\n/workspace"), "result")
    sessions = {it["session_id"] for it in await app.box_service.get_sessions(await context_of(app))}
    holds(result["session_id"] in sessions, f"the command ran in {result['session_id']}, of {sessions}")
    result = await app.box_service.execute_tool({"command": "sleep 60", "timeout_sec": 1}, query)
    equal((result["ok"], result["status"]), (False, "timed_out"), "result")
    result = await app.box_service.execute_tool({"command": "echo again"}, await query_of(app))
    equal(result["stdout"], "again", "after a time-out")


@case()
async def files_of_the_workspace_stay_between_commands(app, _):
    query = await query_of(app)
    await app.box_service.execute_tool({"command": "echo kept > /workspace/note"}, query)
    result = await app.box_service.execute_tool({"command": "cat /workspace/note"}, query)
    equal(result["stdout"], "kept", "the file")


@case()
async def attachments_reach_the_box_and_answers_come_back(app, _):
    """LangBot's own transfer: it writes into the workspace with directories of mode 0700 and files of mode 0600."""
    from langbot_plugin.api.entities.builtin.platform.message import File, MessageChain

    for turn in ["first", "second"]:
        query = await query_of(app)
        content = base64.b64encode(f"words of the {turn}".encode()).decode()
        object.__setattr__(query, "message_chain", MessageChain([File(name=f"{turn}.txt", base64=content)]))
        written = await app.box_service.materialize_inbound_attachments(query)
        equal([it["name"] for it in written], [f"{turn}.txt"], "attachments")
        inbox = written[0]["path"]
        outbox = os.path.dirname(inbox).replace("/inbox/", "/outbox/")
        command = f"mkdir -p {outbox} && tr a-z A-Z < {inbox} > {outbox}/{turn}.txt && chmod 600 {outbox}/{turn}.txt"
        result = await app.box_service.execute_tool({"command": command}, query)
        equal((result["ok"], result["stderr"]), (True, ""), "the command")
        found = await app.box_service.collect_outbound_attachments(query)
        equal([it["name"] for it in found], [f"{turn}.txt"], "answers")
        answer = base64.b64decode(found[0]["base64"].split(",")[-1]).decode()
        equal(answer, f"WORDS OF THE {turn.upper()}", "the answer")
        # Nothing may be left for the next message, and nothing that only another owner could remove.
        equal(await app.box_service.collect_outbound_attachments(query), [], "answers that were collected")


@case()
async def sessions_are_listed(app, _):
    context = await context_of(app)
    spec = {"cmd": "true", "session_id": "person_3:4", "workdir": "/workspace"}
    await app.box_service.execute_in_context(context, spec)
    sessions = await app.box_service.get_sessions(context)
    holds(any(it["session_id"] == "person_3-4" for it in sessions), f"sessions are {sessions}")


@case(limit_sec=150)
async def an_mcp_server_runs_in_the_box(app, directory):
    """The loader's own path: a session, the program copied or mounted, a managed process, the relay, the handshake."""
    place = os.path.join(directory, "box", "small-mcp")
    os.makedirs(place, exist_ok=True)
    shutil.copy(PROGRAM, place)
    with open(PROGRAM) as file:
        source = file.read()
    loader = app.tool_mgr.mcp_tool_loader
    # Passed as text: the box of a LangBot elsewhere has none of our files.
    config = {
        "name": "small",
        "uuid": "small-server",
        "mode": "stdio",
        "enable": True,
        "extra_args": {"command": "python3", "args": ["-c", source], "env": {}, "box": {"startup_timeout_sec": 60}},
    }
    session = await loader.load_mcp_server(await context_of(app), config)
    await session.start()
    try:
        equal({tool.name for tool in session.get_tools()}, {"echo", "large", "burst", "slow", "write"}, "tools")
        for tool, given, expected in [
            ("echo", {"text": "größe 漢字 🙂"}, "größe 漢字 🙂"),
            ("large", {"size": 300_000}, "漢" * 100_000),
            ("burst", {"count": 200}, "200 sent"),
            ("echo", {"text": "after"}, "after"),
        ]:
            found = await session.invoke_mcp_tool(tool, given)
            equal(found[0].text, expected, tool)
        calls = [session.invoke_mcp_tool("slow", {"seconds": 0.1, "text": str(n)}) for n in range(10)]
        equal([found[0].text for found in await asyncio.gather(*calls)], [str(n) for n in range(10)], "parallel calls")
        info = session.get_runtime_info_dict()
        holds(info.get("box_enabled"), f"the server does not run in the box: {info}")
    finally:
        await session.shutdown()


@case()
async def the_web_api_answers_about_the_box(app, _):
    """LangBot's own web server, asked without an account: what it says of the box needs one, and it says so."""
    client = app.http_ctrl.quart_app.test_client()
    answer = await client.get("/api/v1/box/status")
    equal(answer.status_code, 401, "status without an account")

    async def still_available():
        return app.box_service.available

    await until(still_available, "the box is still available")


@case()
async def a_disposed_box_service_leaves_no_session(app, directory):
    """The last case: LangBot tells the box that it stops. Whoever asks then, in its place, finds nothing."""
    context = await context_of(app)
    spec = {"cmd": "true", "session_id": "person_5:6", "workdir": "/workspace"}
    await app.box_service.execute_in_context(context, spec)
    holds(await app.box_service.get_sessions(context), "there is no session that could go")
    app.box_service.dispose()

    async def is_told():
        return app.box_service._shutdown_task is not None and app.box_service._shutdown_task.done()

    await until(is_told, "LangBot has shut the box down")
    from link import Link

    link = await Link.open_websocket(os.environ["BOX__RUNTIME__ENDPOINT"], instance=context.instance_uuid)
    try:
        box = link.box(context.workspace_uuid, context.placement_generation)
        equal(await box.get_sessions(), [], "sessions")
    finally:
        await link.close()


async def run(options) -> int:
    name = f"langbot-app-{version('langbot')}"
    suite = Suite(f"{name}-{options.name}" if options.name else name, options.filters)
    from langbot.pkg.core import boot
    from langbot.pkg.core.bootutils import files

    await files.generate_files()
    app = await boot.make_app(asyncio.get_running_loop())
    try:
        for one in [it for it in CASES if suite.takes(it.name)]:
            await suite.run(one, app, options.directory)
    finally:
        await app.shutdown()
    return suite.finish()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--name", help="what the suite is also called, after its version")
    parser.add_argument("filters", nargs="*")
    options = parser.parse_args()
    options.directory = os.path.realpath(options.directory)
    os.makedirs(os.path.join(options.directory, "data"), exist_ok=True)
    os.chdir(options.directory)
    os.environ.update(environment(options.url, options.directory))
    return asyncio.run(run(options))


if __name__ == "__main__":
    # LangBot leaves threads behind that would keep the process.
    code = main()
    sys.stdout.flush()
    os._exit(code)
