// Copies of sandboxes.

import { Sandbox } from "e2b";
import { equal, test } from "../suite.js";

const NOTE = "/home/user/note";

test("snapshots/a_sandbox_begins_as_a_snapshot_was", [], async (desk) => {
  const source = await desk.sandbox();
  await source.files.write(NOTE, "then");
  const { snapshotId } = await source.createSnapshot();
  await source.files.write(NOTE, "now");
  const copy = await desk.sandbox({ template: snapshotId });
  equal([await copy.files.read(NOTE), await source.files.read(NOTE)], ["then", "now"], "files");
  equal((await source.listSnapshots().nextItems()).map((it) => it.snapshotId), [snapshotId], "list");
  equal([await Sandbox.deleteSnapshot(snapshotId), await Sandbox.deleteSnapshot(snapshotId)], [true, false], "deleted");
});

test("snapshots/a_sandbox_is_forked", [], async (desk) => {
  const source = await desk.sandbox();
  await source.files.write(NOTE, "common");
  const forks = await source.fork({ count: 2, timeoutMs: 60_000 });
  equal(new Set([source, ...forks].map((it) => it.sandboxId)).size, 3, "number of sandboxes");
  for (const fork of forks) {
    desk.keep(fork);
    equal(await fork.files.read(NOTE), "common", "file");
  }
});
