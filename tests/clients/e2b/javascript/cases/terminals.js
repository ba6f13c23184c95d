// Terminals.

import { CommandExitError } from "e2b";
import { Heard } from "../desk.js";
import { equal, raises, test } from "../suite.js";

async function open(desk, options = {}) {
  const sandbox = await desk.sandbox();
  const heard = new Heard();
  const handle = await sandbox.pty.create({ cols: 97, rows: 31, onData: heard.hear, ...options });
  const type = (text) => sandbox.pty.sendInput(handle.pid, new TextEncoder().encode(text));
  return { sandbox, heard, handle, type };
}

test("terminals/a_terminal_answers_what_is_typed", [], async (desk) => {
  const { heard, type } = await open(desk, { envs: { OWN: "mine" }, cwd: "/tmp" });
  await type('echo "<$((6 * 7))|$OWN|$TERM|$PWD|größe>"\n');
  await heard.has("<42|mine|xterm-256color|/tmp|größe>");
});

test("terminals/a_terminal_has_the_size_that_it_is_given", [], async (desk) => {
  const { sandbox, heard, handle, type } = await open(desk);
  await type("stty size\n");
  await heard.has("31 97");
  await sandbox.pty.resize(handle.pid, { cols: 123, rows: 44 });
  await type("stty size\n");
  await heard.has("44 123");
});

test("terminals/a_shell_that_exits_ends_its_terminal", [], async (desk) => {
  const { handle, type } = await open(desk);
  await type("exit 9\n");
  equal((await raises(CommandExitError, handle.wait())).exitCode, 9, "exit code");
});

test("terminals/a_terminal_is_killed", [], async (desk) => {
  const { sandbox, handle } = await open(desk);
  equal(await sandbox.pty.kill(handle.pid), true, "kill");
  equal((await raises(CommandExitError, handle.wait())).exitCode, -1, "exit code");
});

test("terminals/a_terminal_is_left_and_found_again", [], async (desk) => {
  const { sandbox, heard, handle, type } = await open(desk);
  await type("KEPT=yes; echo set-$KEPT\n");
  await heard.has("set-yes");
  await handle.disconnect();
  const later = new Heard();
  await sandbox.pty.connect(handle.pid, { onData: later.hear });
  await type("echo still-$KEPT\n");
  await later.has("still-yes");
});
