"""What comes while something runs: output, terminals, events of directories. The two forms of the package tell it differently."""

import asyncio

from e2b import PtySize

from suite import until


class Running:
    """A command in the background, and what it has said so far."""

    def __init__(self, form: str):
        self.form = form
        self.out: list[str] = []
        self.err: list[str] = []
        self.handle = None
        self.waiting = None

    @classmethod
    async def start(cls, form: str, sandbox, command: str, **options) -> "Running":
        """Starts a command without waiting for it."""
        own = cls(form)
        heard = own.callbacks() if form == "async" else {}
        return own.attach(await sandbox.commands.run(command, background=True, **heard, **options))

    @classmethod
    async def connect(cls, form: str, sandbox, pid: int, **options) -> "Running":
        """Attaches to a command that runs."""
        own = cls(form)
        heard = own.callbacks() if form == "async" else {}
        return own.attach(await sandbox.commands.connect(pid, **heard, **options))

    def callbacks(self) -> dict:
        return {"on_stdout": self.out.append, "on_stderr": self.err.append}

    def attach(self, handle) -> "Running":
        self.handle = handle
        self.pid = handle.pid
        return self

    def listen(self) -> "asyncio.Task":
        """Hears the output from now on; the blocking form hears only while somebody waits."""
        if self.waiting is None:
            heard = {} if self.form == "async" else self.callbacks()
            self.waiting = asyncio.create_task(self.handle.wait(**heard))
            # Whether anybody asks for the end or not, it is no surprise.
            self.waiting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self.waiting

    async def wait(self):
        """How it ended."""
        return await self.listen()

    async def leave(self) -> None:
        """Gives its connection back, unless somebody waits for its end. An old version hangs when that is left to the garbage."""
        if self.waiting is None:
            await self.handle.disconnect()

    async def said(self, text: str) -> None:
        """Waits until it has written this to its output."""
        self.listen()
        await until(self.has_said(text), f"{text!r} is written; so far it is {''.join(self.out)!r}")

    def has_said(self, text: str):
        async def condition():
            return text in "".join(self.out)

        return condition


class Terminal:
    """A terminal, and what it has shown so far."""

    def __init__(self, form: str, sandbox):
        self.form = form
        self.sandbox = sandbox
        self.shown = bytearray()
        self.handle = None
        self.waiting = None

    @classmethod
    async def open(cls, form: str, sandbox, rows: int = 24, cols: int = 80, **options) -> "Terminal":
        own = cls(form, sandbox)
        heard = {"on_data": own.shown.extend} if form == "async" else {}
        own.follow(await sandbox.pty.create(PtySize(rows=rows, cols=cols), **heard, **options))
        return own

    @classmethod
    async def connect(cls, form: str, sandbox, pid: int) -> "Terminal":
        own = cls(form, sandbox)
        heard = {"on_data": own.shown.extend} if form == "async" else {}
        own.follow(await sandbox.pty.connect(pid, **heard))
        return own

    def follow(self, handle) -> None:
        self.handle = handle
        self.pid = handle.pid
        heard = {} if self.form == "async" else {"on_pty": self.shown.extend}
        self.waiting = asyncio.create_task(handle.wait(**heard))
        self.waiting.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def type(self, text: str) -> None:
        """Types this, as somebody at a keyboard."""
        await self.sandbox.pty.send_stdin(self.pid, text.encode())

    @property
    def text(self) -> str:
        return self.shown.decode("utf-8", "replace")

    async def shows(self, text: str) -> None:
        """Waits until it has shown this."""

        async def condition():
            return text in self.text

        await until(condition, f"{text!r} is shown; so far it is {self.text[-300:]!r}")


class Watch:
    """Events of a directory: the blocking form asks for them, the other one is told."""

    def __init__(self, form: str):
        self.form = form
        self.events = []
        self.ends = []
        self.handle = None

    @classmethod
    async def start(cls, form: str, sandbox, path: str, **options) -> "Watch":
        own = cls(form)
        heard = {"on_event": own.events.append, "on_exit": own.ends.append} if form == "async" else {}
        own.handle = await sandbox.files.watch_dir(path, **heard, **options)
        return own

    async def look(self) -> list:
        """All events so far."""
        if self.form == "sync":
            self.events.extend(await self.handle.get_new_events())
        return self.events

    async def sees(self, name: str, kind) -> object:
        """Waits for one event and returns it."""

        async def condition():
            return next((it for it in await self.look() if it.name == name and it.type == kind), None)

        return await until(condition, f"{kind} of {name}")

    async def stop(self) -> None:
        await self.handle.stop()


async def whole(stream) -> bytes:
    """All of a file that is read piece by piece."""
    if hasattr(stream, "__aiter__"):
        return b"".join([piece async for piece in stream])
    return await asyncio.to_thread(lambda: b"".join(stream))
