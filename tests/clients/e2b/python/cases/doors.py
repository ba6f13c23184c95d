"""Who may come in: keys, tenants, and the token of a sandbox, which nobody guesses."""

from e2b import AuthenticationException, SandboxQuery

from link import MetricsMissing, SandboxMissing
from suite import case, equal, holds, raises
from web import ask

LIST_COMMANDS = "/process.Process/List"


def directed(sandbox, **more) -> dict:
    """The headers of a request to a sandbox, without any that opens it."""
    routed = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    return routed | {"Content-Type": "application/json"} | more


@case("guarded")
async def a_wrong_key_opens_nothing(desk):
    for key in ("e2b_" + "1" * 40, "e2b_" + "1" * 76):
        with desk.behind_tokens(key):
            await raises(AuthenticationException, desk.Sandbox.create())
            await raises(AuthenticationException, desk.Sandbox.list().next_items())
            await raises(AuthenticationException, desk.Sandbox.get_info("i" + "0" * 19))
            await raises(AuthenticationException, desk.Sandbox.connect("i" + "0" * 19))
            await raises(AuthenticationException, desk.Sandbox.kill("i" + "0" * 19))


@case("guarded")
async def a_good_key_is_all_that_a_client_needs(desk):
    with desk.behind_tokens("left"):
        sandbox = await desk.sandbox()
        equal((await sandbox.commands.run("echo in")).stdout, "in\n", "output")
        await sandbox.files.write("/home/user/note", "kept")
        again = await desk.Sandbox.connect(sandbox.sandbox_id)
        equal(await again.files.read("/home/user/note"), "kept", "file")
        equal(await again.is_running(), True, "is_running")


@case("guarded")
async def tenants_find_nothing_of_each_other(desk):
    with desk.behind_tokens("left"):
        sandbox = await desk.sandbox()
        query = SandboxQuery(metadata={"mark": desk.mark})
        equal(len(await desk.Sandbox.list(query).next_items()), 1, "what its tenant lists")
    with desk.behind_tokens("right"):
        equal(await desk.Sandbox.list(query).next_items(), [], "what the other lists")
        for asked in (
            desk.Sandbox.get_info(sandbox.sandbox_id),
            desk.Sandbox.connect(sandbox.sandbox_id),
            desk.Sandbox.set_timeout(sandbox.sandbox_id, 1),
            desk.Sandbox.pause(sandbox.sandbox_id),
        ):
            await raises(SandboxMissing, asked)
        await raises(MetricsMissing, desk.Sandbox.get_metrics(sandbox.sandbox_id))
        equal(await desk.Sandbox.kill(sandbox.sandbox_id), False, "kill by the other")
    with desk.behind_tokens("left"):
        equal(await sandbox.is_running(), True, "is_running")


@case("guarded")
async def the_token_of_one_sandbox_opens_no_other(desk):
    with desk.behind_tokens("left"):
        one = await desk.sandbox()
    with desk.behind_tokens("right"):
        other = await desk.sandbox()
        token = token_of(other)
        url = desk.guarded["url"] + LIST_COMMANDS
        equal((await ask("POST", url, b"{}", directed(other, **{"X-Access-Token": token}))).status, 200, "its own")
        equal((await ask("POST", url, b"{}", directed(one, **{"X-Access-Token": token}))).status, 401, "another")


@case()
async def without_its_token_a_sandbox_is_closed(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write("/home/user/note", "secret")
    for headers in (directed(sandbox), directed(sandbox, **{"X-Access-Token": "wrong"})):
        for method, path in [
            ("POST", LIST_COMMANDS),
            ("POST", "/filesystem.Filesystem/ListDir"),
            ("GET", "/files?path=/home/user/note"),
            ("GET", "/envs"),
            ("GET", "/metrics"),
        ]:
            answer = await ask(method, desk.url + path, b"{}" if method == "POST" else None, headers)
            equal((answer.status, answer.json()["code"]), (401, 401), f"answer to {method} {path}")


@case()
async def tokens_are_all_different(desk):
    one, other = await desk.sandbox(), await desk.sandbox()
    holds(len(token_of(one)) >= 32 and token_of(one) != token_of(other), "each has its own, and it is long")


@case()
async def health_is_told_to_everybody(desk):
    sandbox = await desk.sandbox()
    equal((await ask("GET", f"{desk.url}/health", headers=directed(sandbox))).status, 204, "status")
    await sandbox.kill()
    answer = await ask("GET", f"{desk.url}/health", headers=directed(sandbox))
    equal(answer.status, 502, "status")
    holds("was not found" in answer.json()["message"], f"the message is {answer.json()}")


@case()
async def what_only_a_host_may_do_is_not_there(desk):
    sandbox = await desk.sandbox()
    for path in ("/init", "/freeze", "/unfreeze"):
        headers = directed(sandbox, **{"X-Access-Token": token_of(sandbox)})
        equal((await ask("POST", desk.url + path, b"{}", headers)).status, 404, f"status of {path}")


def token_of(sandbox) -> str:
    """The access token, which the package keeps to itself."""
    return getattr(sandbox, "thing", sandbox)._envd_access_token
