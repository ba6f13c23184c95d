"""What the first tests of Box held on a container engine, held here on the backend that this machine has."""

from langbot_plugin.box.errors import BoxBackendUnavailableError, BoxSessionNotFoundError
from langbot_plugin.box.models import BoxExecutionStatus, BoxManagedProcessStatus, BoxNetworkMode

from relay import attach, next_frame
from suite import case, equal, holds, raises, until

IMAGE = "alpine:latest"


async def session(box, name: str) -> str:
    await box.create_session(box.spec(session=name, image=IMAGE))
    return box.name(name)


@case()
async def managed_process_start_and_query(box, ground):
    name = await session(box, "mcp-int-lifecycle")
    info = await box.start_managed_process(name, box.process_spec("sh", "-c", "while true; do sleep 1; done"))
    equal(info.status, BoxManagedProcessStatus.RUNNING, "status")
    info = await box.get_managed_process(name)
    equal((info.status, info.command), (BoxManagedProcessStatus.RUNNING, "sh"), "process")


@case()
async def ws_stdio_attach_echo(box, ground):
    name = await session(box, "mcp-int-ws")
    await box.start_managed_process(name, box.process_spec("cat"))
    async with attach(box, "mcp-int-ws") as socket:
        await socket.send("hello from test")
        holds("hello from test" in await next_frame(socket), "no echo")


@case()
async def delete_session_cleans_up(box, ground):
    name = await session(box, "mcp-int-cleanup")
    await box.start_managed_process(name, box.process_spec("sleep", "3600"))
    await box.delete_session(name)
    await raises(BoxSessionNotFoundError, box.get_session(name))


@case()
async def get_session_returns_details(box, ground):
    name = await session(box, "mcp-int-get")
    info = await box.get_session(name)
    equal((info["session_id"], info["image"]), (name, IMAGE), "session")
    holds("managed_process" not in info, "a process that nobody started")
    await box.start_managed_process(name, box.process_spec("sleep", "3600"))
    equal((await box.get_session(name))["managed_process"]["status"], "running", "status")


@case()
async def process_exit_detected(box, ground):
    name = await session(box, "mcp-int-exit")
    await box.start_managed_process(name, box.process_spec("sh", "-c", "echo done && exit 0"))

    async def ended():
        info = await box.get_managed_process(name)
        return info if info.status == BoxManagedProcessStatus.EXITED else None

    equal((await until(ended, "the process has ended")).exit_code, 0, "exit_code")


@case()
async def orphan_cleanup_preserves_own_boxes(box, ground):
    name = await session(box, "mcp-int-orphan")
    for _ in range(2):
        holds(any(it["session_id"] == name for it in await box.get_sessions()), "the session has gone")
        holds((await box.get_status())["active_sessions"] >= 1, "no session is counted")


@case()
async def exec_simple_command(box, ground):
    result = await box.run("echo hello-box", "int-simple", image=IMAGE)
    equal((result.status, result.exit_code), (BoxExecutionStatus.COMPLETED, 0), "result")
    holds("hello-box" in result.stdout, f"stdout is {result.stdout!r}")


@case()
async def session_persists_files(box, ground):
    wrote = await box.run('echo "hello from file" > /tmp/testfile.txt', "int-persist", image=IMAGE)
    equal(wrote.exit_code, 0, "exit_code")
    read = await box.run("cat /tmp/testfile.txt", "int-persist", image=IMAGE)
    equal((read.exit_code, read.stdout), (0, "hello from file"), "result")


@case()
async def timeout_kills_command(box, ground):
    result = await box.run("sleep 120", "int-timeout", timeout_sec=3, image=IMAGE)
    equal((result.status, result.exit_code), (BoxExecutionStatus.TIMED_OUT, None), "result")
    holds(
        all(it["session_id"] != box.name("int-timeout") for it in await box.get_sessions()),
        "the session is still there",
    )


@case()
async def offline_cannot_reach_network(box, ground):
    script = "python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 80), 3)'"
    result = await box.run(script, "int-offline", network=BoxNetworkMode.OFF, image=IMAGE)
    holds(result.exit_code != 0, "the network was reached")
    holds("unreachable" in result.stderr or "Permission" in result.stderr, f"the reason is {result.stderr!r}")


@case()
async def backend_unavailable_returns_error(box, ground):
    async with ground.fresh({"backend": "unavailable"}) as link:
        own = link.box()
        await raises(BoxBackendUnavailableError, own.run("echo hello", "int-no-backend"))


@case()
async def rpc_client_round_trip(box, ground):
    """The client's own tests: execute, sessions, status, delete, not found, conflict, backend."""
    from langbot_plugin.box.errors import BoxSessionConflictError

    equal((await box.run("echo rpc", "rpc")).stdout, "rpc", "execute")
    holds(any(it["session_id"] == box.name("rpc") for it in await box.get_sessions()), "get_sessions")
    holds((await box.get_backend_info())["available"], "get_backend_info")
    holds((await box.get_status())["backend"]["available"], "get_status")
    await raises(BoxSessionConflictError, box.run("true", "rpc", network=BoxNetworkMode.ON))
    await raises(BoxSessionConflictError, box.run("true", "rpc", cpus=2.0))
    await box.delete_session(box.name("rpc"))
    await raises(BoxSessionNotFoundError, box.delete_session(box.name("rpc")))
