// The server under test, past MCP: its REST interface.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

import { holds, until } from "./suite.js";

export class House {
  constructor(url, given) {
    Object.assign(this, given, { url });
  }

  async ask(method, path, body) {
    const request = { method, headers: { "content-type": "application/json" }, body: body && JSON.stringify(body) };
    const answer = await fetch(this.url + path, request);
    const text = await answer.text();
    holds(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
    return JSON.parse(text);
  }

  /** Defines a server of the operator, which shares its box with others, and waits until it answers. */
  async put(name, command) {
    const variables = Object.keys(this.env).flatMap((key) => ["-e", key]);
    const env = { ...process.env, ...this.env, STRONGBOX_URL: this.owner };
    await promisify(execFile)(this.strongbox, ["mcp", "add", name, ...variables, "--", ...command], { env });
    await until(async () => {
      const shown = await this.ask("GET", `/v1/mcp/servers/${name}`);
      holds(shown.status !== "error", `${name} failed: ${JSON.stringify(shown.runtime_info)}`);
      return shown.status === "connected";
    }, `${name} is connected`);
  }

  async remove(name) {
    await this.ask("DELETE", `/v1/mcp/servers/${name}`);
  }
}
