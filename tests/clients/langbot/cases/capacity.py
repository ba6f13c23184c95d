"""Limits on how much there may be at once."""

from langbot_plugin.box import errors

from suite import case, equal, raises


@case("capacity")
async def one_session_too_many_is_told_of(box, ground):
    async with ground.fresh({"limits": {"max_sessions": 2}}) as link:
        own = link.box()
        for name in ["a", "b"]:
            await own.run("true", name)
        await raises(errors.BoxCapacityExceededError, own.run("true", "c"), "Box session capacity reached (2)")
        equal((await own.get_status())["capacity"], {"limit": 2, "used": 2, "remaining": 0}, "capacity")
        await own.delete_session(own.name("a"))
        equal((await own.run("echo fits", "c")).stdout, "fits", "after one has gone")


@case("capacity")
async def one_process_too_many_is_told_of(box, ground):
    async with ground.fresh({"limits": {"max_managed_processes": 1}}) as link:
        own = link.box()
        await own.start("s", "sleep", "60", process_id="a")
        call = own.start_managed_process(own.name("s"), own.process_spec("sleep", "60", process_id="b"))
        await raises(errors.BoxCapacityExceededError, call, "Box managed process capacity reached (1)")
        await own.stop_managed_process(own.name("s"), "a")
        await own.start("s", "sleep", "60", process_id="b")
