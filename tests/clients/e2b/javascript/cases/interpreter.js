// Code that is run statement by statement, by `@e2b/code-interpreter`.

import { NotFoundError, TimeoutError } from "@e2b/code-interpreter";
import { Heard } from "../desk.js";
import { Skip, equal, holds, raises, test } from "../suite.js";

test("interpreter/the_last_expression_is_the_result", [], async (desk) => {
  const sandbox = await desk.interpreter();
  const run = await sandbox.runCode("x = 20\nx * 2 + 2");
  equal([run.text, run.error ?? null, run.logs.stdout], ["42", null, []], "run");
  equal((await sandbox.runCode("x + 1")).text, "21", "state");
});

test("interpreter/output_and_errors_come_apart", [], async (desk) => {
  const sandbox = await desk.interpreter();
  const heard = [];
  const code = "import sys\nprint('größe 漢字 🙂')\nprint('oh', file=sys.stderr)";
  const { logs } = await sandbox.runCode(code, { onStdout: (message) => heard.push(message.line) });
  equal([logs.stdout.join(""), logs.stderr.join("")], ["größe 漢字 🙂\n", "oh\n"], "logs");
  equal(heard.join(""), "größe 漢字 🙂\n", "what was told");
});

test("interpreter/much_text_of_all_scripts_comes_whole", [], async (desk) => {
  const sandbox = await desk.interpreter();
  const { logs } = await sandbox.runCode("for n in range(5000):\n    print(n, 'größe 漢字 🙂')");
  const expected = Array.from({ length: 5000 }, (_, n) => `${n} größe 漢字 🙂\n`).join("");
  holds(logs.stdout.join("") === expected, "the output is whole");
});

test("interpreter/an_error_has_a_name_a_value_and_a_traceback", [], async (desk) => {
  const sandbox = await desk.interpreter();
  const { error } = await sandbox.runCode("def fail():\n    return 1 / 0\nfail()");
  equal([error.name, error.value], ["ZeroDivisionError", "division by zero"], "error");
  holds(error.traceback.includes("fail"), `the traceback is ${error.traceback}`);
});

test("interpreter/variables_are_for_one_run", [], async (desk) => {
  const sandbox = await desk.interpreter({ envs: { KEPT: "sandbox" } });
  const code = "import os\nos.environ.get('KEPT'), os.environ.get('ONCE')";
  equal((await sandbox.runCode(code, { envs: { ONCE: "run" } })).text, "('sandbox', 'run')", "with it");
  equal((await sandbox.runCode(code)).text, "('sandbox', None)", "without it");
});

test("interpreter/a_run_out_of_time_is_interrupted_and_state_is_kept", [], async (desk) => {
  const sandbox = await desk.interpreter();
  await sandbox.runCode("x = 7");
  await raises(TimeoutError, sandbox.runCode("while True:\n    pass", { timeoutMs: 2_000 }));
  equal((await sandbox.runCode("x", { timeoutMs: 20_000 })).text, "7", "the next run");
});

test("interpreter/a_sandbox_that_is_killed_ends_its_cells_with_an_error", [], async (desk) => {
  const sandbox = await desk.interpreter();
  const heard = new Heard();
  const code = "import time\nprint('begun', flush=True)\ntime.sleep(60)";
  const running = sandbox.runCode(code, { onStdout: (message) => heard.hear(message.line) });
  const ended = raises(TimeoutError, running, "was killed");
  await heard.has("begun");
  await sandbox.kill();
  await ended;
});

test("interpreter/contexts_know_nothing_of_each_other", [], async (desk) => {
  const sandbox = await desk.interpreter();
  const [one, other] = [await sandbox.createCodeContext(), await sandbox.createCodeContext({ cwd: "/tmp" })];
  await sandbox.runCode("x = 'one'", { context: one });
  equal((await sandbox.runCode("x", { context: other })).error.name, "NameError", "error");
  equal((await sandbox.runCode("x", { context: one })).text, "one", "text");
  const listed = (await sandbox.listCodeContexts()).map((it) => it.id);
  holds(listed.includes(one.id) && listed.includes(other.id), `contexts are ${listed}`);
  await sandbox.restartCodeContext(one);
  equal((await sandbox.runCode("x", { context: one })).error.name, "NameError", "error after a restart");
  await sandbox.removeCodeContext(one);
  await raises(NotFoundError, sandbox.runCode("1", { context: one }));
});

test("interpreter/bash_and_javascript_are_languages", [], async (desk) => {
  const sandbox = await desk.interpreter();
  const { logs } = await sandbox.runCode("WORD=hello; echo $WORD", { language: "bash" });
  equal(logs.stdout.join(""), "hello\n", "bash");
  if (!(await sandbox.commands.run("command -v node || true")).stdout) throw new Skip("there is no node in the sandbox");
  equal((await sandbox.runCode("[1, 2, 3].length + 39", { language: "js" })).text, "42", "javascript");
});
