// Runs the conformance suite of the protocol against one address, and compares what it finds with `expected.js`.
//
// node main.js --version 2025-11-25|2026-07-28 --url http://127.0.0.1:5410/mcp/NAME
//
// Behind the address is the server in `../projects/conformance`, spoken with in that version.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { EXPECTED, SCENARIOS } from "./expected.js";
import { Suite, equal } from "./suite.js";

// The suite limits each scenario itself; this is for one that hangs as a whole.
const LIMIT_MS = 10 * 60_000;

const { values } = parseArgs({ options: { version: { type: "string" }, url: { type: "string" } } });
const { version, url } = values;

/** Runs the suite, and returns the checks of each scenario. */
async function scenarios() {
  const program = createRequire(import.meta.url).resolve(`conformance-${version}/package.json`);
  const results = mkdtempSync(join(tmpdir(), "conformance-"));
  const words = ["server", "--url", url, "--suite", "all", "--spec-version", version, "--output-dir", results];
  const child = spawn(process.execPath, [join(dirname(program), "dist/index.js"), ...words], {
    // It says all that again in its results.
    stdio: ["ignore", "ignore", "inherit"],
    timeout: LIMIT_MS,
  });
  await new Promise((done, failed) => child.on("close", done).on("error", failed));
  const found = new Map();
  for (const directory of readdirSync(results)) {
    const name = /^server-(.*?)-\d{4}-\d\d-\d\dT/.exec(directory)?.[1];
    if (name) found.set(name, JSON.parse(readFileSync(join(results, directory, "checks.json"), "utf8")));
  }
  rmSync(results, { recursive: true });
  return found;
}

/** The names of checks that failed, each once. */
function failures(checks) {
  const failed = checks.filter((check) => check.status === "FAILURE");
  for (const check of failed) console.log(`  ${check.id}: ${check.errorMessage}`);
  return [...new Set(failed.map((check) => check.id))].sort();
}

const suite = new Suite(`mcp-conformance-${version}`);
const found = await scenarios();
await suite.run({ name: "all_scenarios_ran", run: async () => equal(found.size, SCENARIOS[version], "their number") });
for (const [name, checks] of [...found].sort()) {
  const expected = [...(EXPECTED[version][name] ?? [])].sort();
  await suite.run({ name, run: async () => equal(failures(checks), expected, "what fails") });
}
for (const name of Object.keys(EXPECTED[version]).filter((name) => !found.has(name))) {
  suite.fail(`${suite.name}/${name}`, "it is expected to fail, and did not run");
}
process.exit(suite.finish());
