"""Templates built from steps, and sandboxes that begin with them."""

import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import e2b
from e2b import BuildException, SandboxException

from suite import case, equal, holds, raises

LIMIT_SEC = 240


def begun(desk, directory: str = "."):
    """A template that begins with what every server has."""
    kind = e2b.AsyncTemplate if desk.form == "async" else e2b.Template
    return kind(file_context_path=directory).from_template("base")


@asynccontextmanager
async def built(desk, template, name: str | None = None, **options):
    """Builds a template, which is deleted at the end."""
    info = await desk.Template.build(template, name or f"built-{desk.mark[:12]}", **options)
    try:
        yield info
    finally:
        await desk.Sandbox.delete_snapshot(info.template_id)


@case("saving", limit_sec=LIMIT_SEC)
async def a_sandbox_begins_with_what_the_steps_did(desk):
    template = (
        begun(desk)
        .run_cmd("mkdir -p /opt/tool && echo tool > /opt/tool/name", user="root")
        .run_cmd(["echo one > note", "echo two >> note"])
        .set_envs({"COLOUR": "blue", "SIZE": "3"})
        .run_cmd("echo $COLOUR > colour")
    )
    said = []
    async with built(desk, template, on_build_logs=lambda entry: said.append(entry.message)) as info:
        sandbox = await desk.sandbox(info.template_id)
        seen = await sandbox.commands.run("cat /opt/tool/name note colour; echo $COLOUR $SIZE; whoami; pwd")
        equal(seen.stdout, "tool\none\ntwo\nblue\nblue 3\nuser\n/home/user\n", "what the sandbox has")
        named = await desk.sandbox(f"built-{desk.mark[:12]}", envs={"SIZE": "4"})
        equal((await named.commands.run("echo $COLOUR $SIZE")).stdout, "blue 4\n", "variables of the caller come last")
    holds(any("RUN echo one" in it for it in said), f"the log tells of the steps: {said}")


@case("saving", limit_sec=LIMIT_SEC)
async def files_are_copied(desk):
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "app" / "inner").mkdir(parents=True)
        (place / "app" / "main.py").write_text("print('main')\n")
        (place / "app" / "inner" / "data").write_text("data\n")
        (place / "one.txt").write_text("one\n")
        (place / "two.txt").write_text("two\n")
        template = (
            begun(desk, directory)
            .copy("one.txt", "/etc/one.conf", user="root", mode=0o600)
            .copy("one.txt", "/opt/made/here/")
            .copy("app", "/home/user/app")
            .copy("*.txt", "texts/")
        )
        async with built(desk, template) as info:
            sandbox = await desk.sandbox(info.template_id)
            seen = await sandbox.commands.run(
                "stat -c '%U %a' /etc/one.conf; cat /opt/made/here/one.txt; cd; ls texts; python3 app/main.py 2>/dev/null || cat app/main.py;"
                " cat app/inner/data; stat -c %U app app/main.py; touch app/new && echo writable"
            )
            lines = seen.stdout.split("\n")
            equal(lines[:4], ["root 600", "one", "one.txt", "two.txt"], "single files and patterns")
            equal(lines[5:], ["data", "user", "user", "writable", ""], "a directory")


@case("saving", limit_sec=LIMIT_SEC)
async def user_and_directory_hold_in_the_sandbox(desk):
    template = begun(desk).set_workdir("/srv/work").run_cmd("pwd > where").set_user("root").run_cmd("whoami > who")
    async with built(desk, template) as info:
        sandbox = await desk.sandbox(info.template_id)
        seen = await sandbox.commands.run("cat where who; pwd; whoami")
        equal(seen.stdout, "/srv/work\nroot\n/srv/work\nroot\n", "where and who")
        equal((await sandbox.commands.run("whoami", user="user")).stdout, "user\n", "who is named")


@case("saving", limit_sec=LIMIT_SEC)
async def a_step_that_fails_is_told(desk):
    template = begun(desk).run_cmd("true").run_cmd("echo what went wrong >&2; exit 7")
    said, name = [], f"failing-{desk.mark[:12]}"
    build = desk.Template.build(template, name, on_build_logs=lambda entry: said.append(entry.message))
    await raises(BuildException, build, "7")
    holds("what went wrong" in said, f"the log has what it said: {said}")
    await raises(SandboxException, desk.sandbox(name), "404")


@case("saving", limit_sec=LIMIT_SEC)
async def a_template_exists_once_it_is_built(desk):
    name = f"there-{desk.mark[:12]}"
    equal(await desk.Template.exists(name), False, "before")
    async with built(desk, begun(desk).run_cmd("true"), name):
        equal(await desk.Template.exists(name), True, "after")
    equal(await desk.Template.exists(name), False, "when it was deleted")


@case("saving", limit_sec=LIMIT_SEC)
async def versions_of_a_template_are_told_apart_by_tags(desk):
    name = f"tagged-{desk.mark[:12]}"
    async with built(desk, begun(desk).run_cmd("echo 1 > version"), f"{name}:v1") as first:
        async with built(desk, begun(desk).run_cmd("echo 2 > version"), name, tags=["v2", "stable"]) as second:
            equal(second.template_id, first.template_id, "one template")
            for tag, version in (("v1", "1"), ("v2", "2"), ("stable", "2")):
                sandbox = await desk.sandbox(f"{name}:{tag}")
                equal(await sandbox.files.read("/home/user/version"), f"{version}\n", tag)
            await desk.Template.assign_tags(f"{name}:v1", "stable")
            equal({it.tag for it in await desk.Template.get_tags(name)}, {"v1", "v2", "stable"}, "tags")
            sandbox = await desk.sandbox(f"{name}:stable")
            equal(await sandbox.files.read("/home/user/version"), "1\n", "the tag has moved")
            await desk.Template.remove_tags(name, ["v2"])
            await raises(SandboxException, desk.sandbox(f"{name}:v2"), "404")


@case("saving", limit_sec=LIMIT_SEC)
async def a_template_begins_with_another_one(desk):
    first, second = f"first-{desk.mark[:12]}", f"second-{desk.mark[:12]}"
    async with built(desk, begun(desk).run_cmd("echo first > first").set_envs({"FROM": "first"}), first):
        kind = e2b.AsyncTemplate if desk.form == "async" else e2b.Template
        template = kind().from_template(first).run_cmd("cp first second; echo $FROM >> second")
        async with built(desk, template, second):
            sandbox = await desk.sandbox(second)
            equal(await sandbox.files.read("/home/user/second"), "first\nfirst\n", "file")


@case("saving", limit_sec=LIMIT_SEC)
async def what_a_template_starts_is_ready_when_its_sandbox_is(desk):
    template = begun(desk).set_start_cmd("sleep 1; echo up > /tmp/up; sleep 600", e2b.wait_for_file("/tmp/up"))
    async with built(desk, template) as info:
        sandbox = await desk.sandbox(info.template_id)
        equal(await sandbox.files.read("/tmp/up"), "up\n", "file")
        running = await sandbox.commands.list()
        holds(any("sleep 600" in " ".join(it.args) for it in running), f"it runs: {running}")


@case("saving", limit_sec=LIMIT_SEC)
async def a_step_of_an_unknown_user_is_told_in_the_words_of_e2b(desk):
    error = await raises(BuildException, desk.Template.build(begun(desk).run_cmd("whoami", user="root123"), f"none-{desk.mark}"))
    expected = "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'"
    holds(expected in str(error), f"the refusal is {error}")


@case()
async def an_image_that_is_not_allowed_names_the_key_that_allows_it(desk):
    error = await raises(SandboxException, desk.sandbox("ubuntu:22.04"))
    holds("404" in str(error) and "allowed_images" in str(error), f"the refusal is {error}")


@case("image")
async def a_sandbox_starts_from_an_allowed_image_by_its_name(desk):
    sandbox = await desk.sandbox("localhost/strongbox-test:1")
    # The image has a Python and no pip, and no name for the user of sandboxes.
    seen = await sandbox.commands.run("bash -c 'echo $BASH_VERSION' | grep -c .; python3 -m pip 2>/dev/null || echo no pip; id -u; pwd")
    equal(seen.stdout, "1\nno pip\n1000\n/home/user\n", "what the sandbox has")
    await sandbox.files.write("note", "text")
    equal(await sandbox.files.read("/home/user/note"), "text", "file")
    holds("strongbox-test" in (await sandbox.get_info()).template_id, "the sandbox names its image")
