// Servers from PyPI and npm, by what they are for.

import { equal, holds, test } from "../suite.js";

const DOCUMENT = "mcp://everything/demo://resource/static/document/features.md";

test("servers/the_time_is_told_and_converted", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => {
    const asked = { source_timezone: "UTC", time: "12:00", target_timezone: "Asia/Tokyo" };
    const found = JSON.parse(await link.text("time__convert_time", asked));
    holds(found.target.datetime.includes("T21:00:00+09:00"), `noon in London is ${JSON.stringify(found)}`);
    const wrong = await link.call("time__get_current_time", { timezone: "Nowhere/Land" });
    equal(wrong.isError, true, "isError");
  });
});

test("servers/simple_tools_answer", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => {
    equal(await link.text("everything__echo", { message: "grüße 漢字 🙂" }), "Echo: grüße 漢字 🙂", "echo");
    equal(await link.text("everything__get-sum", { a: 17, b: 25 }), "The sum of 17 and 25 is 42.", "sum");
  });
});

test("servers/structured_content_is_as_its_schema_says", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => {
    // The client itself checks an answer against the schema of a tool that it has listed.
    await link.tools();
    const result = await link.call("everything__get-structured-content", { location: "Chicago" });
    equal(Object.keys(result.structuredContent).sort(), ["conditions", "humidity", "temperature"], "content");
  });
});

test("servers/a_directory_of_the_host_is_its_workspace", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => {
    const allowed = await link.text("files__list_allowed_directories");
    holds(allowed.includes("/workspace") && !allowed.includes(desk.house.files), `it may see ${allowed}`);
    equal((await link.text("files__read_text_file", { path: "/workspace/greeting.txt" })).trim(), "hello", "file");
    const written = await link.call("files__write_file", { path: "/workspace/new.txt", content: "x" });
    equal(written.isError, true, "isError of a write");
  });
});

test("servers/resources_are_listed_and_read", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => {
    const listed = (await link.all("listResources", "resources")).map((it) => it.uri);
    holds(listed.includes(DOCUMENT), `resources are ${listed}`);
    const { contents } = await link.client.readResource({ uri: DOCUMENT });
    equal(contents[0].uri, DOCUMENT, "address");
    const templates = (await link.all("listResourceTemplates", "resourceTemplates")).map((it) => it.uriTemplate);
    const template = "mcp://everything/demo://resource/dynamic/text/{resourceId}";
    holds(templates.includes(template), `templates are ${templates}`);
    const made = await link.client.readResource({ uri: template.replace("{resourceId}", "7") });
    holds(made.contents[0].text.startsWith("Resource 7:"), `the resource is ${JSON.stringify(made)}`);
  });
});

test("servers/prompts_are_listed_got_and_completed", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => {
    const listed = (await link.all("listPrompts", "prompts")).map((it) => it.name);
    holds(listed.includes("everything__args-prompt"), `prompts are ${listed}`);
    const given = { name: "everything__args-prompt", arguments: { city: "Paris", state: "Texas" } };
    const { messages } = await link.client.getPrompt(given);
    equal(messages[0].content.text, "What's weather in Paris, Texas?", "prompt");
    const ref = { type: "ref/prompt", name: "everything__completable-prompt" };
    const found = await link.client.complete({ ref, argument: { name: "department", value: "S" } });
    equal(found.completion.values, ["Sales", "Support"], "completions");
  });
});
