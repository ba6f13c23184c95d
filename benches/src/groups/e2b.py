"""Does with the real SDK what it is told, line by line, and says how long each took."""

import sys
import time

from e2b import Sandbox


def life():
    sandbox = Sandbox.create(timeout=300)
    try:
        sandbox.commands.run("true")
    finally:
        sandbox.kill()


for line in sys.stdin:
    start = time.perf_counter()
    {"life": life}[line.strip()]()
    print(time.perf_counter() - start, flush=True)
