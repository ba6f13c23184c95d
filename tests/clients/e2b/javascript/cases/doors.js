// Who may come in.

import { AuthenticationError, Sandbox, SandboxNotFoundError } from "e2b";
import { equal, raises, test } from "../suite.js";

test("doors/a_wrong_key_opens_nothing", ["guarded"], async (desk) => {
  const wrong = desk.behindTokens(`e2b_${"1".repeat(40)}`);
  await raises(AuthenticationError, Sandbox.create("base", wrong));
  await raises(AuthenticationError, Sandbox.list(wrong).nextItems());
  await raises(AuthenticationError, Sandbox.getInfo(`i${"0".repeat(19)}`, wrong));
});

test("doors/tenants_find_nothing_of_each_other", ["guarded"], async (desk) => {
  const [left, right] = [desk.behindTokens("left"), desk.behindTokens("right")];
  const sandbox = await desk.sandbox(left);
  equal((await sandbox.commands.run("echo in")).stdout, "in\n", "output");
  await raises(SandboxNotFoundError, Sandbox.getInfo(sandbox.sandboxId, right));
  await raises(SandboxNotFoundError, Sandbox.connect(sandbox.sandboxId, right));
  equal(await Sandbox.kill(sandbox.sandboxId, right), false, "kill by the other");
  const query = { metadata: { mark: desk.mark } };
  equal((await Sandbox.list({ ...right, query }).nextItems()).length, 0, "what the other lists");
  equal((await Sandbox.list({ ...left, query }).nextItems()).length, 1, "what its tenant lists");
});

test("doors/without_its_token_a_sandbox_is_closed", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const headers = { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": "49983", "Content-Type": "application/json" };
  const answer = await fetch(`${desk.url}/process.Process/List`, { method: "POST", headers, body: "{}" });
  equal([answer.status, (await answer.json()).code], [401, 401], "answer");
});
