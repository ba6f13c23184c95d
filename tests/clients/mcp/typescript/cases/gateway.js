// All servers at one address, and each at its own.

import { Ears } from "../link.js";
import { equal, holds, test, until } from "../suite.js";

test("gateway/the_newest_version_that_both_know_is_spoken", ["served"], async (desk) => {
  const expected = desk.options.transport === "newest" ? "2026-07-28" : "2025-11-25";
  // The oldest transport does not keep what was agreed on.
  await desk.client("/mcp", (link) => equal(link.version ?? expected, expected, "version"));
});

test("gateway/tools_of_all_servers_are_named_after_them", ["served"], async (desk) => {
  await desk.client("/mcp", async (link) => {
    const tools = await link.tools();
    const known = ["time__convert_time", "everything__echo", "files__read_text_file", "observer__wait", "fetch__fetch"];
    equal(known.filter((name) => !tools.includes(name)), [], "missing tools");
  });
});

test("gateway/one_server_has_an_address_with_its_own_names", ["served"], async (desk) => {
  await desk.client("/mcp/time", async (link) => {
    equal((await link.tools()).sort(), ["convert_time", "get_current_time"], "tools");
    holds((await link.text("get_current_time", { timezone: "UTC" })).includes("UTC"), "it answers");
  });
});

test("gateway/clients_are_told_when_servers_come_and_go", ["served"], async (desk) => {
  const ears = new Ears();
  const listed = async (link) => (await link.tools()).includes("clock__convert_time");
  const work = async (link) => {
    await link.tools();
    await desk.house.put("clock", desk.house.time);
    try {
      await until(() => ears.toolsChanged > 0, "the new server is told");
      holds(await listed(link), "it is listed");
    } finally {
      ears.toolsChanged = 0;
      await desk.house.remove("clock");
    }
    await until(() => ears.toolsChanged > 0, "that it is gone is told");
    holds(!(await listed(link)), "it is not listed any more");
  };
  await desk.client("/mcp", work, ears);
});
