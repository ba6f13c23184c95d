"""Uses a client that openapi-python-client made from our OpenAPI document.

Arguments: the server's URL and a token. Every byte goes through the generated code: what the document says wrongly of a body,
a client that is generated sends or expects wrongly.
"""

import io
import sys

from client import AuthenticatedClient
from client.api.execs import execs_exec, execs_of_exec
from client.api.files import files_download, files_list, files_upload
from client.api.sessions import sessions_create, sessions_delete, sessions_get
from client.models import CreateBody, EntryView, ExecBody, ExecResult, SessionView
from client.types import File

BYTES = bytes(range(256)) * 1024
SESSION = "generated client"
PATH = "/workspace/bytes"
PASSED = 0


def holds(is_so, what):
    """Counts a check, or ends with what does not hold."""
    global PASSED
    if not is_so:
        print(f"FAILED openapi-client: {what}")
        print(f"suite-result: passed={PASSED} failed=1 skipped=0")
        sys.exit(1)
    PASSED += 1


def main(url, token):
    client = AuthenticatedClient(base_url=url, token=token)

    made = sessions_create.sync(SESSION, client=client, body=CreateBody(memory_mb=256, ttl_sec=600))
    holds(isinstance(made, SessionView) and made.session_id == SESSION, f"a session is made: {made}")
    found = sessions_get.sync(SESSION, client=client)
    holds(isinstance(found, SessionView) and found.memory_mb == 256, f"it is shown as it was made: {found}")

    written = files_upload.sync(SESSION, client=client, path=PATH, body=File(payload=io.BytesIO(BYTES)))
    holds(isinstance(written, EntryView) and written.size == len(BYTES), f"bytes are written: {written}")
    read = files_download.sync(SESSION, client=client, path=PATH)
    holds(isinstance(read, File) and read.payload.read() == BYTES, "the same bytes are read")
    part = files_download.sync(SESSION, client=client, path=PATH, range_="bytes=10-19")
    holds(isinstance(part, File) and part.payload.read() == BYTES[10:20], "a part of them is read")
    listed = files_list.sync(SESSION, client=client, path="/workspace")
    holds([entry.path for entry in listed.entries] == [PATH], f"the file is listed: {listed}")

    ended = execs_exec.sync(SESSION, client=client, body=ExecBody(cmd=f"cat {PATH}; echo done >&2"))
    holds(isinstance(ended, ExecResult) and (ended.exit_code, ended.stderr) == (0, "done\n"), f"a command runs: {ended}")
    output = execs_of_exec.sync(SESSION, ended.exec_id, client=client)
    holds(isinstance(output, File) and output.payload.read() == BYTES, "its output is what it wrote, byte for byte")

    gone = sessions_delete.sync_detailed(SESSION, client=client)
    holds(gone.status_code == 200, f"the session is removed: {gone.status_code}")
    print(f"suite-result: passed={PASSED} failed=0 skipped=0")


if __name__ == "__main__":
    main(*sys.argv[1:])
