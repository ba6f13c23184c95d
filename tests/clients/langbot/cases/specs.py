"""What a spec may be: defaults, lax scalars, refusals, mounts."""

import os

from langbot_plugin.box.errors import BoxSessionConflictError, BoxValidationError
from langbot_plugin.box.models import BoxHostMountMode, BoxNetworkMode
from langbot_plugin.entities.io.errors import ActionCallError

from suite import case, equal, holds, raises

DEFAULTS = {
    "image": "rockchin/langbot-sandbox:latest",
    "network": "off",
    "host_path": None,
    "host_path_mode": "rw",
    "mount_path": "/workspace",
    "persistent": False,
    "cpus": 1.0,
    "memory_mb": 512,
    "pids_limit": 128,
    "read_only_rootfs": True,
    "workspace_quota_mb": 0,
}


async def refused(box, part: str, **fields) -> None:
    fields = {"session_id": box.name("refused"), "cmd": "true"} | fields
    await raises(ActionCallError, box.exec_raw(**fields), "BoxValidationError:", part)


@case()
async def omitted_fields_take_their_defaults(box, ground):
    session = await box.raw("box_create_session", {"session_id": box.name("s")}, timeout=60)
    equal({key: session[key] for key in DEFAULTS}, DEFAULTS, "session")
    result = await box.exec_raw(session_id=box.name("s"), cmd="pwd")
    equal((result["stdout"], result["exit_code"]), ("/workspace", 0), "result")


@case()
async def scalars_are_read_as_laxly_as_the_original_reads_them(box, ground):
    fields = {
        "session_id": f"  {box.name('s')}  ",
        "cmd": "  echo lax  ",
        "timeout_sec": "30",
        "memory_mb": 256.0,
        "cpus": "1",
        "pids_limit": "64",
        "persistent": "false",
        "read_only_rootfs": 1,
        "workspace_quota_mb": False,
        "workdir": " /tmp ",
    }
    result = await box.exec_raw(**fields)
    equal((result["stdout"], result["session_id"]), ("lax", box.name("s")), "result")
    session = await box.get_session(box.name("s"))
    found = [
        session[key]
        for key in ["memory_mb", "cpus", "pids_limit", "persistent", "read_only_rootfs", "workspace_quota_mb"]
    ]
    equal(found, [256, 1.0, 64, False, True, 0], "session")


@case()
async def values_out_of_range_are_refused_with_their_field(box, ground):
    await refused(box, "timeout_sec", timeout_sec=0)
    await refused(box, "timeout_sec", timeout_sec=1.5)
    await refused(box, "timeout_sec", timeout_sec="soon")
    await refused(box, "cpus", cpus=0)
    await refused(box, "memory_mb", memory_mb=31)
    await refused(box, "pids_limit", pids_limit=0)
    await refused(box, "workspace_quota_mb", workspace_quota_mb=-1)
    await refused(box, "network", network="maybe")
    await refused(box, "host_path_mode", host_path_mode="x")
    await refused(box, "session_id", session_id="   ")
    await refused(box, "workdir", workdir="relative")
    await refused(box, "mount_path", mount_path="relative")
    await refused(box, "host_path", host_path="relative")
    await refused(box, "env", env={"A": 1})
    await refused(box, "cmd", cmd=5)
    await refused(box, "extra_mounts", extra_mounts=[{"host_path": "x", "mount_path": "/m"}])


@case()
async def a_working_directory_follows_the_mount_path(box, ground):
    fields = {"session_id": box.name("s"), "mount_path": "/data", "cmd": "pwd", "read_only_rootfs": False}
    equal((await box.exec_raw(**fields))["stdout"], "/data", "missing")
    equal((await box.exec_raw(**fields, workdir=""))["stdout"], "/data", "empty")
    equal((await box.exec_raw(**fields, workdir=None))["stdout"], "/data", "null")


@case()
async def attachments_that_only_their_owner_may_read_come_and_go(box, ground):
    """What LangBot does with the files of a message: directories that only it enters, files that only it reads. Twice, because
    the first box may have left something that the second cannot use."""
    place = os.path.join(ground.directory, box.name("host"))
    os.makedirs(place)
    for turn in ["one", "two"]:
        inbox, outbox = (os.path.join(place, name, turn) for name in ["inbox", "outbox"])
        for directory in [os.path.dirname(inbox), inbox, os.path.dirname(outbox), outbox]:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            os.chmod(directory, 0o700)
        with open(os.open(os.path.join(inbox, "report"), os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"words of {turn}")
        command = f"tr a-z A-Z < inbox/{turn}/report > outbox/{turn}/answer && chmod 600 outbox/{turn}/answer"
        result = await box.run(command, session=turn, host_path=place, workdir="/workspace")
        equal((result.exit_code, result.stderr), (0, ""), f"turn {turn}")
        answer = os.path.join(outbox, "answer")
        with open(answer) as file:
            equal(file.read(), f"WORDS OF {turn.upper()}", "the answer")
        for path in [place, inbox, os.path.join(inbox, "report"), outbox, answer]:
            equal(os.lstat(path).st_uid, os.geteuid(), f"the owner of {path}")
        await box.delete_session(box.name(turn))
        os.remove(answer)


@case()
async def a_working_directory_below_the_mount_path_is_allowed(box, ground):
    place = os.path.join(ground.directory, box.name("host"))
    os.makedirs(os.path.join(place, "src"))
    result = await box.run("pwd; echo made > here", host_path=place, mount_path="/project", workdir="/project/src")
    equal((result.exit_code, result.stdout), (0, "/project/src"), "result")
    equal(os.listdir(os.path.join(place, "src")), ["here"], "the directory on the host")


@case()
async def a_working_directory_outside_the_mount_is_refused(box, ground):
    place = os.path.join(ground.directory, box.name("host"))
    for mode in ["ro", "rw"]:
        await refused(box, "workdir", host_path=place, host_path_mode=mode, workdir="/tmp")
    await refused(box, "workdir", host_path=place, mount_path="/project", workdir="/projects")
    result = await box.exec_raw(
        session_id=box.name("none"), host_path=place, host_path_mode="none", workdir="/tmp", cmd="pwd"
    )
    equal(result["stdout"], "/tmp", "mode none")


@case()
async def a_host_directory_is_mounted_read_write(box, ground):
    place = os.path.join(ground.directory, box.name("host"))
    os.makedirs(place)
    with open(os.path.join(place, "given"), "w") as file:
        file.write("from the host")
    result = await box.run("cat given; echo made > made", host_path=place, workdir="/workspace")
    equal((result.exit_code, result.stdout), (0, "from the host"), "result")
    with open(os.path.join(place, "made")) as file:
        equal(file.read(), "made\n", "the file on the host")


@case()
async def a_read_only_mount_cannot_be_written(box, ground):
    place = os.path.join(ground.directory, box.name("host"))
    os.makedirs(place)
    result = await box.run(
        "touch /project/x",
        host_path=place,
        host_path_mode=BoxHostMountMode.READ_ONLY,
        mount_path="/project",
        workdir="/project",
    )
    holds(result.exit_code != 0, "the file was made")
    equal(os.listdir(place), [], "the directory on the host")


@case()
async def a_missing_host_directory_is_made(box, ground):
    place = os.path.join(ground.directory, box.name("missing"), "deeper")
    await box.run("touch here", host_path=place, workdir="/workspace")
    equal(os.listdir(place), ["here"], "the directory on the host")


@case()
async def extra_mounts_appear_where_they_are_wanted(box, ground):
    one, two = (os.path.join(ground.directory, box.name(name)) for name in ["one", "two"])
    for place in [one, two]:
        os.makedirs(place)
        with open(os.path.join(place, "name"), "w") as file:
            file.write(os.path.basename(place))
    mounts = [
        {"host_path": one, "mount_path": "/mnt/one", "mode": "ro"},
        {"host_path": two, "mount_path": "/mnt/two"},
        {"host_path": two, "mount_path": "/mnt/never", "mode": "none"},
    ]
    script = "cat /mnt/one/name /mnt/two/name; touch /mnt/one/x || echo no; touch /mnt/two/y; ls /mnt/never 2>/dev/null"
    result = await box.run(script, extra_mounts=mounts)
    equal(result.stdout.split(), [f"{box.name('one')}{box.name('two')}no"], "output")
    equal((sorted(os.listdir(one)), sorted(os.listdir(two))), (["name"], ["name", "y"]), "directories")


@case()
async def changed_extra_mounts_are_there_or_told_of(box, ground):
    """A session is built again with the new mounts, as LangBot before 4.11.1 needs it, or the change is a conflict."""
    place = os.path.join(ground.directory, box.name("late"))
    os.makedirs(place)
    with open(os.path.join(place, "name"), "w") as file:
        file.write("late")
    await box.run("true")
    mounts = [{"host_path": place, "mount_path": "/mnt/late", "mode": "ro"}]
    equal((await box.run("cat /mnt/late/name", extra_mounts=mounts)).stdout, "late", "output")


@case()
async def directories_of_the_system_cannot_be_mounted(box, ground):
    link = os.path.join(ground.directory, box.name("link"))
    os.symlink("/etc", link)
    for path in ["/etc", "/etc/ssl", "/proc", "/sys/kernel", "/dev", "/root", "/boot", "/run", "/var/run", link]:
        call = box.run("true", "blocked", host_path=path, workdir="/workspace")
        await raises(BoxValidationError, call, f"host_path {path} is blocked for security")
        mounts = [{"host_path": path, "mount_path": "/mnt/x", "mode": "ro"}]
        await raises(BoxValidationError, box.run("true", "blocked", extra_mounts=mounts), "is blocked for security")


@case()
async def a_directory_outside_of_the_allowed_roots_cannot_be_mounted(box, ground):
    """The original left this to LangBot; here the server holds it too."""
    for fields in [
        {"host_path": "/srv", "workdir": "/workspace"},
        {"extra_mounts": [{"host_path": "/srv", "mount_path": "/mnt/x"}]},
    ]:
        await raises(BoxValidationError, box.run("true", "outside", **fields))


@case()
async def the_root_is_read_only_unless_asked_otherwise(box, ground):
    holds((await box.run("touch /usr/x", "a")).exit_code != 0, "the root can be written")
    holds(
        (await box.run("touch /usr/x || touch /opt/x || touch /x", "b", read_only_rootfs=False)).exit_code == 0,
        "nothing of the root can be written",
    )


@case()
async def a_box_without_network_has_no_way_out(box, ground):
    result = await box.run(
        "ls /sys/class/net 2>/dev/null || cat /proc/net/dev | tail -n +3 | cut -d: -f1", network=BoxNetworkMode.OFF
    )
    equal(set(result.stdout.split()) - {"lo"}, set(), "interfaces")


@case()
async def memory_is_limited(box, ground):
    result = await box.run("python3 -c 'x = bytearray(400 << 20); print(len(x))'", memory_mb=64)
    holds(result.exit_code != 0, f"400 MiB fitted into 64: {result.stdout!r}")


@case("tenancy")
async def fields_of_every_version_are_accepted(box, ground):
    fields = {"session_id": box.name("s"), "cmd": "echo fine", "workdir": "/tmp", "skill_name": None}
    equal((await box.exec_raw(**fields))["stdout"], "fine", "skill_name")
    place = os.path.join(ground.directory, box.name("mount"))
    os.makedirs(place)
    mount = {"host_path": place, "mount_path": "/mnt/x", "mode": "ro", "content_digest": None, "manifest_path": None}
    fields = {"session_id": box.name("m"), "cmd": "echo fine", "workdir": "/tmp", "extra_mounts": [mount]}
    equal((await box.exec_raw(**fields))["stdout"], "fine", "mounts")


@case()
async def another_directory_of_the_host_conflicts(box, ground):
    first, second = (os.path.join(ground.directory, box.name(name)) for name in ["first", "second"])
    for place in [first, second]:
        os.makedirs(place)
    equal((await box.run("pwd", host_path=first, workdir="/workspace")).stdout, "/workspace", "the first")
    spec = box.spec("true", host_path=second, workdir="/workspace")
    await raises(BoxSessionConflictError, box.execute(spec), f"already exists with host_path={first}")


@case()
async def a_conflict_names_the_field_and_its_value(box, ground):
    place = os.path.join(ground.directory, box.name("host"))
    os.makedirs(place)
    await box.create_session(box.spec(workdir="/workspace"))
    table = [
        ("network", BoxNetworkMode.ON, "off"),
        ("host_path", place, "None"),
        ("mount_path", "/other", "/workspace"),
        ("persistent", True, "False"),
        ("cpus", 2.0, "1.0"),
        ("pids_limit", 64, "128"),
        ("read_only_rootfs", False, "True"),
        ("workspace_quota_mb", 5, "0"),
    ]
    for field, value, old in table:
        spec = box.spec(
            "true", **{"workdir": "/workspace", field: value} | ({"workdir": "/other"} if field == "mount_path" else {})
        )
        await raises(BoxSessionConflictError, box.execute(spec), f"already exists with {field}={old}")
    holds(
        (await box.run("true", workdir="/workspace", env={"A": "1"}, timeout_sec=7)).ok,
        "what never conflicts conflicts",
    )


@case("tenancy")
async def unknown_fields_are_refused_unless_the_client_sends_a_skill_name(box, ground):
    """Clients from 0.7.13 on never send the key and count on the refusal; those before always do."""
    spec = {"session_id": box.name("s"), "cmd": "echo ok", "cpu": 2}
    for action in ["box_exec", "box_create_session"]:
        await raises(ActionCallError, box.raw(action, spec), "cpu\n  Extra inputs are not permitted")
    result = await box.raw("box_exec", spec | {"skill_name": None}, 60)
    equal(result["stdout"], "ok", "output")
