"""Starts a whole LangBot, pointed at a running Box server, and has it use the box.

    app/main.py --url ws://127.0.0.1:5410 --directory DIR

LangBot is built by its own start-up code: configuration, database, box service with its start-up checks, tools, web
server. What needs a model, a chat platform or the network is left out: no pipeline answers a message here, the plugin
runtime is off, and nothing is asked of LangBot's own servers. What runs is what a pipeline would call: the box
service's exec, the agent's tools, the MCP loader.
"""

import argparse
import asyncio
import os
import shutil
import sys
from importlib.metadata import version

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(os.path.dirname(HERE)))

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
async def sessions_are_listed(app, _):
    sessions = await app.box_service.get_sessions(await context_of(app))
    holds(any(it["session_id"] == "person_1-2" for it in sessions), f"sessions are {sessions}")


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


async def run(options) -> int:
    suite = Suite(f"langbot-app-{version('langbot')}", options.filters)
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
