"""What the server says of itself: ping, health, backend, status, configuration, shutdown."""

import asyncio
import os
import sys

from langbot_plugin.box.errors import BoxError, BoxSessionNotFoundError, BoxValidationError

from ground import get
from suite import case, equal, holds, raises

LIMITS = {
    "max_sessions",
    "max_managed_processes",
    "max_completed_processes",
    "max_admission_records",
    "max_rpc_file_bytes",
}


@case()
async def ping_health_and_backend_are_answered(box, ground):
    await box.link.client_call("ping")
    await box.initialize()
    backend = await box.get_backend_info()
    holds(isinstance(backend["name"], str) and backend["available"] is True, f"the backend is {backend}")
    equal(await box.raw("box_health", {}, context=None) | {}, backend, "health")


@case()
async def status_tells_backend_sessions_and_limits(box, ground):
    before = await box.get_status()
    await box.run("true")
    status = await box.get_status()
    equal(status["backend"]["available"], True, "available")
    equal(status["session_ttl_sec"], 300, "session_ttl_sec")
    equal(status["active_sessions"] >= before["active_sessions"] + (1 if box.context else 0), True, "one more session")
    holds(set(status["limits"]) >= LIMITS, f"limits are {status['limits']}")
    equal(set(status["capacity"]), {"limit", "used", "remaining"}, "capacity")


@case("tenancy")
async def status_counts_only_this_workspace(box, ground):
    other = box.link.box()
    await other.run("true")
    equal((await box.get_status())["active_sessions"], 0, "active_sessions of another workspace")
    await box.start("s", "sleep", "60")
    status = await box.get_status()
    equal((status["active_sessions"], status["managed_processes"]), (1, 1), "sessions and processes")
    equal(status["capacity"]["used"], 1, "used capacity")
    await other.clear()


@case("stdio")
async def the_documented_sitecustomize_starts_strongbox(box, ground):
    """LangBot forks the module; the sample of docs/langbot.md puts our program in its place."""
    docs = os.path.join(os.path.dirname(__file__), "../../../../docs/langbot.md")
    with open(docs) as text:
        sample = text.read().split("```python\n")[1].split("```")[0]
    place = os.path.join(ground.directory, box.name("site"))
    os.makedirs(place)
    with open(os.path.join(place, "sitecustomize.py"), "w") as file:
        file.write(sample.replace("/usr/local/bin/strongbox", ground.command[0]))
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "langbot_plugin.cli.__init__", "box", "--help"],
        env=os.environ | {"PYTHONPATH": place},
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    holds(process.returncode == 0 and b"strongbox box" in said, f"it ended with {process.returncode}: {said[:300]}")


@case()
async def an_unknown_action_is_an_error_that_names_it(box, ground):
    for action in ["box_nope", "__heartbeat"]:
        try:
            await box.raw(action, {})
        except Exception as error:
            holds(f"Action {action} not found" in str(error), f"the error is {error}")
        else:
            raise AssertionError(f"{action} was answered")


@case()
async def a_missing_argument_is_an_error_and_the_connection_goes_on(box, ground):
    for action in ["box_get_session", "box_delete_session", "box_start_managed_process"]:
        try:
            await box.raw(action, {})
        except Exception as error:
            holds("session_id" in str(error), f"{action}: {error}")
        else:
            raise AssertionError(f"{action} without arguments was answered")
    await box.link.client_call("ping")


@case()
async def init_is_merged_and_repeated_without_harm(box, ground):
    async with ground.fresh() as link:
        own = link.box()
        await own.run("echo kept > /tmp/file")
        await own.init({"enabled": True, "local": {"profile": "default"}, "unknown_section": {"a": [1]}})
        await own.init({"default_memory_mb": 512, "docker": {"cpu_limit_enabled": False}})
        equal((await own.run("cat /tmp/file")).stdout, "kept", "the file after INIT")


@case("capacity")
async def init_with_bad_limits_is_refused_whole(box, ground):
    async with ground.fresh() as link:
        own = link.box()
        for value, part in [
            ("many", "must be an integer"),
            (-1, "must be between"),
            (5001, "must be between"),
            (True, "must be an integer"),
        ]:
            config = {"limits": {"max_sessions": value}, "session_marker": 1}
            await raises(BoxError, own.init(config), "box.limits.max_sessions", part)
        await own.init({"limits": {"max_sessions": 3}})
        equal((await own.get_status())["limits"]["max_sessions"], 3, "max_sessions")


@case()
async def init_makes_the_default_workspace(box, ground):
    async with ground.fresh() as link:
        root = os.path.join(ground.directory, box.name("root"))
        await link.box().init({"local": {"host_root": root}})
        holds(os.path.isdir(os.path.join(root, "default")), "there is no default workspace below host_root")
        outside = {"local": {"host_root": root, "default_workspace": "/srv/elsewhere"}}
        await raises(BoxValidationError, link.box().init(outside), "outside allowed_mount_roots")
        holds(not os.path.exists("/srv/elsewhere"), "a directory was made outside of the allowed roots")


@case()
async def shutdown_drops_sessions_and_keeps_serving(box, ground):
    async with ground.fresh() as link:
        own = link.box()
        await own.run("true")
        await own.raw("box_shutdown", {}, context=None)
        await raises(BoxSessionNotFoundError, own.get_session(own.name("s")), "not found")
        equal((await own.run("echo again")).stdout, "again", "a command after shutdown")
        await own.shutdown()


@case()
async def a_backend_that_does_not_exist_is_unavailable(box, ground):
    from langbot_plugin.box.errors import BoxBackendUnavailableError

    async with ground.fresh({"backend": "nothing-like-this"}) as link:
        own = link.box()
        backend = await own.get_backend_info()
        equal((backend["name"], backend["available"]), (None, False), "the backend")
        await own.initialize()
        await raises(BoxBackendUnavailableError, own.run("true"))
        await raises(BoxBackendUnavailableError, own.create_session(own.spec()))


@case("tenancy")
async def health_pages_answer_without_credentials(box, ground):
    import json

    status, _, text = await get(f"{box.link.relay_base}/healthz")
    equal((status, json.loads(text)["live"]), (200, True), "healthz")
    holds("sessions" in json.loads(text)["resources"], f"healthz says {text}")
    status, _, text = await get(f"{box.link.relay_base}/readyz")
    ready = json.loads(text)
    equal((status, ready["ready"], ready["mode"]), (200, True, "standard"), "readyz")
    equal(ready["checks"], {"backend_available": True}, "checks")


@case()
async def an_unknown_path_is_not_found(box, ground):
    equal((await get(f"{box.link.relay_base}/no/such/page"))[0], 404, "status")
