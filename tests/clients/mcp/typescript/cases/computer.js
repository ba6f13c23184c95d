// Our own tools, over HTTP at an address of their own, and over the standard streams of a program.

import { equal, holds, test } from "../suite.js";

test("computer/a_client_has_a_computer_in_a_box", [], async (desk) => {
  await desk.client("/mcp/box?session=clients", async (link) => {
    const tools = await link.tools();
    const missing = ["exec", "read", "write", "edit", "glob", "grep"].filter((name) => !tools.includes(name));
    equal(missing, [], "missing tools");
    await link.text("write", { path: "note.txt", content: "from a client\n" });
    holds((await link.text("read", { path: "note.txt" })).includes("from a client"), "it is read");
    const told = await link.text("exec", { command: "cat note.txt; echo $((6 * 7))" });
    holds(told.includes("from a client") && told.includes("42"), `the answer is ${told}`);
    await link.text("session_end");
  });
});
