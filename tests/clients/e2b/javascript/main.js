// Drives a server of ours with the real packages of E2B for JavaScript.
//
// node main.js --url http://127.0.0.1:5410 [--guarded FILE] [--also TOPIC]... [part of a name]...
//
// FILE is JSON, the same that the drivers in Python take: a second server, and a key for each of two tenants.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import { Desk } from "./desk.js";
import { CASES, Suite } from "./suite.js";
import "./cases/commands.js";
import "./cases/doors.js";
import "./cases/files.js";
import "./cases/interpreter.js";
import "./cases/lifecycle.js";
import "./cases/ports.js";
import "./cases/signing.js";
import "./cases/snapshots.js";
import "./cases/templates.js";
import "./cases/terminals.js";
import "./cases/volumes.js";
import "./cases/watching.js";

// A server without tokens takes any key of this form.
const KEY = `e2b_${"0".repeat(40)}`;

const { values, positionals } = parseArgs({
  options: {
    url: { type: "string" },
    guarded: { type: "string" },
    also: { type: "string", multiple: true, default: [] },
    list: { type: "boolean" },
  },
  allowPositionals: true,
});

const { version } = createRequire(import.meta.url)("e2b/package.json");
const have = new Set([...values.also, ...(values.guarded ? ["guarded"] : [])]);
const guarded = values.guarded ? JSON.parse(readFileSync(values.guarded, "utf8")) : undefined;
const suite = new Suite(`e2b-javascript-${version}`);

// The server is on this machine, whatever stands between it and others.
process.env.NO_PROXY = process.env.no_proxy = "127.0.0.1,localhost";
Object.assign(process.env, { E2B_API_URL: values.url, E2B_SANDBOX_URL: values.url, E2B_VOLUME_API_URL: values.url });
process.env.E2B_API_KEY = KEY;

for (const each of CASES) {
  const isWanted = positionals.length === 0 || positionals.some((part) => each.name.includes(part));
  if (!isWanted || !each.needs.every((need) => have.has(need))) continue;
  if (values.list) {
    console.log(`${suite.name}/${each.name}`);
    continue;
  }
  const desk = new Desk(values.url, guarded);
  await suite.run(each, desk);
  try {
    await desk.clear();
  } catch (error) {
    suite.fail(`${suite.name}/${each.name}`, error);
  }
}
process.exit(values.list ? 0 : suite.finish());
