// Events of directories.

import { FileNotFoundError, InvalidArgumentError, TimeoutError } from "e2b";
import { equal, holds, raises, test, until } from "../suite.js";

const PLACE = "/home/user/watched";

async function watch(desk, options = {}) {
  const sandbox = await desk.sandbox();
  await sandbox.files.makeDir(PLACE);
  const events = [];
  const ends = [];
  const handle = await sandbox.files.watchDir(PLACE, (event) => events.push(event), {
    onExit: (error) => ends.push(error),
    ...options,
  });
  const sees = (name, type) =>
    until(() => events.find((it) => it.name === name && it.type === type), `${type} of ${name}`, 20_000);
  return { sandbox, events, ends, handle, sees };
}

test("watching/what_happens_in_a_directory_is_told", [], async (desk) => {
  const { sandbox, handle, sees } = await watch(desk);
  await sandbox.commands.run(`cd ${PLACE} && echo 1 > file && chmod 600 file && mv file moved && rm moved`);
  const expected = [
    ["file", "create"],
    ["file", "write"],
    ["file", "chmod"],
    ["file", "rename"],
    ["moved", "create"],
    ["moved", "remove"],
  ];
  for (const [name, type] of expected) await sees(name, type);
  await handle.stop();
});

test("watching/directories_that_come_later_are_followed", [], async (desk) => {
  const { sandbox, handle, sees } = await watch(desk, { recursive: true });
  await sandbox.files.makeDir(`${PLACE}/new`);
  await sees("new", "create");
  await sandbox.files.write(`${PLACE}/new/file`, "1");
  await sees("new/file", "write");
  await handle.stop();
});

test("watching/an_event_can_bring_its_entry", [], async (desk) => {
  const { sandbox, handle, sees } = await watch(desk, { includeEntry: true });
  await sandbox.files.write(`${PLACE}/file`, "12345");
  const event = await sees("file", "write");
  holds(event.entry, "the event has an entry");
  equal(event.entry.path, `${PLACE}/file`, "path");
  await handle.stop();
});

test("watching/after_its_end_nothing_is_told", [], async (desk) => {
  const { sandbox, events, handle, sees } = await watch(desk);
  await sandbox.files.write(`${PLACE}/before`, "1");
  await sees("before", "create");
  await handle.stop();
  await sandbox.files.write(`${PLACE}/after`, "1");
  holds(events.every((it) => it.name === "before"), `events are ${JSON.stringify(events)}`);
});

test("watching/a_watch_out_of_time_ends", [], async (desk) => {
  const { ends } = await watch(desk, { timeoutMs: 1_000 });
  await until(() => ends.length > 0, "it is told that the watch has ended", 20_000);
  holds(ends[0] instanceof TimeoutError, `the reason is ${ends[0]}`);
});

test("watching/only_directories_can_be_watched", [], async (desk) => {
  const sandbox = await desk.sandbox();
  await sandbox.files.write("/home/user/file", "x");
  const nothing = () => undefined;
  await raises(FileNotFoundError, sandbox.files.watchDir("/home/user/missing", nothing));
  await raises(InvalidArgumentError, sandbox.files.watchDir("/home/user/file", nothing));
});
