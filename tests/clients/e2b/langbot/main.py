"""Drives a server of ours with the E2B backend that the LangBot SDK beside this interpreter has.

main.py --url http://127.0.0.1:5410 --directory DIR [part of a name]...

LangBot would start it in its own Box server; here it is called directly, with the specifications that LangBot makes.
"""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import uuid
from importlib.metadata import version

# What all drivers here share is two directories up.
sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import cases.backend  # noqa: E402, F401
from langbot_plugin.box.e2b_backend import E2BSandboxBackend  # noqa: E402
from langbot_plugin.box.models import BoxSpec  # noqa: E402
from suite import CASES, Suite  # noqa: E402

# A server without tokens takes any key of this form.
KEY = "e2b_" + "0" * 40


class Desk:
    """The backend, the sessions that a case made with it, and a directory to mount."""

    def __init__(self, directory: str):
        self.backend = E2BSandboxBackend(logging.getLogger("langbot"))
        self.directory = tempfile.mkdtemp(dir=directory)
        self.name = uuid.uuid4().hex
        self.sessions = []

    def spec(self, command: str = "", **more) -> BoxSpec:
        return BoxSpec(session_id=self.name, cmd=command, **more)

    async def session(self, **more):
        """A new session, ended after the case."""
        await self.backend.initialize()
        self.sessions.append(await self.backend.start_session(self.spec(**more)))
        return self.sessions[-1]

    async def run(self, session, command: str, **more):
        return await self.backend.exec(session, self.spec(command, **more))

    async def clear(self) -> None:
        while self.sessions:
            await self.backend.stop_session(self.sessions.pop())


async def run(options: argparse.Namespace) -> int:
    suite = Suite(f"e2b-langbot-{version('langbot-plugin')}-with-{version('e2b')}", options.filters)
    for case in CASES:
        if suite.takes(case.name):
            desk = Desk(options.directory)
            await suite.run(case, desk)
            await asyncio.wait_for(desk.clear(), 30)
    return suite.finish()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--directory", required=True, help="where cases may write what they mount")
    parser.add_argument("filters", nargs="*")
    options = parser.parse_args()
    os.makedirs(options.directory, exist_ok=True)
    # The server is on this machine, whatever stands between it and others.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    os.environ |= {"E2B_API_URL": options.url, "E2B_SANDBOX_URL": options.url, "E2B_API_KEY": KEY}
    logging.basicConfig(level=logging.CRITICAL)
    return asyncio.run(run(options))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # The libraries of the clients have threads that do not always survive the end of the interpreter.
    os._exit(code)
