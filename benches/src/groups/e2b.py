"""Runs the commands on its standard input, line by line, and prints how long each took: a sandbox's life by the real
SDK, or by the HTTP client of Python's standard library, as an independent plain client."""

import http.client
import json
import os
import struct
import sys
import time

API_KEY = {"x-api-key": os.environ["E2B_API_KEY"]}
server = http.client.HTTPConnection(os.environ["E2B_API_URL"].removeprefix("http://"), timeout=120)


def life():
    # The other one needs nothing but Python. The first round, which is not counted, pays for this.
    from e2b import Sandbox

    sandbox = Sandbox.create(timeout=300)
    try:
        sandbox.commands.run("true")
    finally:
        sandbox.kill()


def ask(method, path, headers, body=None):
    server.request(method, path, body, headers)
    answer = server.getresponse()
    said = answer.read()
    if answer.status >= 300:
        raise SystemExit(f"{method} {path}: {answer.status} {said!r}")
    return said


def plain_life():
    wanted = json.dumps({"templateID": "base", "timeout": 300}).encode()
    made = json.loads(ask("POST", "/v2/sandboxes", {**API_KEY, "content-type": "application/json"}, wanted))
    command = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "true"]}, "stdin": False}
    message = json.dumps(command).encode()
    inside = {
        "e2b-sandbox-id": made["sandboxID"],
        "e2b-sandbox-port": "49983",
        "x-access-token": made["envdAccessToken"],
        "connect-protocol-version": "1",
        "content-type": "application/connect+json",
    }
    said = ask("POST", "/process.Process/Start", inside, struct.pack(">BI", 0, len(message)) + message)
    if b"exit status 0" not in said:
        raise SystemExit(f"true ended badly: {said!r}")
    ask("DELETE", "/sandboxes/" + made["sandboxID"], API_KEY)


for line in sys.stdin:
    start = time.perf_counter()
    {"life": life, "plain_life": plain_life}[line.strip()]()
    print(time.perf_counter() - start, flush=True)
