"""Drives a Box server with the LangBot SDK that is installed beside this interpreter.

main.py --transport ws --url http://127.0.0.1:5410 --command '["strongbox", "box"]' --directory DIR [part of a name]...
main.py --transport stdio --command '["strongbox", "box"]' --directory DIR
"""

import argparse
import asyncio
import importlib
import json
import logging
import os
import pkgutil
import sys

# What all drivers here share is one directory up.
sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import cases  # noqa: E402
from ground import Ground  # noqa: E402
from link import VERSION, Link, features  # noqa: E402
from suite import CASES, Suite, describe  # noqa: E402


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=["ws", "stdio"], required=True)
    parser.add_argument("--url", help="a running server, for ws; without it one is started")
    parser.add_argument("--command", type=json.loads, required=True, help="what starts a server, as a JSON list")
    parser.add_argument(
        "--directory", required=True, help="where servers and cases may write; sessions may mount what is below"
    )
    parser.add_argument(
        "--config", type=json.loads, default={}, help="configuration that every server of ours begins with"
    )
    parser.add_argument(
        "--registries", type=argparse.FileType(), help="variables for boxes that install packages, as JSON; adds such cases"
    )
    parser.add_argument("--name", help="what the suite is called after its version, if not like the transport")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("filters", nargs="*")
    return parser.parse_args()


async def run(options: argparse.Namespace) -> int:
    for module in sorted(it.name for it in pkgutil.iter_modules(cases.__path__)):
        importlib.import_module(f"cases.{module}")
    have = features() | {options.transport} | ({"registries"} if options.registries else set())
    suite = Suite(f"langbot-{VERSION}-{options.name or options.transport}", options.filters)
    chosen = [case for case in CASES if set(case.needs) <= have and suite.takes(case.name)]
    if options.list:
        print("\n".join(f"{suite.name}/{case.name}" for case in chosen))
        return 0
    ground = Ground(options.transport, options.command, os.path.realpath(options.directory), options.config)
    ground.registries = json.load(options.registries) if options.registries else {}
    if options.url:
        ground.shared = await Link.open_websocket(options.url)
        await run_all(suite, chosen, ground)
        await ground.shared.close()
    else:
        async with ground.fresh() as ground.shared:
            await run_all(suite, chosen, ground)
    return suite.finish()


async def run_all(suite: Suite, chosen, ground: Ground) -> None:
    for case in chosen:
        box = ground.shared.box()
        await suite.run(case, box, ground)
        try:
            await asyncio.wait_for(box.clear(), 30)
            await asyncio.wait_for(ground.shared.client_call("ping"), 10)
        except Exception as error:
            # Whatever would follow now fails for the same reason, slowly.
            suite.fail(f"{suite.name}/{case.name}", f"the server does not answer any more: {describe(error)}")
            return


def main() -> int:
    options = arguments()
    os.makedirs(options.directory, exist_ok=True)
    # The SDK makes a directory for files where it is started.
    os.chdir(options.directory)
    logging.basicConfig(level=logging.CRITICAL)
    return asyncio.run(run(options))


if __name__ == "__main__":
    sys.exit(main())
