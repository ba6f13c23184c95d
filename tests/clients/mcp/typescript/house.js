// The server under test, past MCP: its REST interface.

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

  /** Defines a server from a registry and waits until it answers. */
  async put(name, command) {
    await this.ask("PUT", `/v1/mcp/servers/${name}`, { command: command[0], args: command.slice(1), env: this.env });
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
