"""Drives MCP servers in boxes through our gateway, with the official `mcp` client that is beside this interpreter.

main.py --transport http|sse|newest --url http://127.0.0.1:5410 --house FILE [--also keeping] [part of a name]...

FILE is JSON: what `House` has besides the address. `newest` is the protocol without a handshake.
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import pkgutil
import sys

# What all drivers here share is two directories up.
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.dirname(os.path.dirname(HERE)))

import cases  # noqa: E402
from house import House  # noqa: E402
from link import VERSION, Ears, connect, features  # noqa: E402
from suite import CASES, Suite  # noqa: E402


class Desk:
    """What a case works with."""

    def __init__(self, house: House, transport: str):
        self.house = house
        self.transport = transport

    def connect(self, path: str = "/mcp", ears: Ears | None = None):
        """A client at an address of the server."""
        return connect(self.house.url + path, self.transport, ears)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=["http", "sse", "newest"], required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--house", type=argparse.FileType(), required=True)
    parser.add_argument("--also", action="append", default=[], help="cases that need no client and so run only once")
    parser.add_argument("filters", nargs="*")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> int:
    for module in sorted(it.name for it in pkgutil.iter_modules(cases.__path__)):
        importlib.import_module(f"cases.{module}")
    have = features(options.transport) | set(options.also)
    suite = Suite(f"mcp-python-{VERSION}-{options.transport}", options.filters)
    house = House(url=options.url, **json.load(options.house))
    await house.ready()
    desk = Desk(house, options.transport)
    for case in CASES:
        if set(case.needs) <= have and suite.takes(case.name):
            await suite.run(case, desk)
    return suite.finish()


def main() -> int:
    # The server is on this machine, whatever stands between it and others.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    logging.basicConfig(level=logging.CRITICAL)
    return asyncio.run(run(arguments()))


if __name__ == "__main__":
    sys.exit(main())
