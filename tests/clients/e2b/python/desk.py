"""What a case works with."""

import uuid

from link import Place, sandbox_class, template_class, volume_class
from streams import Running, Terminal, Watch

# Long enough for any case, short enough that nothing of a dead driver stays.
LIFETIME_SEC = 300


class Desk:
    """One client; it ends the sandboxes that a case made."""

    def __init__(self, form: str, url: str, guarded: dict | None):
        self.form = form
        self.url = url
        self.guarded = guarded
        self.Sandbox = sandbox_class(form)
        self.Volume = volume_class(form)
        self.Template = template_class(form)
        self.made = []
        self.volumes = []
        self.started = []
        # Servers are shared with other drivers: what a case lists, it lists by this.
        self.mark = uuid.uuid4().hex

    async def sandbox(self, *args, metadata: dict | None = None, timeout: int = LIFETIME_SEC, **options):
        """A new sandbox, ended after the case."""
        metadata = {"mark": self.mark} | (metadata or {})
        return self.keep(await self.Sandbox.create(*args, metadata=metadata, timeout=timeout, **options))

    def keep(self, sandbox):
        """Ends this sandbox, too, after the case."""
        self.made.append((Place.current(), sandbox.sandbox_id))
        return sandbox

    async def volume(self, name: str = "data"):
        """A new volume, removed after the case."""
        volume = await self.Volume.create(f"{name}-{self.mark}")
        self.volumes.append((Place.current(), volume.volume_id))
        return volume

    async def start(self, sandbox, command: str, **options) -> Running:
        self.started.append(await Running.start(self.form, sandbox, command, **options))
        return self.started[-1]

    async def connect(self, sandbox, pid: int, **options) -> Running:
        return await Running.connect(self.form, sandbox, pid, **options)

    async def terminal(self, sandbox, **options) -> Terminal:
        return await Terminal.open(self.form, sandbox, **options)

    async def watch(self, sandbox, path: str, **options) -> Watch:
        return await Watch.start(self.form, sandbox, path, **options)

    def behind_tokens(self, key: str) -> Place:
        """The server that wants a key, with one of those that the stage made: `left` and `right` are of two tenants."""
        return Place(self.guarded["url"], self.guarded["keys"].get(key, key))

    async def clear(self) -> None:
        """Ends all sandboxes of the case and removes its volumes; of those that are gone already, the server says so."""
        while self.started:
            await self.started.pop().leave()
        while self.made:
            place, sandbox_id = self.made.pop()
            with place:
                await self.Sandbox.kill(sandbox_id)
        while self.volumes:
            place, volume_id = self.volumes.pop()
            with place:
                await self.Volume.destroy(volume_id)
