// Drives MCP servers in boxes through our gateway, with the official clients in JavaScript.
//
// node main.js --generation 1|2 --transport http|sse|newest|stdio --url http://127.0.0.1:5410 --house FILE --state DIR
//
// FILE is JSON, the same that the drivers in Python take. `newest` is the protocol without a handshake, `stdio` is
// `strongbox mcp serve --stdio` with its state in DIR.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { House } from "./house.js";
import { Desk } from "./link.js";
import { CASES, Suite } from "./suite.js";
import "./cases/computer.js";
import "./cases/gateway.js";
import "./cases/servers.js";
import "./cases/talking.js";

const named = ["generation", "transport", "url", "house", "state"].map((name) => [name, { type: "string" }]);
const { values, positionals } = parseArgs({ options: Object.fromEntries(named), allowPositionals: true });
const options = { ...values, generation: Number(values.generation) };

const served = options.transport === "stdio" ? [] : ["served"];
const handshake = options.transport === "newest" ? [] : ["handshake"];
const have = new Set([options.transport, ...served, ...handshake]);

const house = new House(options.url, JSON.parse(readFileSync(options.house, "utf8")));
const suite = new Suite(`mcp-typescript-${options.generation}-${options.transport}`);
for (const each of CASES) {
  const isWanted = positionals.length === 0 || positionals.some((part) => each.name.includes(part));
  if (isWanted && each.needs.every((need) => have.has(need))) {
    await suite.run(each, new Desk(house, options));
  }
}
process.exit(suite.finish());
