"""A small MCP server for tests, of what every Python brings along.

It answers `initialize`, `ping`, `tools/list` and `tools/call`, one line of JSON each. What it does at its start is said by arguments:
  --slow SECONDS   it reads nothing for so long
  --mute           it never answers
  --noise          it prints lines that are no messages
  --broken         it complains and ends with 4
  --described FILE its tools and what it says of them are this JSON object, read again for each list; of other tools than
                   usual it can have `announce`, which tells that the list has changed
"""

import json
import os
import sys
import threading
import time

ARGUMENTS = sys.argv[1:]
LOCK = threading.Lock()
LET_GO = threading.Event()
TOOLS = {
    "echo": "Returns the text that it is given",
    "pid": "Returns the number of this process",
    "env": "Returns a variable of the environment",
    "big": "Returns so many bytes",
    "sleep": "Returns after so many seconds",
    "die": "Ends this process with a code",
    "complain": "Writes a text to standard error",
    "hold": "Tells that it has begun, and returns its text when it is let go",
    "let_go": "Lets all calls go that are held",
    "babble": "Prints so many lines that are no messages",
}


def say(message):
    with LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def call(name, arguments):
    if name == "echo":
        return arguments.get("text", "")
    if name == "pid":
        return str(os.getpid())
    if name == "env":
        return os.environ.get(arguments.get("name", ""), "")
    if name == "big":
        return "x" * int(arguments.get("bytes", 0))
    if name == "sleep":
        time.sleep(float(arguments.get("seconds", 0)))
        return "slept"
    if name == "die":
        os._exit(int(arguments.get("code", 3)))
    if name == "complain":
        print(arguments.get("text", ""), file=sys.stderr, flush=True)
        return ""
    if name == "hold":
        LET_GO.wait()
        return arguments.get("text", "")
    if name == "let_go":
        LET_GO.set()
        return ""
    if name == "babble":
        with LOCK:
            sys.stdout.write("not a message\n" * int(arguments.get("lines", 0)))
            sys.stdout.flush()
        return ""
    if name == "announce":
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return ""
    raise ValueError("there is no tool " + name)


def described():
    if "--described" not in ARGUMENTS:
        return TOOLS
    with open(ARGUMENTS[ARGUMENTS.index("--described") + 1]) as file:
        return json.load(file)


def begun(parameters):
    token = (parameters.get("_meta") or {}).get("progressToken")
    if parameters.get("name") == "hold" and token is not None:
        progress = {"progressToken": token, "progress": 1, "total": 2}
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})


def answer(request):
    method, parameters = request["method"], request.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": parameters.get("protocolVersion", "2024-11-05"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "1"},
        }
    if method == "tools/list":
        schema = {"type": "object", "properties": {}}
        return {"tools": [{"name": n, "description": d, "inputSchema": schema} for n, d in described().items()]}
    if method == "tools/call":
        begun(parameters)
        text = call(parameters.get("name"), parameters.get("arguments") or {})
        return {"content": [{"type": "text", "text": text}]}
    return {}


def serve(request):
    try:
        say({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)})
    except Exception as error:
        say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32000, "message": str(error)}})


def main():
    if "--broken" in ARGUMENTS:
        print("this server is broken", file=sys.stderr, flush=True)
        sys.exit(4)
    if "--slow" in ARGUMENTS:
        time.sleep(float(ARGUMENTS[ARGUMENTS.index("--slow") + 1]))
    print("the small server is up", file=sys.stderr, flush=True)
    for line in sys.stdin:
        if "--noise" in ARGUMENTS:
            print("not a message", flush=True)
        if not line.strip():
            continue
        request = json.loads(line)
        if request.get("method") == "notifications/cancelled":
            print("a call was cancelled: " + request["params"].get("reason", ""), file=sys.stderr, flush=True)
        if "--mute" not in ARGUMENTS and "id" in request and "method" in request:
            threading.Thread(target=serve, args=(request,), daemon=True).start()


main()
