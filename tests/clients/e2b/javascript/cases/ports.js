// Programs in a sandbox that serve others.

import { equal, holds, test, until } from "../suite.js";
import { ask } from "../web.js";

const PORT = 8123;

async function site(desk, options = {}) {
  const sandbox = await desk.sandbox(options);
  await sandbox.files.write("/home/user/site/page.txt", "served from the box");
  const server = `python3 -m http.server ${PORT} --bind 127.0.0.1 --directory /home/user/site`;
  await sandbox.commands.run(server, { background: true, timeoutMs: 0 });
  const routed = { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": String(PORT) };
  const get = (headers = {}) => ask("GET", `${desk.url}/page.txt`, { headers: { ...routed, ...headers } });
  const token = sandbox.trafficAccessToken ? { "e2b-traffic-access-token": sandbox.trafficAccessToken } : {};
  await until(async () => (await get(token)).status === 200, "the server answers", 20_000);
  return { sandbox, get, token };
}

test("ports/a_port_is_reached_by_headers_and_by_name", [], async (desk) => {
  const { sandbox, get } = await site(desk);
  equal((await get()).body, "served from the box", "by headers");
  const host = sandbox.getHost(PORT);
  holds(host.startsWith(`${PORT}-${sandbox.sandboxId}.`), `the host is ${host}`);
  equal((await ask("GET", `${desk.url}/page.txt`, { headers: { Host: host } })).body, "served from the box", "by name");
});

test("ports/traffic_can_need_a_token", [], async (desk) => {
  const { get, token } = await site(desk, { network: { allowPublicTraffic: false } });
  equal([(await get()).status, (await get(token)).status], [403, 200], "without and with the token");
});

test("ports/a_port_where_nobody_listens_says_so", [], async (desk) => {
  const sandbox = await desk.sandbox();
  const headers = { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": "8124" };
  const answer = await ask("GET", `${desk.url}/`, { headers });
  equal(answer.status, 502, "status");
  holds(answer.json().message.includes("port is not open"), `the message is ${answer.body}`);
});
