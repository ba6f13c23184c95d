"""A command that runs until the test lets it go, through a directory that both see."""

import os


class Gate:
    """A named pipe: who reads waits, without work, until the test opens the other end."""

    def __init__(self, box, ground):
        self.place = os.path.join(ground.directory, box.name("gate"))
        os.makedirs(self.place, exist_ok=True)
        os.mkfifo(os.path.join(self.place, "gate"))

    def fields(self) -> dict:
        """What the spec of the command needs."""
        return {"host_path": self.place, "workdir": "/workspace", "timeout_sec": 50}

    @staticmethod
    def script(then: str = "true") -> str:
        """The command."""
        return f": < /workspace/gate; {then}"

    def open(self) -> None:
        """Lets go who waits now and who comes later: as long as this end is open, nobody waits."""
        self.end = os.open(os.path.join(self.place, "gate"), os.O_RDWR)
