"""The real `e2b` package of this interpreter, and what differs between its versions and between its two forms.

The package has everything twice: `Sandbox`, whose calls block, and `AsyncSandbox`, whose calls are awaited. Cases are written
once, with `await`; the blocking form is called in threads for them.
"""

import asyncio
import os
from datetime import timezone
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import e2b
from e2b import exceptions

VERSION = installed_version("e2b")
# From these versions on, cases may say `since-…`: each is one that is driven, and has something that the one before has not.
MILESTONES = ("2.30", "2.45", "2.63")

try:
    INTERPRETER = installed_version("e2b-code-interpreter")
    import e2b_code_interpreter as package
except PackageNotFoundError:
    INTERPRETER = None
    package = e2b


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def since(version: str) -> bool:
    """Whether this package is of that version or newer."""
    return number(VERSION) >= number(version)


def features(form: str) -> set[str]:
    """What this version can be asked for."""
    found = {form} | {f"since-{it}" for it in MILESTONES if since(it)}
    return found | {"interpreter"} if INTERPRETER else found


# What the same failure is called, by version: newer names are subclasses of what older versions raise.
FileMissing = getattr(exceptions, "FileNotFoundException", exceptions.NotFoundException)
SandboxMissing = getattr(exceptions, "SandboxNotFoundException", exceptions.NotFoundException)
NotRunning = getattr(exceptions, "SandboxNotRunningException", exceptions.TimeoutException)
VolumeException = getattr(exceptions, "VolumeException", None)
VolumeMissing = getattr(exceptions, "VolumeNotFoundException", exceptions.NotFoundException)
VolumePathMissing = getattr(exceptions, "VolumePathNotFoundException", exceptions.NotFoundException)
# The oldest version does not look at what was not found when it asks for metrics.
MetricsMissing = SandboxMissing if since("2.30") else exceptions.SandboxException


def kind(info) -> str:
    """What a written thing is; the oldest version has the word itself."""
    return getattr(info.type, "value", info.type)


def aware(moment):
    """A time with its zone, which the oldest version leaves out."""
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


# Calls of the class `Sandbox` that ask nobody and return at once, in both forms.
PLAIN = {"get_host", "download_url", "upload_url", "list", "list_snapshots"}
# What a sandbox consists of.
PARTS = {"commands", "files", "pty", "git"}
# What calls return and what has calls of its own.
LIVING = ("Sandbox", "CommandHandle", "WatchHandle", "SandboxPaginator", "SnapshotPaginator", "Volume")


class Threaded:
    """Something of the blocking form, with calls that can be awaited."""

    def __init__(self, thing, plain=frozenset()):
        self.thing = thing
        self.plain = plain

    def __getattr__(self, name: str):
        value = getattr(self.thing, name)
        if name in PARTS:
            return Threaded(value)
        if not callable(value):
            return value
        if name in self.plain:
            return lambda *args, **kwargs: threaded(value(*args, **kwargs))

        async def call(*args, **kwargs):
            return threaded(await asyncio.to_thread(value, *args, **kwargs))

        return call


def threaded(value):
    """What a call returned; what itself has calls that block is wrapped."""
    if isinstance(value, list):
        return [threaded(it) for it in value]
    if type(value).__name__ not in LIVING:
        return value
    return Threaded(value, PLAIN if type(value).__name__ == "Sandbox" else frozenset())


def sandbox_class(form: str):
    """The class with which everything begins."""
    return package.AsyncSandbox if form == "async" else Threaded(package.Sandbox, PLAIN)


def volume_class(form: str):
    """The class of directories that outlive sandboxes; the oldest version has none."""
    if not since("2.30"):
        return None
    return e2b.AsyncVolume if form == "async" else Threaded(e2b.Volume)


def template_class(form: str):
    """What templates are built with."""
    return e2b.AsyncTemplate if form == "async" else Threaded(e2b.Template)


class Place:
    """Where the package finds a server, for as long as the block lasts. It reads its environment at every call."""

    def __init__(self, url: str, key: str):
        self.values = dict.fromkeys(("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"), url) | {"E2B_API_KEY": key}
        self.before = {}

    @classmethod
    def current(cls) -> "Place":
        """The one in force."""
        return cls(os.environ["E2B_API_URL"], os.environ["E2B_API_KEY"])

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.values}
        os.environ.update(self.values)
        return self

    def __exit__(self, *_):
        for name, value in self.before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
