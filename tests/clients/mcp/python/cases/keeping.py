"""How servers from registries are tried, kept and started again. No client is needed for that, so it runs only once."""

from suite import case, equal, holds, until


@case("keeping", limit_sec=180.0)
async def a_trial_says_what_a_server_has_and_leaves_nothing(desk):
    before = await desk.house.sessions()
    report = await desk.house.must("POST", "/v1/mcp/test", desk.house.definition(desk.house.time))
    equal(report["ok"], True, f"the report {report}")
    equal({tool["name"] for tool in report["tools"]}, {"get_current_time", "convert_time"}, "tools")
    equal(await desk.house.sessions(), before, "sessions")


@case("keeping", limit_sec=180.0)
async def the_command_tries_a_server_too(desk):
    variables = [part for name in desk.house.env for part in ("-e", name)]
    said = await desk.house.command("mcp", "test", *variables, "--", *desk.house.time)
    holds("convert_time" in said, f"it says {said}")


@case("keeping", limit_sec=180.0)
async def a_trial_of_a_package_that_is_not_there_says_where_it_failed(desk):
    package = desk.house.definition(["uvx", "mcp-server-time==0.0.1"])
    report = await desk.house.must("POST", "/v1/mcp/test", package)
    equal((report["ok"], report["runtime_info"]["error_phase"]), (False, "mcp_init"), f"the report {report}")
    told = " ".join(report["runtime_info"]["stderr_tail"])
    holds("mcp-server-time" in told, f"its last words are {told}")


@case("keeping")
async def a_restart_downloads_nothing(desk):
    def starts(log: list[str]) -> int:
        return sum(line.startswith("keeper: started") for line in log)

    before = starts(await desk.house.log("time"))
    await desk.house.must("POST", "/v1/mcp/servers/time/restart")

    async def again():
        log = await desk.house.log("time")
        return log if starts(log) > before else None

    await until(again, "it was started again", 60.0)
    await desk.house.connected("time")
    log = await desk.house.log("time")
    latest = max(at for at, line in enumerate(log) if line.startswith("keeper: started"))
    loaded = [line for line in log[latest:] if "ownload" in line or "Installed" in line or "Prepared" in line]
    equal(loaded, [], "downloads")


@case("keeping")
async def uvx_and_npx_start_from_what_was_kept(desk):
    """They are told not to use the network, so they start only if all that they need is there."""
    house = desk.house
    await house.put("time-kept", house.definition(house.time, UV_OFFLINE="1"))
    await house.put("everything-kept", house.definition(house.everything, npm_config_offline="true"))
    try:
        async with desk.connect() as link:
            holds("UTC" in await link.text("time-kept__get_current_time", timezone="UTC"), "uvx")
            equal(await link.text("everything-kept__echo", message="npx"), "Echo: npx", "npx")
    finally:
        await house.remove("time-kept")
        await house.remove("everything-kept")


@case("keeping")
async def an_address_of_no_server_is_not_found(desk):
    hello = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    status, _ = await desk.house.ask("POST", "/mcp/nobody", hello)
    equal(status, 404, "status")
