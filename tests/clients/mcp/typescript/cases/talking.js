// What happens while a call is on its way.

import { Ears, NAME, ROOT, SAMPLED } from "../link.js";
import { equal, holds, test, until } from "../suite.js";

test("talking/progress_comes_in_its_order_before_the_answer", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => {
    const steps = [];
    const options = { onprogress: (step) => steps.push([step.progress, step.total]) };
    const result = await link.call("everything__trigger-long-running-operation", { duration: 0.5, steps: 5 }, options);
    // Over the oldest transport, the first generation of the client forgets a call before it looks at a step that came in one piece
    // with the answer.
    const isLastSeen = desk.options.generation > 1 || desk.options.transport !== "sse" || steps.length > 4;
    equal(steps, (isLastSeen ? [1, 2, 3, 4, 5] : [1, 2, 3, 4]).map((step) => [step, 5]), "progress before the answer");
    holds(result.content[0].text.includes("completed"), "it was completed");
  });
});

test("talking/a_cancelled_call_is_cancelled_in_the_box", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => {
    const count = async () => Number(await link.text("observer__cancellations"));
    const before = await count();
    const control = new AbortController();
    const options = { signal: control.signal, onprogress: () => control.abort("enough") };
    const ended = await link.call("observer__wait", {}, options).then(() => "answered", () => "cancelled");
    equal(ended, "cancelled", "the end of the call");
    await until(async () => (await count()) === before + 1, "the server has cancelled it");
  });
});

test("talking/a_server_that_samples_asks_the_client_of_the_call", ["served"], async (desk) => {
  const ears = new Ears();
  const work = async (link) => {
    const told = await link.text("everything__trigger-sampling-request", { prompt: "what now?", maxTokens: 10 });
    holds(told.includes(SAMPLED), `the answer is ${told}`);
    equal(ears.asked.length, 1, "questions");
  };
  await desk.client("/mcp", work, ears);
});

test("talking/a_server_that_elicits_asks_the_client_of_the_call", ["served"], async (desk) => {
  const work = async (link) => {
    const result = await link.call("everything__trigger-elicitation-request");
    holds(JSON.stringify(result.content).includes(NAME), `the answer is ${JSON.stringify(result)}`);
  };
  await desk.client("/mcp", work, new Ears());
});

test("talking/a_server_that_wants_roots_gets_those_of_the_client", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => equal(await link.text("observer__roots"), ROOT, "roots"), new Ears());
});

test("talking/a_client_hears_what_it_asked_to_hear", ["served", "handshake"], async (desk) => {
  const ears = new Ears();
  const work = async (link) => {
    await link.client.setLoggingLevel("error");
    await link.text("observer__say", { level: "info", text: "too quiet" });
    await link.text("observer__say", { level: "error", text: "loud enough" });
    const heard = () => ears.logs.map((it) => it.data).filter((it) => ["too quiet", "loud enough"].includes(it));
    equal(await until(() => heard().length > 0 && heard(), "something is logged"), ["loud enough"], "what is heard");
  };
  await desk.client("/mcp", work, ears);
});

test("talking/a_watched_resource_tells_of_its_changes", ["served", "handshake"], async (desk) => {
  const ears = new Ears();
  const uri = "mcp://everything/demo://resource/static/document/features.md";
  const work = async (link) => {
    await link.client.subscribeResource({ uri });
    await link.text("everything__toggle-subscriber-updates");
    try {
      equal((await until(() => ears.updated.length > 0 && ears.updated, "a change is told"))[0], uri, "what changed");
    } finally {
      await link.text("everything__toggle-subscriber-updates");
      await link.client.unsubscribeResource({ uri });
    }
  };
  await desk.client("/mcp", work, ears);
});
