// Sandboxes come, are found again, live longer or shorter, wait, and go.

import { Sandbox, SandboxError, SandboxNotFoundError, TimeoutError } from "e2b";
import { equal, holds, raises, test, until } from "../suite.js";

const UNKNOWN = `i${"0".repeat(19)}`;
// What a slow machine may differ by.
const SLACK_MS = 8_000;

const endsIn = async (sandbox) => (await sandbox.getInfo()).endAt.getTime() - Date.now();
const about = (found, expected, what) =>
  holds(Math.abs(found - expected) < SLACK_MS, `${what} is in ${found} ms, not in ${expected} ms`);

async function pages(paginator) {
  const found = [];
  while (paginator.hasNext) {
    found.push(await paginator.nextItems());
    holds(found.length < 20, "the pages do not end");
  }
  return found;
}

const ids = async (desk, query = {}, options = {}) =>
  (await pages(Sandbox.list({ query: { metadata: { mark: desk.mark }, ...query }, ...options })))
    .flat()
    .map((it) => it.sandboxId);

test("lifecycle/a_sandbox_is_made_and_says_what_it_is", [], async (desk) => {
  const sandbox = await desk.sandbox({ metadata: { purpose: "größe 漢字" }, timeoutMs: 120_000 });
  const info = await sandbox.getInfo();
  equal(info.sandboxId, sandbox.sandboxId, "id");
  equal(info.metadata.purpose, "größe 漢字", "metadata");
  equal(info.state, "running", "state");
  holds(info.cpuCount >= 1 && info.memoryMB >= 1, `it has ${info.cpuCount} CPUs and ${info.memoryMB} MB`);
  about(info.startedAt.getTime() - Date.now(), 0, "its beginning");
  about(await endsIn(sandbox), 120_000, "its end");
});

test("lifecycle/a_killed_sandbox_is_gone_and_killing_it_again_says_so", [], async (desk) => {
  const sandbox = await desk.sandbox();
  equal(await sandbox.isRunning(), true, "isRunning");
  equal([await sandbox.kill(), await sandbox.kill(), await Sandbox.kill(sandbox.sandboxId)], [true, false, false], "kills");
  equal(await sandbox.isRunning(), false, "isRunning");
  await raises(SandboxNotFoundError, sandbox.getInfo());
});

test("lifecycle/an_unknown_id_is_not_found", [], async () => {
  await raises(SandboxNotFoundError, Sandbox.getInfo(UNKNOWN));
  await raises(SandboxNotFoundError, Sandbox.connect(UNKNOWN));
  await raises(SandboxNotFoundError, Sandbox.setTimeout(UNKNOWN, 60_000));
  equal(await Sandbox.kill(UNKNOWN), false, "kill");
});

test("lifecycle/set_timeout_lengthens_and_shortens", [], async (desk) => {
  const sandbox = await desk.sandbox({ timeoutMs: 120_000 });
  for (const ms of [600_000, 60_000]) {
    await sandbox.setTimeout(ms);
    about(await endsIn(sandbox), ms, "its end");
  }
});

test("lifecycle/a_sandbox_ends_when_its_time_is_over", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.setTimeout(1_000);
  await until(async () => !(await sandbox.isRunning()), "it is gone", 20_000);
  await raises(SandboxNotFoundError, sandbox.getInfo());
});

test("lifecycle/connecting_never_shortens_a_life", [], async (desk) => {
  const sandbox = await desk.sandbox({ timeoutMs: 300_000 });
  const before = (await sandbox.getInfo()).endAt;
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 30_000 });
  holds((await sandbox.getInfo()).endAt >= before, "its end did not come nearer");
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 900_000 });
  about(await endsIn(sandbox), 900_000, "its end");
});

test("lifecycle/a_life_is_five_minutes_unless_said", [], async (desk) => {
  const sandbox = desk.keep(await Sandbox.create());
  about(await endsIn(sandbox), 300_000, "its end");
});

test("lifecycle/a_sandbox_is_found_again_by_its_id", [], async (desk) => {
  const first = await desk.sandbox({ envs: { SAID: "at the beginning" } });
  await first.files.write("/home/user/note", "kept");
  const second = await Sandbox.connect(first.sandboxId);
  equal(await second.files.read("/home/user/note"), "kept", "file");
  equal((await second.commands.run("echo $SAID")).stdout, "at the beginning\n", "output");
});

test("lifecycle/an_unknown_template_is_refused", [], async (desk) => {
  await raises(SandboxError, desk.sandbox({ template: "no-such-template-here" }), "404");
});

test("lifecycle/what_runs_is_listed_in_pages_newest_first", [], async (desk) => {
  const made = [];
  for (let n = 0; n < 3; n += 1) made.push((await desk.sandbox()).sandboxId);
  const listed = await pages(Sandbox.list({ query: { metadata: { mark: desk.mark } }, limit: 2 }));
  equal(listed.map((page) => page.length), [2, 1], "pages");
  equal(listed.flat().map((it) => it.sandboxId), made.toReversed(), "order");
  equal(await ids(desk, {}, { order: "asc" }), made, "the other order");
});

test("lifecycle/metadata_of_any_letters_can_be_searched", [], async (desk) => {
  const strange = { "a key & more=": "50% of größe, 1+1 = 2 & 漢字" };
  const sandbox = await desk.sandbox({ metadata: strange });
  equal(await ids(desk, { metadata: { mark: desk.mark, ...strange } }), [sandbox.sandboxId], "found");
  equal(await ids(desk, { metadata: { mark: desk.mark, "a key & more=": "50%" } }), [], "found");
});

test("lifecycle/states_can_be_asked_for", [], async (desk) => {
  const [running, paused] = [await desk.sandbox(), await desk.sandbox()];
  await paused.pause();
  equal(await ids(desk, { state: ["running"] }), [running.sandboxId], "running");
  equal(await ids(desk, { state: ["paused"] }), [paused.sandboxId], "paused");
  equal((await ids(desk, { state: ["running", "paused"] })).length, 2, "both");
});

test("lifecycle/a_paused_sandbox_waits_and_is_woken_by_connecting", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.write("/home/user/note", "kept");
  equal([await sandbox.pause(), await sandbox.pause()], [true, false], "pauses");
  equal(await sandbox.isRunning(), false, "isRunning");
  const again = await Sandbox.connect(sandbox.sandboxId);
  equal(await again.files.read("/home/user/note"), "kept", "file");
  equal((await again.getInfo()).state, "running", "state");
});

test("lifecycle/who_comes_wakes_a_sandbox_that_was_made_for_it", [], async (desk) => {
  const sandbox = await desk.sandbox({ lifecycle: { onTimeout: "pause", autoResume: true } });
  await sandbox.setTimeout(1_000);
  await until(async () => (await Sandbox.getInfo(sandbox.sandboxId)).state === "paused", "it is paused", 20_000);
  equal((await sandbox.commands.run("echo woken")).stdout, "woken\n", "output");
});

test("lifecycle/a_sandbox_tells_what_it_uses", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const [found] = await until(async () => {
    await sandbox.commands.run("true");
    const metrics = (await sandbox.getMetrics()).filter((it) => it.memUsed > 0);
    return metrics.length > 0 && metrics;
  }, "there are metrics with memory in use", 30_000);
  holds(found.cpuCount >= 1 && found.memTotal > 0 && found.memUsed > 0, `metrics are ${JSON.stringify(found)}`);
});

test("lifecycle/a_dead_sandbox_runs_nothing", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.kill();
  await raises(SandboxNotFoundError, sandbox.commands.run("true"));
  await raises(TimeoutError, sandbox.commands.list());
});
