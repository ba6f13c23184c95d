// What a case works with.

import { randomUUID } from "node:crypto";
import { Sandbox as Interpreter } from "@e2b/code-interpreter";
import { Sandbox, Volume } from "e2b";
import { until } from "./suite.js";

// Long enough for any case, short enough that nothing of a dead driver stays.
const LIFETIME_MS = 300_000;

/** One client; it ends the sandboxes that a case made. */
export class Desk {
  constructor(url, guarded) {
    this.url = url;
    this.guarded = guarded;
    this.made = [];
    this.volumes = [];
    // Servers are shared with other drivers: what a case lists, it lists by this.
    this.mark = randomUUID();
  }

  /** A new sandbox, ended after the case. */
  sandbox({ template = "base", metadata = {}, ...options } = {}) {
    return this.make(Sandbox, template, metadata, options);
  }

  /** The same for code that is run statement by statement. */
  interpreter({ metadata = {}, ...options } = {}) {
    return this.make(Interpreter, "code-interpreter-v1", metadata, options);
  }

  async make(kind, template, metadata, options) {
    const all = { timeoutMs: LIFETIME_MS, metadata: { mark: this.mark, ...metadata }, ...options };
    return this.keep(await kind.create(template, all), options);
  }

  /** Ends this sandbox, too, after the case; `options` say with which key. */
  keep(sandbox, { apiKey, apiUrl } = {}) {
    this.made.push([sandbox.sandboxId, apiUrl ? { apiKey, apiUrl } : {}]);
    return sandbox;
  }

  /** A new volume, removed after the case. */
  async volume(name = "data", options = {}) {
    const volume = await Volume.create(`${name}-${this.mark}`, options);
    this.volumes.push([volume.volumeId, options]);
    return volume;
  }

  /** How to reach the server that wants a key, with one of those that the stage made: `left` and `right` are of two tenants. */
  behindTokens(key) {
    const { url, keys } = this.guarded;
    return { apiUrl: url, sandboxUrl: url, apiKey: keys[key] ?? key };
  }

  async clear() {
    for (const [id, options] of this.made.splice(0)) await Sandbox.kill(id, options);
    for (const [id, options] of this.volumes.splice(0)) await Volume.destroy(id, options);
  }
}

/** What was heard, piece by piece. */
export class Heard {
  pieces = [];
  decoder = new TextDecoder();
  hear = (piece) => {
    this.pieces.push(typeof piece === "string" ? piece : this.decoder.decode(piece, { stream: true }));
  };

  get text() {
    return this.pieces.join("");
  }

  /** Waits until this was heard. */
  has(text) {
    return until(() => this.text.includes(text), `${text} is heard`, 20_000);
  }
}
