"""Drives a server of ours with the real `e2b` package that is beside this interpreter.

main.py --form sync|async --url http://127.0.0.1:5410 [--guarded FILE] [--also TOPIC]... [--without FEATURE]... [part of a name]...

FILE is JSON, for the cases about keys: `{"url": …, "keys": {"left": …, "right": …}}`, a second server and a key for each of two
tenants. Where `e2b-code-interpreter` is installed, only its own cases are run.
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import pkgutil
import sys
from concurrent.futures import ThreadPoolExecutor

# What all drivers here share is two directories up.
sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import cases  # noqa: E402
from desk import Desk  # noqa: E402
from link import INTERPRETER, VERSION, Place, features  # noqa: E402
from suite import CASES, Suite, describe  # noqa: E402

# A server without tokens takes any key of this form.
KEY = "e2b_" + "0" * 40

# What a sandbox usually has: a user and root that have names, git, directories that outlive it, a backend that can save it, a
# template `roomy` with a disk that is larger than its memory, the packages of a machine with pip and apt, and an image of the
# tests that callers may name.
SANDBOX = {"users", "git", "volumes", "saving", "roomy", "packages", "image"}

# Calls of the blocking form that may be on their way at the same time.
THREADS_MAX = 64


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=["sync", "async"], required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--guarded", type=argparse.FileType(), help="adds the cases that need a server with tokens")
    parser.add_argument("--also", action="append", default=[], help="adds the cases that need this")
    parser.add_argument("--without", action="append", default=[], help="skips the cases that need this of a sandbox")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("filters", nargs="*")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> int:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS_MAX))
    for module in sorted(it.name for it in pkgutil.iter_modules(cases.__path__)):
        importlib.import_module(f"cases.{module}")
    have = features(options.form) | SANDBOX | set(options.also) | ({"guarded"} if options.guarded else set())
    name = f"code-interpreter-{INTERPRETER}" if INTERPRETER else VERSION
    suite = Suite(f"e2b-python-{name}-{options.form}", options.filters)
    ours = [it for it in CASES if ("interpreter" in it.needs) == bool(INTERPRETER)]
    chosen = [it for it in ours if set(it.needs) <= have and suite.takes(it.name)]
    if options.list:
        print("\n".join(f"{suite.name}/{case.name}" for case in chosen))
        return 0
    guarded = json.load(options.guarded) if options.guarded else None
    for case in chosen:
        if missing := set(case.needs) & set(options.without):
            suite.skip(f"{suite.name}/{case.name}", f"its sandboxes have no {', '.join(sorted(missing))}")
            continue
        await run_one(suite, case, lambda: Desk(options.form, options.url, guarded))
    return suite.finish()


async def run_one(suite: Suite, case, new_desk) -> None:
    desk = new_desk()
    await suite.run(case, desk)
    try:
        await asyncio.wait_for(desk.clear(), 30)
    except Exception as error:
        suite.fail(f"{suite.name}/{case.name}", f"its sandboxes cannot be ended: {describe(error)}")


def main() -> int:
    options = arguments()
    # The server is on this machine, whatever stands between it and others.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    logging.basicConfig(level=logging.CRITICAL)
    with Place(options.url, KEY):
        # `asyncio.run` would wait for calls that hang in threads. They were told as failures of their cases.
        return asyncio.new_event_loop().run_until_complete(run(options))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
