"""What is stored where, and whether both sides see one directory."""

import hashlib
import os
import secrets

from suite import case, equal, holds, raises

PROBE = ".langbot-box-volume-probe-"


@case("storage")
async def storage_is_told_by_directory(box, ground):
    root = os.path.join(ground.directory, box.name("root"))
    async with ground.fresh({"local": {"host_root": root}}) as link:
        own = link.box()
        await own.init({"local": {"host_root": root}})
        await own.run("head -c 5000 /dev/zero > /workspace/five; head -c 300 /dev/zero > /tmp/three")
        found = await own.get_storage_analysis()
        holds(
            {"size_bytes", "directories", "active_sessions", "managed_processes"} <= set(found),
            f"fields are {set(found)}",
        )
        equal(found["active_sessions"], 1, "active_sessions")
        by_key = {it["key"]: it for it in found["directories"]}
        holds({"workspace", "session_workspaces", "session_temp"} <= set(by_key), f"directories are {set(by_key)}")
        holds(by_key["session_workspaces"]["size_bytes"] >= 5000, f"workspaces are {by_key['session_workspaces']}")
        holds(by_key["session_temp"]["size_bytes"] >= 300, f"temporary files are {by_key['session_temp']}")
        equal(by_key["workspace"]["scope"], "runtime_host", "scope")
        for it in found["directories"]:
            holds(
                {"key", "path", "kind", "exists", "size_bytes", "file_count", "error_count", "scope"} <= set(it),
                f"entry {it}",
            )
        roots = sum(it["size_bytes"] for it in found["directories"] if it["kind"] == "root")
        equal(found["size_bytes"], roots, "size_bytes")


@case("shared-workspace")
async def a_shared_workspace_is_proved_by_a_marker(box, ground):
    from langbot_plugin.box.errors import BoxReadinessError

    root = os.path.join(ground.directory, box.name("root"))
    async with ground.fresh({"local": {"host_root": root}}) as link:
        own = link.box()
        await own.init({"local": {"host_root": root}})
        name, data = PROBE + secrets.token_hex(16), secrets.token_bytes(32)
        with open(os.path.join(root, "default", name), "wb") as file:
            file.write(data)
        wanted = {"marker_name": name, "sha256": hashlib.sha256(data).hexdigest(), "size": 32}
        equal(await own.verify_shared_workspace(name), wanted, "answer")
        await raises(BoxReadinessError, own.verify_shared_workspace(PROBE + "0" * 32))
        text = "Invalid Box shared Workspace probe basename"
        for bad in ["", "../" + name, PROBE + "XYZ", "/etc/passwd"]:
            await raises(BoxReadinessError, own.verify_shared_workspace(bad), text)
        link_name = PROBE + secrets.token_hex(16)
        os.symlink("/etc/passwd", os.path.join(root, "default", link_name))
        await raises(BoxReadinessError, own.verify_shared_workspace(link_name))
