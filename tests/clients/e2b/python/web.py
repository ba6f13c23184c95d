"""Plain HTTP, as a browser or a program without the package does it."""

import asyncio
import http.client
import json
import urllib.parse
from dataclasses import dataclass


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self):
        return json.loads(self.body)


async def ask(method: str, url: str, body: bytes | None = None, headers: dict | None = None) -> Answer:
    """One request, on a connection of its own."""

    def work() -> Answer:
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
        target = parts.path or "/"
        connection.request(method, f"{target}?{parts.query}" if parts.query else target, body, headers or {})
        answer = connection.getresponse()
        try:
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    return await asyncio.to_thread(work)


def form(content: bytes, filename: str = "file") -> tuple[bytes, dict]:
    """A form with one file, as a browser sends it."""
    border = "strongbox-border"
    head = f'--{border}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n\r\n'
    body = head.encode() + content + f"\r\n--{border}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={border}"}
