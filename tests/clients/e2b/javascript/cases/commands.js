// Commands: what comes back, what they run in, and how they are spoken to.

import {
  AuthenticationError,
  CommandExitError,
  InvalidArgumentError,
  NotFoundError,
  Sandbox,
  SandboxError,
  TimeoutError,
} from "e2b";
import { Heard } from "../desk.js";
import { equal, holds, raises, test, until } from "../suite.js";

// Lines of seven bytes: far more than servers keep that are started for this, before and after a line of input.
const MORE_THAN_IS_KEPT = "seq 100000 549999; touch /tmp/said; read line; seq 550000 999999";

test("commands/streams_and_exit_code_come_back", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const { stdout, stderr, exitCode } = await sandbox.commands.run("echo out; echo err >&2");
  equal([stdout, stderr, exitCode], ["out\n", "err\n", 0], "result");
});

test("commands/an_exit_code_is_thrown_with_the_streams", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const error = await raises(CommandExitError, sandbox.commands.run("echo out; echo err >&2; exit 3"));
  equal([error.stdout, error.stderr, error.exitCode, error.error], ["out\n", "err\n", 3, "exit status 3"], "error");
});

test("commands/output_is_told_while_it_comes", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const [out, err] = [new Heard(), new Heard()];
  const options = { onStdout: out.hear, onStderr: err.hear };
  await sandbox.commands.run("echo one; sleep 0.7; echo two; echo oh >&2", options);
  equal([out.text, err.text], ["one\ntwo\n", "oh\n"], "what was told");
  holds(out.pieces.length >= 2, `it came as ${JSON.stringify(out.pieces)}`);
});

test("commands/text_of_all_scripts_survives", [], async (desk) => {
  const sandbox = await desk.sandbox();
  equal((await sandbox.commands.run("echo 'größe 漢字 🙂'")).stdout, "größe 漢字 🙂\n", "text");
});

test("commands/two_megabytes_of_output_come_whole", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const { stdout } = await sandbox.commands.run("seq 1 300000", { timeoutMs: 100_000 });
  const expected = Array.from({ length: 300_000 }, (_, n) => `${n + 1}\n`).join("");
  holds(stdout === expected, `the output has ${stdout.length} characters, not ${expected.length}`);
});

test("commands/users_places_and_variables_are_those_asked_for", [], async (desk) => {
  const sandbox = await desk.sandbox({ envs: { KEPT: "sandbox", CHANGED: "sandbox" } });
  const command = 'echo "$(whoami) $PWD $KEPT $CHANGED"';
  equal((await sandbox.commands.run(command)).stdout, "user /home/user sandbox sandbox\n", "as it is");
  const options = { user: "root", cwd: "/tmp", envs: { CHANGED: "command" } };
  equal((await sandbox.commands.run(command, options)).stdout, "root /tmp sandbox command\n", "as asked for");
});

test("commands/a_place_that_is_not_there_is_refused", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await raises(InvalidArgumentError, sandbox.commands.run("pwd", { cwd: "/no/such/place" }), "/no/such/place", "does not exist");
});

test("commands/an_unknown_user_is_refused", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await raises(AuthenticationError, sandbox.commands.run("true", { user: "stranger" }));
});

test("commands/a_command_out_of_time_is_ended", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await raises(TimeoutError, sandbox.commands.run("sleep 321", { timeoutMs: 1_000 }));
  await until(async () => (await sandbox.commands.list()).length === 0, "it is gone", 20_000);
});

test("commands/a_command_runs_on_and_is_waited_for", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const handle = await sandbox.commands.run("sleep 0.5; echo done", { background: true });
  const { stdout, exitCode } = await handle.wait();
  equal([stdout, exitCode, handle.stdout], ["done\n", 0, "done\n"], "result");
});

test("commands/what_runs_is_listed_as_it_was_asked_for", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const handle = await sandbox.commands.run("sleep 60", { background: true, cwd: "/tmp", envs: { A: "1" } });
  const listed = await sandbox.commands.list();
  const expected = [handle.pid, "/bin/bash", ["-l", "-c", "sleep 60"], "/tmp", { A: "1" }];
  equal(listed.map((it) => [it.pid, it.cmd, it.args, it.cwd, it.envs]), [expected], "commands");
});

test("commands/a_command_is_killed_once", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const handle = await sandbox.commands.run("sleep 60", { background: true });
  equal(await handle.kill(), true, "the first kill");
  equal((await raises(CommandExitError, handle.wait())).exitCode, -1, "exit code");
  await until(async () => !(await sandbox.commands.kill(handle.pid)), "killing it says that it is gone", 20_000);
});

test("commands/an_unknown_pid_is_not_found", [], async (desk) => {
  const sandbox = await desk.sandbox();
  equal(await sandbox.commands.kill(999_999), false, "kill");
  await raises(NotFoundError, sandbox.commands.connect(999_999));
  await raises(NotFoundError, sandbox.commands.sendStdin(999_999, "x"));
});

test("commands/a_command_reads_what_is_sent_until_its_end", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const handle = await sandbox.commands.run("cat", { background: true, stdin: true });
  await sandbox.commands.sendStdin(handle.pid, "größe\n");
  await handle.sendStdin("漢字\n");
  await handle.closeStdin();
  equal((await handle.wait()).stdout, "größe\n漢字\n", "output");
});

test("commands/a_command_without_input_takes_none", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const handle = await sandbox.commands.run("sleep 60", { background: true });
  await raises(SandboxError, sandbox.commands.sendStdin(handle.pid, "x"));
});

test("commands/who_leaves_does_not_end_a_command_and_can_come_back", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const handle = await sandbox.commands.run("read line; echo $line; exit 5", { background: true, stdin: true });
  await handle.disconnect();
  const other = await Sandbox.connect(sandbox.sandboxId);
  const again = await other.commands.connect(handle.pid);
  await other.commands.sendStdin(handle.pid, "second\n");
  const error = await raises(CommandExitError, again.wait());
  equal([error.stdout, error.exitCode], ["second\n", 5], "end");
});

test("commands/who_comes_late_hears_everything_from_the_start", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const line = "for n in $(seq 100); do echo line $n; done; touch /tmp/said; read line; echo $line";
  const handle = await sandbox.commands.run(line, { background: true, stdin: true });
  await handle.disconnect();
  await until(() => sandbox.files.exists("/tmp/said"), "everything is said", 20_000);
  const out = new Heard();
  const again = await sandbox.commands.connect(handle.pid, { onStdout: out.hear });
  await out.has("line 100\n");
  await sandbox.commands.sendStdin(handle.pid, "last\n");
  const said = Array.from({ length: 100 }, (_, n) => `line ${n + 1}\n`).join("") + "last\n";
  equal((await again.wait()).stdout, said, "output");
});

test("commands/who_comes_late_misses_nothing_in_the_middle", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const handle = await sandbox.commands.run(MORE_THAN_IS_KEPT, { background: true, stdin: true });
  await handle.disconnect();
  await until(() => sandbox.files.exists("/tmp/said"), "more is said than is kept", 30_000);
  const again = await sandbox.commands.connect(handle.pid);
  await sandbox.commands.sendStdin(handle.pid, "on\n");
  const { stdout } = await again.wait();
  const all = Array.from({ length: 900_000 }, (_, n) => `${n + 100_000}\n`).join("");
  holds(stdout.length > all.length / 2, `it has only ${stdout.length} characters`);
  holds(all.endsWith(stdout), "it is whole from where it begins");
});

test("commands/killing_the_sandbox_tells_who_listens", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const out = new Heard();
  const handle = await sandbox.commands.run("echo begun; sleep 60", { background: true, onStdout: out.hear });
  await out.has("begun");
  await sandbox.kill();
  await raises(TimeoutError, handle.wait());
});

test("commands/many_commands_run_at_the_same_time", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const numbers = [0, 1, 2, 3, 4, 5, 6, 7];
  const results = await Promise.all(numbers.map((n) => sandbox.commands.run(`sleep 0.2; echo ${n}`)));
  equal(results.map((it) => it.stdout), numbers.map((n) => `${n}\n`), "what they say");
});
