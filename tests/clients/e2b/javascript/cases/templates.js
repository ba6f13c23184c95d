// Templates built from steps, and sandboxes that begin with them.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { randomUUID } from "node:crypto";
import { BuildError, Sandbox, Template } from "e2b";
import { equal, holds, raises, test } from "../suite.js";

const unique = (word) => `${word}-${randomUUID().slice(0, 12)}`;

test("templates/a_sandbox_begins_with_what_the_steps_did", [], async (desk) => {
  const directory = mkdtempSync(join(tmpdir(), "template-"));
  mkdirSync(join(directory, "app"));
  writeFileSync(join(directory, "app", "note"), "copied\n");
  const name = unique("built");
  const template = Template({ fileContextPath: directory })
    .fromTemplate("base")
    .copy("app", "/opt/app", { user: "root" })
    .setEnvs({ COLOUR: "blue" })
    .setWorkdir("/srv/work")
    .runCmd("echo $COLOUR > colour");
  const said = [];
  try {
    const { templateId } = await Template.build(template, name, { onBuildLogs: (entry) => said.push(entry.message) });
    const sandbox = await desk.sandbox({ template: name });
    const { stdout } = await sandbox.commands.run("cat /opt/app/note colour; pwd; echo $COLOUR");
    equal(stdout, "copied\nblue\n/srv/work\nblue\n", "what the sandbox has");
    holds(said.some((line) => line.includes("COPY app")), `the log tells of the steps: ${said}`);
    equal([await Template.exists(name), await Sandbox.deleteSnapshot(templateId), await Template.exists(name)], [true, true, false], "exists");
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test("templates/a_step_that_fails_is_told", [], async () => {
  const template = Template().fromTemplate("base").runCmd("exit 7");
  await raises(BuildError, Template.build(template, unique("failing")), "7");
});
