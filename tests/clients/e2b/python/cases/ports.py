"""Programs in a sandbox that serve others."""

import asyncio

from suite import case, equal, holds, until
from web import ask

PORT = 8123
SERVER = f"python3 -m http.server {PORT} --bind 127.0.0.1 --directory /home/user/site"


async def site(desk, **options):
    """A sandbox with a server of files in it."""
    sandbox = await desk.sandbox(**options)
    await sandbox.files.write("/home/user/site/page.txt", "served from the box")
    await desk.start(sandbox, SERVER, timeout=0)

    async def serves():
        answer = await get(desk, sandbox, headers=allowed(sandbox))
        return answer.status == 200

    await until(serves, "the server answers")
    return sandbox


def allowed(sandbox) -> dict:
    token = sandbox.traffic_access_token
    return {"e2b-traffic-access-token": token} if token else {}


async def get(desk, sandbox, path="/page.txt", port=PORT, headers=None, method="GET", body=None):
    routed = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": str(port)}
    return await ask(method, desk.url + path, body, routed | (headers or {}))


@case()
async def a_port_is_reached_by_headers(desk):
    sandbox = await site(desk)
    answer = await get(desk, sandbox)
    equal((answer.status, answer.body), (200, b"served from the box"), "answer")
    equal((await get(desk, sandbox, "/missing")).status, 404, "status of a page that is not there")


@case()
async def a_port_is_reached_by_the_name_that_the_package_tells(desk):
    sandbox = await site(desk)
    host = sandbox.get_host(PORT)
    holds(host.startswith(f"{PORT}-{sandbox.sandbox_id}."), f"the host is {host}")
    answer = await ask("GET", f"{desk.url}/page.txt", headers={"Host": host})
    equal((answer.status, answer.body), (200, b"served from the box"), "answer")


@case()
async def a_port_is_reached_at_get_host_with_nothing_configured(desk):
    sandbox = await site(desk)
    again = await desk.Sandbox.connect(sandbox.sandbox_id)
    for host in (sandbox.get_host(PORT), again.get_host(PORT)):
        # curl and browsers resolve names below localhost themselves; Python asks the machine's resolver, which may not.
        command = ("curl", "-sS", "--noproxy", "*", f"http://{host}/page.txt")
        curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        body, _ = await curl.communicate()
        equal((curl.returncode, body), (0, b"served from the box"), f"answer of {host}")


@case()
async def a_port_where_nobody_listens_says_so(desk):
    sandbox = await desk.sandbox()
    answer = await get(desk, sandbox, port=8124)
    equal(answer.status, 502, "status")
    holds("port is not open" in answer.json()["message"], f"the message is {answer.json()}")


@case()
async def the_port_of_a_dead_sandbox_says_so(desk):
    sandbox = await site(desk)
    await sandbox.kill()
    answer = await get(desk, sandbox)
    equal(answer.status, 502, "status")
    holds("was not found" in answer.json()["message"], f"the message is {answer.json()}")


@case()
async def half_an_address_is_refused(desk):
    sandbox = await desk.sandbox()
    for headers in ({"E2b-Sandbox-Id": sandbox.sandbox_id}, {"E2b-Sandbox-Port": str(PORT)}):
        equal((await ask("GET", f"{desk.url}/page.txt", headers=headers)).status, 400, f"status with {list(headers)}")


@case()
async def traffic_can_need_a_token(desk):
    sandbox = await site(desk, network={"allow_public_traffic": False})
    holds(sandbox.traffic_access_token, "there is a token")
    equal((await get(desk, sandbox)).status, 403, "without a token")
    equal((await get(desk, sandbox, headers={"e2b-traffic-access-token": "wrong"})).status, 403, "with a wrong one")
    answer = await get(desk, sandbox, headers=allowed(sandbox))
    equal((answer.status, answer.body), (200, b"served from the box"), "with the right one")
    equal((await sandbox.commands.run("echo in")).stdout, "in\n", "commands need none")


@case()
async def the_port_of_one_sandbox_is_not_that_of_another(desk):
    one, other = await site(desk), await desk.sandbox()
    equal((await get(desk, one)).status, 200, "the one")
    equal((await get(desk, other)).status, 502, "the other")


@case()
async def a_body_goes_both_ways(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(
        "/home/user/echo.py",
        "import http.server\n"
        "class Echo(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        body = self.rfile.read(int(self.headers['Content-Length']))\n"
        "        self.send_response(201)\n"
        "        self.send_header('X-Host', self.headers['Host'])\n"
        "        self.send_header('Content-Length', str(len(body)))\n"
        "        self.end_headers()\n"
        "        self.wfile.write(body[::-1])\n"
        f"http.server.HTTPServer(('127.0.0.1', {PORT}), Echo).serve_forever()\n",
    )
    await desk.start(sandbox, "python3 echo.py", timeout=0)
    sent = bytes(range(256)) * 400

    async def answered():
        answer = await get(desk, sandbox, "/", method="POST", body=sent)
        return answer if answer.status != 502 else None

    answer = await until(answered, "the server answers")
    equal((answer.status, answer.body), (201, sent[::-1]), "answer")
