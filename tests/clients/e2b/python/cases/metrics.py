"""What a sandbox uses."""

from datetime import datetime, timedelta, timezone

from link import MetricsMissing
from suite import case, equal, holds, raises, until


@case()
async def a_sandbox_tells_what_it_uses(desk):
    sandbox = await desk.sandbox()
    await sandbox.commands.run("head -c 20000000 /dev/zero | sort > /dev/null")

    async def measured():
        # What was measured first may be from before anything ran.
        return next((it for it in reversed(await sandbox.get_metrics()) if it.mem_used > 0), None)

    found = await until(measured, "there are metrics with memory in use", 30)
    holds(found.cpu_count >= 1 and found.cpu_used_pct >= 0, f"CPU is {found}")
    holds(found.mem_used <= found.mem_total, f"memory is {found}")
    holds(0 <= found.disk_used <= found.disk_total, f"disk is {found}")
    holds(abs(found.timestamp - datetime.now(timezone.utc)) < timedelta(minutes=1), f"time is {found.timestamp}")


@case()
async def metrics_can_be_asked_for_by_id_and_time(desk):
    sandbox = await desk.sandbox()
    await until(sandbox.get_metrics, "there are metrics", 30)
    hour = timedelta(hours=1)
    now = datetime.now(timezone.utc)
    equal(await desk.Sandbox.get_metrics(sandbox.sandbox_id, start=now - 2 * hour, end=now - hour), [], "an hour ago")
    holds(await desk.Sandbox.get_metrics(sandbox.sandbox_id, start=now - hour, end=now + hour), "there are some now")


@case()
async def a_dead_sandbox_has_no_metrics(desk):
    sandbox = await desk.sandbox()
    await sandbox.kill()
    await raises(MetricsMissing, sandbox.get_metrics())
