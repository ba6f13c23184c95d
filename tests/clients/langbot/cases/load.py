"""Much at once through one connection."""

import asyncio

from langbot_plugin.box.errors import BoxError

from gate import Gate
from suite import case, equal, holds, raises


@case(limit_sec=120)
async def fifty_sessions_work_in_parallel_through_one_connection(box, ground):
    async def life(number: int) -> str:
        await box.run(f"echo {number} > /tmp/mine", f"n{number}")
        return (await box.run("cat /tmp/mine", f"n{number}")).stdout

    equal(await asyncio.gather(*(life(n) for n in range(50))), [str(n) for n in range(50)], "answers")


@case()
async def a_quick_answer_overtakes_a_slow_one(box, ground):
    gate = Gate(box, ground)
    slow = asyncio.create_task(box.run(gate.script("echo slow"), **gate.fields()))
    for number in range(20):
        equal((await box.run(f"echo {number}", "quick")).stdout, str(number), "quick answer")
        await box.link.client_call("ping")
    holds(not slow.done(), "the slow command has ended")
    gate.open()
    equal((await slow).stdout, "slow", "slow answer")


@case("tenancy", limit_sec=120)
async def the_129th_request_at_once_is_told_that_the_connection_is_busy(box, ground):
    async with ground.fresh() as link:
        own = link.box()
        gate = Gate(own, ground)
        fields = gate.fields() | {"pids_limit": 1024}
        await own.create_session(own.spec(**fields))
        waiting = [asyncio.create_task(own.run(gate.script("echo ran"), **fields)) for _ in range(128)]
        await asyncio.sleep(0)
        busy = await raises(BoxError, own.get_status())
        holds("Runtime connection is busy (max 128 concurrent actions)" in str(busy), f"the answer is {busy}")
        gate.open()
        equal({result.stdout for result in await asyncio.gather(*waiting)}, {"ran"}, "results")
        equal((await own.run("echo on", **fields)).stdout, "on", "the next command")


@case()
async def a_thousand_pings_are_answered(box, ground):
    for _ in range(10):
        await asyncio.gather(*(box.link.client_call("ping") for _ in range(100)))
