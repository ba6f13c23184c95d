"""`@modelcontextprotocol/server-everything` from npm, run by npx."""

import base64

from link import Ears
from suite import case, equal, holds, until

DOCUMENT = "mcp://everything/demo://resource/static/document/features.md"


@case()
async def simple_tools_answer(desk):
    async with desk.connect() as link:
        equal(await link.text("everything__echo", message="grüße 漢字 🙂"), "Echo: grüße 漢字 🙂", "echo")
        equal(await link.text("everything__get-sum", a=17, b=25), "The sum of 17 and 25 is 42.", "sum")


@case()
async def schemas_and_structured_content_come_through(desk):
    async with desk.connect() as link:
        tool = (await link.tools())["everything__get-structured-content"]
        holds("location" in tool["inputSchema"]["properties"], f"the tool is {tool}")
        result = await link.call("everything__get-structured-content", {"location": "Chicago"})
        found = result.get("structuredContent")
        # Clients from before 2025-06-18 may leave it out; the text is there for them.
        if found is not None:
            equal(set(found), {"temperature", "conditions", "humidity"}, "structured content")
        holds("humidity" in result["content"][0]["text"], f"the text is {result}")


@case()
async def an_image_comes_whole(desk):
    async with desk.connect() as link:
        result = await link.call("everything__get-tiny-image")
        image = next(block for block in result["content"] if block["type"] == "image")
        holds(base64.b64decode(image["data"]).startswith(b"\x89PNG"), "it is a picture")


@case()
async def progress_comes_in_its_order_before_the_answer(desk):
    steps = []

    async def on_progress(progress, total, *_) -> None:
        steps.append((progress, total))

    async with desk.connect() as link:
        asked = {"duration": 0.5, "steps": 5}
        result = await link.call("everything__trigger-long-running-operation", asked, on_progress)
        equal(steps, [(float(n), 5.0) for n in range(1, 6)], "progress before the answer")
        holds("completed" in result["content"][0]["text"], f"the answer is {result}")


@case()
async def a_server_that_samples_asks_the_client_of_the_call(desk):
    ears = Ears()
    async with desk.connect(ears=ears) as link:
        told = await link.text("everything__trigger-sampling-request", prompt="what now?", maxTokens=10)
        holds(Ears.SAMPLED in told, f"the answer is {told}")
        equal(len(ears.asked), 1, "questions")
        holds("what now?" in str(ears.asked[0]["messages"]), f"the question is {ears.asked}")


@case()
async def a_client_that_does_not_sample_is_not_asked(desk):
    async with desk.connect() as link:
        result = await link.call("everything__trigger-sampling-request", {"prompt": "what now?"})
        equal(result.get("isError"), True, "isError")


@case("elicitation")
async def a_server_that_elicits_asks_the_client_of_the_call(desk):
    ears = Ears()
    async with desk.connect(ears=ears) as link:
        result = await link.call("everything__trigger-elicitation-request")
        holds(Ears.NAME in str(result["content"]), f"the answer is {result}")
        holds("name" in ears.asked[0]["requestedSchema"]["properties"], f"the question is {ears.asked}")


@case()
async def resources_are_listed_and_read(desk):
    async with desk.connect() as link:
        listed = {it["uri"] for it in await link.pages("list_resources", "resources")}
        holds(DOCUMENT in listed, f"resources are {sorted(listed)}")
        document = await link.read(DOCUMENT)
        equal(document["uri"], DOCUMENT, "address")
        holds(len(document["text"]) > 100, "it has a text")
        templates = {it["uriTemplate"] for it in await link.pages("list_resource_templates", "resourceTemplates")}
        template = "mcp://everything/demo://resource/dynamic/text/{resourceId}"
        holds(template in templates, f"templates are {templates}")
        made = await link.read(template.replace("{resourceId}", "7"))
        holds(made["text"].startswith("Resource 7:"), f"the resource is {made}")


@case()
async def prompts_are_listed_got_and_completed(desk):
    async with desk.connect() as link:
        listed = {it["name"] for it in await link.pages("list_prompts", "prompts")}
        holds({"everything__simple-prompt", "everything__args-prompt"} <= listed, f"prompts are {listed}")
        told = await link.prompt("everything__args-prompt", city="Paris", state="Texas")
        equal(told, "What's weather in Paris, Texas?", "prompt")
        found = await link.complete("everything__completable-prompt", "department", "S")
        equal(found, ["Sales", "Support"], "completions")


@case("handshake")
async def a_watched_resource_tells_of_its_changes(desk):
    ears = Ears()
    async with desk.connect(ears=ears) as link:
        await link.client.subscribe_resource(DOCUMENT)
        try:
            await link.text("everything__toggle-subscriber-updates")

            async def told():
                return ears.updated

            equal((await until(told, "a change is told"))[0], DOCUMENT, "what changed")
        finally:
            await link.text("everything__toggle-subscriber-updates")
            await link.client.unsubscribe_resource(DOCUMENT)


@case("handshake")
async def what_a_server_logs_is_heard_from_the_level_on_that_was_asked(desk):
    ears = Ears()
    async with desk.connect(ears=ears) as link:
        await link.client.set_logging_level("debug")
        await link.text("everything__toggle-simulated-logging")

        async def heard():
            return ears.logs

        try:
            holds("message" in (await until(heard, "something is logged"))[0]["data"], f"the log is {ears.logs}")
        finally:
            await link.text("everything__toggle-simulated-logging")
