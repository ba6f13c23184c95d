// One connection of the official client. Its first generation is the package `sdk`, its second the package `client`; they
// differ in where things are and in how handlers are registered.

export const SAMPLED = "the client thought of this";
export const NAME = "Ada Lovelace";
export const ROOT = "file:///home/ada/engine";

/** What a generation consists of. */
async function generation(number) {
  if (number === 1) {
    const types = await import("@modelcontextprotocol/sdk/types.js");
    const schemas = {
      "sampling/createMessage": types.CreateMessageRequestSchema,
      "elicitation/create": types.ElicitRequestSchema,
      "roots/list": types.ListRootsRequestSchema,
      "notifications/message": types.LoggingMessageNotificationSchema,
      "notifications/resources/updated": types.ResourceUpdatedNotificationSchema,
    };
    return {
      ...(await import("@modelcontextprotocol/sdk/client/index.js")),
      ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      ...(await import("@modelcontextprotocol/sdk/client/sse.js")),
      ...(await import("@modelcontextprotocol/sdk/client/stdio.js")),
      kind: (method) => schemas[method],
    };
  }
  return {
    ...(await import("@modelcontextprotocol/client")),
    ...(await import("@modelcontextprotocol/client/stdio")),
    kind: (method) => method,
  };
}

/** What a client is told and asked, and what it answers then. */
export class Ears {
  asked = [];
  logs = [];
  updated = [];
  toolsChanged = 0;

  capabilities = { sampling: {}, elicitation: {}, roots: {} };

  listChanged = { tools: { autoRefresh: false, debounceMs: 0, onChanged: () => (this.toolsChanged += 1) } };

  listen(client, kind) {
    client.setRequestHandler(kind("sampling/createMessage"), (request) => {
      this.asked.push(request.params);
      return { role: "assistant", content: { type: "text", text: SAMPLED }, model: "none" };
    });
    client.setRequestHandler(kind("elicitation/create"), (request) => {
      this.asked.push(request.params);
      return { action: "accept", content: { name: NAME } };
    });
    client.setRequestHandler(kind("roots/list"), () => ({ roots: [{ uri: ROOT, name: "engine" }] }));
    client.setNotificationHandler(kind("notifications/message"), (note) => void this.logs.push(note.params));
    client.setNotificationHandler(kind("notifications/resources/updated"), (note) => void this.updated.push(note.params.uri));
  }
}

/** What a case works with: a house, and a way to get a client of it. */
export class Desk {
  constructor(house, options) {
    this.house = house;
    this.options = options;
  }

  /** Gives a connected client to `work`, and closes it whatever happens. */
  async client(path, work, ears) {
    const parts = await generation(this.options.generation);
    // The first generation knows only the handshake. The second asks first whether it can do without.
    const mode = this.options.transport === "http" || this.options.transport === "sse" ? "legacy" : "auto";
    const offers = ears ? { capabilities: ears.capabilities, listChanged: ears.listChanged } : {};
    const client = new parts.Client({ name: "driver", version: "1" }, { ...offers, versionNegotiation: { mode } });
    ears?.listen(client, parts.kind);
    const transport = this.transport(parts, path);
    await client.connect(transport);
    try {
      return await work(new Link(client, transport, this.options.generation));
    } finally {
      await client.close();
    }
  }

  transport(parts, path) {
    const address = new URL(this.house.url + path);
    switch (this.options.transport) {
      case "sse":
        return new parts.SSEClientTransport(address);
      case "stdio": {
        const args = ["mcp", "serve", "--stdio", "--state-dir", this.options.state];
        return new parts.StdioClientTransport({ command: this.house.strongbox, args, stderr: "ignore" });
      }
      default:
        return new parts.StreamableHTTPClientTransport(address);
    }
  }
}

/** A client that is connected. */
export class Link {
  constructor(client, transport, generation) {
    this.client = client;
    this.transport = transport;
    this.generation = generation;
  }

  /** The version of the protocol that is spoken. */
  get version() {
    return this.client.getNegotiatedProtocolVersion?.() ?? this.transport.protocolVersion;
  }

  /** A whole list, however many pages it has. */
  async all(method, field) {
    const found = [];
    let cursor;
    do {
      const page = await this.client[method](cursor === undefined ? undefined : { cursor });
      found.push(...page[field]);
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    return found;
  }

  /** The names of all tools. */
  async tools() {
    return (await this.all("listTools", "tools")).map((tool) => tool.name);
  }

  /** What a tool returns. */
  async call(name, args = {}, options = {}) {
    const given = { name, arguments: args };
    // The first generation has a schema before the options.
    const more = this.generation === 1 ? [undefined, options] : [options];
    return this.client.callTool(given, ...more);
  }

  /** The text that a tool returns, which must not fail. */
  async text(name, args = {}) {
    const result = await this.call(name, args);
    if (result.isError) throw new Error(`${name} failed: ${JSON.stringify(result)}`);
    return result.content[0].text;
  }
}
