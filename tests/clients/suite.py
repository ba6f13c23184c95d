"""A list of named cases, run one after the other, with one line for each.

The lines have the form of the other suites of this repository, so that one reader counts them all.
"""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

# When a case counts as hanging. Only a guard.
LIMIT_SEC = 60.0



class Skip(Exception):
    """The case cannot run here; the reason is printed and counted, never hidden."""


@dataclass
class Case:
    """One case: its name is what it holds, as a sentence."""

    name: str
    needs: tuple[str, ...]
    run: Callable[..., Awaitable[None]]
    limit_sec: float


CASES: list[Case] = []


def case(*needs: str, limit_sec: float = LIMIT_SEC):
    """Registers a case. `needs` are features of the client's version; without them the case does not exist for it."""

    def register(function):
        topic = function.__module__.rpartition(".")[2].replace("__main__", "app")
        CASES.append(Case(f"{topic}/{function.__name__}", needs, function, limit_sec))
        return function

    return register


class Suite:
    """Runs cases and counts."""

    def __init__(self, name: str, filters: list[str]):
        self.name = name
        self.filters = filters
        self.passed = self.failed = self.skipped = 0

    def takes(self, name: str) -> bool:
        """Whether a name was asked for."""
        return not self.filters or any(part in name for part in self.filters)

    async def run(self, case: Case, *arguments) -> None:
        """Runs one case."""
        name = f"{self.name}/{case.name}"
        if failure := await self.attempt(name, case, arguments):
            self.fail(name, failure)

    async def attempt(self, name: str, case: Case, arguments: tuple) -> str | None:
        """Says why a case failed; a failure or a hang is the failure of that case alone."""
        begun = time.monotonic()
        try:
            await asyncio.wait_for(case.run(*arguments), case.limit_sec)
        except Skip as reason:
            self.skip(name, str(reason))
        except TimeoutError:
            # A case may let such an error of its own through; the clock tells which of the two it is.
            hung = time.monotonic() - begun >= case.limit_sec
            return f"not finished after {case.limit_sec:.0f} s" if hung else "waited too long for what never came"
        except Exception as error:
            traceback.print_exc()
            return describe(error)
        else:
            self.passed += 1
            print(f"ok {name}", flush=True)
        return None

    def skip(self, name: str, why: str) -> None:
        """Counts a case that cannot run and says why."""
        self.skipped += 1
        print(f"skipped: {name}: {why}", flush=True)

    def fail(self, name: str, why: str) -> None:
        """Counts a failure and says why on one line."""
        self.failed += 1
        print(f"FAILED {name}: {why}", flush=True)

    def finish(self) -> int:
        """Prints the last line; returns the exit code."""
        print(f"suite-result: passed={self.passed} failed={self.failed} skipped={self.skipped}", flush=True)
        return 1 if self.failed else 0


def describe(error: BaseException) -> str:
    """An error on one line. An assertion without a text says where it stands."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    if not text:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{place.filename.rpartition('/')[2]}:{place.lineno}: {place.line}"
    return f"{type(error).__name__}: {text[:600]}"


def equal(found, expected, what: str = "value") -> None:
    """Holds that two things are equal, and shows both when they are not."""
    if found != expected:
        raise AssertionError(f"{what} is {shorten(found)}, not {shorten(expected)}")


def holds(condition, what: str) -> None:
    """Holds a condition, named by what it says."""
    if not condition:
        raise AssertionError(what)


def shorten(thing) -> str:
    """Enough of a value to know it by."""
    text = repr(thing)
    return text if len(text) <= 300 else f"{text[:140]}…{text[-140:]} ({len(text)} characters)"


async def raises(kind: type, awaitable, *parts: str):
    """Holds that exactly this class is raised, with all parts in its text. Returns the error."""
    try:
        value = await awaitable
    except Exception as error:
        if type(error) is not kind:
            raise AssertionError(f"raised {describe(error)}, not {kind.__name__}") from error
        for part in parts:
            holds(part in str(error), f"{part!r} is not in {str(error)!r}")
        return error
    raise AssertionError(f"returned {shorten(value)} instead of raising {kind.__name__}")


async def until(condition, what: str, limit_sec: float = 20.0):
    """Asks again until the condition gives something true, and returns it."""
    deadline = time.monotonic() + limit_sec
    while True:
        found = await condition()
        if found:
            return found
        holds(time.monotonic() < deadline, f"it did not come to this: {what}")
        await asyncio.sleep(0.05)
