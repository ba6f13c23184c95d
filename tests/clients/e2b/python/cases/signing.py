"""Addresses of files, used without the package: whoever has such an address needs nothing else."""

from web import ask, form
from suite import case, equal, holds, until

PATH = "/home/user/größe of it.txt"


def spoiled(url: str) -> str:
    """The same address with a signature that is one letter off."""
    head, _, rest = url.partition("signature=v1_")
    return f"{head}signature=v1_{'A' if rest[0] != 'A' else 'B'}{rest[1:]}"


@case()
async def a_file_is_downloaded_by_its_address(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(PATH, "content")
    answer = await ask("GET", sandbox.download_url(PATH))
    equal((answer.status, answer.body), (200, b"content"), "answer")


@case()
async def an_address_can_be_good_for_a_while(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(PATH, "content")
    answer = await ask("GET", sandbox.download_url(PATH, use_signature_expiration=60))
    equal((answer.status, answer.body), (200, b"content"), "answer")


@case()
async def an_address_whose_time_is_over_opens_nothing(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(PATH, "content")
    url = sandbox.download_url(PATH, use_signature_expiration=1)

    async def expired():
        answer = await ask("GET", url)
        return answer if answer.status != 200 else None

    answer = await until(expired, "it expires")
    equal((answer.status, answer.json()["code"]), (401, 401), "answer")
    equal((await ask("GET", sandbox.download_url(PATH, use_signature_expiration=-5))).status, 401, "status")


@case()
async def a_wrong_signature_opens_nothing(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(PATH, "content")
    for url in (sandbox.download_url(PATH), sandbox.download_url(PATH, use_signature_expiration=60)):
        equal((await ask("GET", spoiled(url))).status, 401, "status")


@case()
async def a_signature_is_for_one_path_one_user_and_one_deed(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write("/home/user/one", "1")
    await sandbox.files.write("/home/user/two", "2")
    url = sandbox.download_url("/home/user/one")
    equal((await ask("GET", url)).body, b"1", "the file")
    equal((await ask("GET", url.replace("one", "two"))).status, 401, "another path")
    equal((await ask("GET", f"{url}&username=root")).status, 401, "another user")
    equal((await ask("POST", url, *form(b"x"))).status, 401, "another deed")


@case()
async def a_file_is_uploaded_to_its_address(desk):
    sandbox = await desk.sandbox()
    answer = await ask("POST", sandbox.upload_url(PATH), *form(b"from a browser"))
    equal(answer.status, 200, f"status of {answer.body!r}")
    equal(answer.json()[0]["path"], PATH, "path")
    equal(await sandbox.files.read(PATH), "from a browser", "text")


@case()
async def a_file_is_uploaded_as_it_is(desk):
    sandbox = await desk.sandbox()
    url = sandbox.upload_url(PATH, use_signature_expiration=60)
    answer = await ask("POST", url, b"\x00\xff", {"Content-Type": "application/octet-stream"})
    equal(answer.status, 200, f"status of {answer.body!r}")
    equal(bytes(await sandbox.files.read(PATH, format="bytes")), b"\x00\xff", "bytes")


@case()
async def an_upload_with_a_wrong_signature_writes_nothing(desk):
    sandbox = await desk.sandbox()
    answer = await ask("POST", spoiled(sandbox.upload_url(PATH)), *form(b"x"))
    equal(answer.status, 401, "status")
    equal(await sandbox.files.exists(PATH), False, "exists")


@case("users")
async def an_address_can_be_roots(desk):
    sandbox = await desk.sandbox()
    await sandbox.commands.run("echo secret > /root/note && chmod 600 /root/note", user="root")
    equal((await ask("GET", sandbox.download_url("/root/note", user="root"))).body, b"secret\n", "as root")


@case()
async def a_part_of_a_file_can_be_asked_for(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(PATH, "0123456789")
    answer = await ask("GET", sandbox.download_url(PATH), headers={"Range": "bytes=2-4"})
    equal((answer.status, answer.body), (206, b"234"), "answer")


@case()
async def an_address_of_a_missing_file_says_so(desk):
    sandbox = await desk.sandbox()
    equal((await ask("GET", sandbox.download_url("/home/user/missing"))).status, 404, "status")


@case()
async def an_address_opens_nothing_when_the_sandbox_is_gone(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write(PATH, "content")
    url = sandbox.download_url(PATH)
    await sandbox.kill()
    holds((await ask("GET", url)).status in (401, 502), "nothing is served")
