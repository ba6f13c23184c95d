"""Lists of sandboxes: filters, pages, orders."""

from datetime import datetime, timedelta, timezone

from e2b import SandboxException, SandboxQuery, SandboxState

from suite import case, equal, holds, raises


async def pages(paginator) -> list[list]:
    """All pages; a list that never ends is a failure, too."""
    found = []
    while paginator.has_next:
        found.append(await paginator.next_items())
        holds(len(found) < 20, "the pages do not end")
    return found


async def ids(desk, **query) -> list[str]:
    """The ids of what a query finds among the sandboxes of the case."""
    query = SandboxQuery(**({"metadata": {"mark": desk.mark}} | query))
    return [it.sandbox_id for page in await pages(desk.Sandbox.list(query)) for it in page]


@case()
async def what_runs_is_listed_with_its_metadata(desk):
    sandbox = await desk.sandbox(metadata={"colour": "red"})
    listed = await pages(desk.Sandbox.list(SandboxQuery(metadata={"mark": desk.mark})))
    equal([len(page) for page in listed], [1], "pages")
    found = listed[0][0]
    equal((found.sandbox_id, found.state), (sandbox.sandbox_id, SandboxState.RUNNING), "entry")
    equal(found.metadata, {"mark": desk.mark, "colour": "red"}, "metadata")


@case()
async def all_pairs_of_a_query_must_match(desk):
    red = await desk.sandbox(metadata={"colour": "red", "size": "big"})
    await desk.sandbox(metadata={"colour": "green", "size": "big"})
    equal(await ids(desk, metadata={"mark": desk.mark, "colour": "red", "size": "big"}), [red.sandbox_id], "found")
    equal(await ids(desk, metadata={"mark": desk.mark, "colour": "red", "size": "small"}), [], "found")


@case()
async def metadata_of_any_letters_can_be_searched(desk):
    strange = {"a key & more=": "50% of größe, 1+1 = 2 & 漢字"}
    sandbox = await desk.sandbox(metadata=strange)
    equal(await ids(desk, metadata={"mark": desk.mark} | strange), [sandbox.sandbox_id], "found")
    equal(await ids(desk, metadata={"mark": desk.mark, "a key & more=": "50%"}), [], "found")


@case()
async def pages_are_newest_first_and_have_everything_once(desk):
    made = [(await desk.sandbox()).sandbox_id for _ in range(5)]
    listed = await pages(desk.Sandbox.list(SandboxQuery(metadata={"mark": desk.mark}), limit=2))
    equal([len(page) for page in listed], [2, 2, 1], "pages")
    equal([it.sandbox_id for page in listed for it in page], made[::-1], "order")


@case()
async def a_list_goes_on_from_a_token(desk):
    made = [(await desk.sandbox()).sandbox_id for _ in range(3)]
    query = SandboxQuery(metadata={"mark": desk.mark})
    first = desk.Sandbox.list(query, limit=2)
    await first.next_items()
    rest = await pages(desk.Sandbox.list(query, limit=2, next_token=first.next_token))
    equal([it.sandbox_id for page in rest for it in page], made[:1], "the rest")


@case()
async def a_token_of_nobody_is_refused(desk):
    listed = desk.Sandbox.list(SandboxQuery(metadata={"mark": desk.mark}), limit=2, next_token="no such token")
    await raises(SandboxException, listed.next_items(), "400")


@case()
async def states_can_be_asked_for(desk):
    running, paused = await desk.sandbox(), await desk.sandbox()
    await desk.Sandbox.pause(paused.sandbox_id)
    equal(await ids(desk, state=[SandboxState.RUNNING]), [running.sandbox_id], "running")
    equal(await ids(desk, state=[SandboxState.PAUSED]), [paused.sandbox_id], "paused")
    both = {running.sandbox_id, paused.sandbox_id}
    equal(set(await ids(desk, state=[SandboxState.RUNNING, SandboxState.PAUSED])), both, "both")


@case()
async def what_was_killed_is_not_listed(desk):
    sandbox = await desk.sandbox()
    await sandbox.kill()
    equal(await ids(desk), [], "found")


@case("since-2.45")
async def a_list_can_be_oldest_first(desk):
    made = [(await desk.sandbox()).sandbox_id for _ in range(3)]
    listed = await pages(desk.Sandbox.list(SandboxQuery(metadata={"mark": desk.mark}), limit=2, order="asc"))
    equal([it.sandbox_id for page in listed for it in page], made, "order")


@case("since-2.45")
async def a_list_can_begin_at_a_time(desk):
    sandbox = await desk.sandbox()
    begun = (await sandbox.get_info()).started_at
    hour = timedelta(hours=1)
    equal(await ids(desk, started_after=begun - hour), [sandbox.sandbox_id], "later than an hour before")
    equal(await ids(desk, started_after=datetime.now(timezone.utc) + hour), [], "later than in an hour")


@case("since-2.45")
async def a_list_can_be_of_one_template(desk):
    sandbox = await desk.sandbox()
    equal(await ids(desk, template="base"), [sandbox.sandbox_id], "base")
    equal(await ids(desk, template="another"), [], "another")
