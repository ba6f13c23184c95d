// Plain HTTP, with headers that `fetch` does not let a program set.

import { request } from "node:http";

/** One request; `{status, body, json}`. */
export function ask(method, url, { headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers, agent: false, timeout: 30_000 }, (answer) => {
      const pieces = [];
      answer.on("data", (piece) => pieces.push(piece));
      answer.on("error", reject);
      answer.on("end", () => {
        const text = Buffer.concat(pieces).toString();
        resolve({ status: answer.statusCode, headers: answer.headers, body: text, json: () => JSON.parse(text) });
      });
    });
    sent.on("error", reject);
    sent.end(body);
  });
}
