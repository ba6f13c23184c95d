# How this program speaks: text goes straight to descriptors 1 and 2, as of every program; what is more than text travels
# between the text, in frames. A frame is written at once and is short, so that nothing else of this box can end up inside.
import base64
import io
import json
import os
import select
import sys
import threading

FRAME_BYTES_MAX = 4096  # a pipe takes this in one piece, also with other writers
EVENT_BYTES_MAX = 8 << 20  # what the server takes as one event
TEXT_CHARS_MAX = 1 << 20  # of one text in an event


def write_all(descriptor, data):
    """Writes all of it, also to a pipe that was made non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view):]
        except BlockingIOError:
            select.select([], [descriptor], [])


def clean(text):
    """A text without half characters, which are no JSON."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shortened(text, chars_max=TEXT_CHARS_MAX):
    if len(text) <= chars_max:
        return clean(text)
    return clean(text[:chars_max]) + "\n... (%d more characters)" % (len(text) - chars_max)


def private(descriptor):
    """A copy of a descriptor that commands of a cell do not get."""
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 200)


class Frames:
    def __init__(self, nonce):
        self.prefix = b"\x1e" + nonce.encode("ascii")
        self.out, self.err = private(1), private(2)
        self.process, self.turn = os.getpid(), threading.RLock()

    def frame(self, descriptor, kind, payload):
        write_all(descriptor, self.prefix + kind + payload + b"\n")

    def both(self, kind, payload):
        self.frame(self.err, kind, payload)
        self.frame(self.out, kind, payload)

    def begin(self, number, count):
        self.both(b"b", b"%d %d" % (number, count))

    def end(self, number):
        self.both(b"e", b"%d 0" % number)

    def event(self, kind, **fields):
        """Sends an event, in as many pieces as it needs."""
        if os.getpid() != self.process:
            return  # a copy of us that a cell made; two cannot speak in pieces at once
        fields["type"] = kind
        data = json.dumps(fields, allow_nan=False).encode("ascii")
        if len(data) > EVENT_BYTES_MAX:
            raise ValueError("the %s has %d bytes; at most %d can be shown" % (kind, len(data), EVENT_BYTES_MAX))
        room = FRAME_BYTES_MAX - len(self.prefix) - 2
        pieces = [data[at:at + room] for at in range(0, len(data), room)]
        with self.turn:
            if len(pieces) == 1:
                return self.frame(self.out, b"v", pieces[0])
            self.frame(self.out, b"s", pieces[0])
            for piece in pieces[1:-1]:
                self.frame(self.out, b"c", piece)
            self.frame(self.out, b"f", pieces[-1])


class Stream(io.TextIOBase):
    """Standard output or error of a cell: everything is written at once, so that nothing is lost with the process."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, descriptor, name):
        self.descriptor, self.name = descriptor, name
        self.buffer = open(descriptor, "wb", closefd=False)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        self.buffer.flush()
        write_all(self.descriptor, text.encode("utf-8", "backslashreplace"))
        return len(text)

    def flush(self):
        self.buffer.flush()

    def fileno(self):
        return self.descriptor

    def writable(self):
        return True

    def close(self):
        self.flush()


class NoInput(io.TextIOBase):
    """Standard input of a cell, which is empty."""

    encoding = "utf-8"

    def readable(self):
        return True

    def fileno(self):
        return 0

    def read(self, *_):
        raise EOFError("a cell has no standard input: put the value into the code")

    readline = read

    def close(self):
        pass
