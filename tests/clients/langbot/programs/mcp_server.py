"""A small MCP server on standard input and output, with nothing but the standard library: it runs inside the box."""

import json
import sys
import threading
import time

LOCK = threading.Lock()

TOOLS = {
    "echo": "gives the text back",
    "large": "gives a text of the asked size",
    "burst": "sends many notifications before its answer",
    "slow": "answers after a while",
    "write": "writes a file",
}


def send(message: dict) -> None:
    """One message, one line. Text is written as it is, not escaped."""
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0"} | message, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def call(name: str, given: dict) -> str:
    if name == "echo":
        return given["text"]
    if name == "large":
        return "漢" * (given["size"] // 3)
    if name == "burst":
        for number in range(given["count"]):
            send({"method": "notifications/message", "params": {"level": "info", "data": f"note {number} ü"}})
        return f"{given['count']} sent"
    if name == "slow":
        time.sleep(given["seconds"])
        return given["text"]
    if name == "write":
        with open(given["path"], "w") as file:
            file.write(given["text"])
        return "written"
    raise KeyError(name)


def answer(request: dict) -> None:
    method, params = request["method"], request.get("params") or {}
    if method == "initialize":
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "small", "version": "1"},
        }
    elif method == "tools/list":
        schema = {"type": "object"}
        result = {"tools": [{"name": name, "description": text, "inputSchema": schema} for name, text in TOOLS.items()]}
    elif method == "tools/call":
        text = call(params["name"], params.get("arguments") or {})
        result = {"content": [{"type": "text", "text": text}], "isError": False}
    elif method == "ping":
        result = {}
    else:
        send({"id": request["id"], "error": {"code": -32601, "message": f"no method {method}"}})
        return
    send({"id": request["id"], "result": result})


def main() -> None:
    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            threading.Thread(target=answer, args=[request]).start()


main()
