"""Grants: who may have a box at all, where LangBot runs as a service for many."""

import datetime as dt
import os

from suite import Skip, case, equal, holds, raises


def grant(box, **fields):
    from langbot_plugin.box.models import SandboxAdmissionGrant

    values = {
        "instance_uuid": box.link.instance,
        "workspace_uuid": box.workspace,
        "execution_generation": 1,
        "entitlement_revision": 1,
        "expires_at": dt.datetime.now(dt.UTC) + dt.timedelta(seconds=200),
        "max_sessions": 1,
        "max_managed_processes": 0,
    }
    return SandboxAdmissionGrant(**values | fields)


def revocation(box, revision: int):
    from langbot_plugin.box.models import SandboxAdmissionRevocation

    return SandboxAdmissionRevocation(
        instance_uuid=box.link.instance, workspace_uuid=box.workspace, entitlement_revision=revision
    )


def config(ground, box) -> dict:
    root = os.path.join(ground.directory, box.name("root"))
    os.makedirs(os.path.join(root, "default"))
    return {"admission": {"required": True}, "local": {"host_root": root, "allowed_mount_roots": [root]}}


@case("admission")
async def grants_need_the_mode_to_be_on(box, ground):
    from langbot_plugin.box.errors import BoxAdmissionError

    await raises(BoxAdmissionError, box.upsert_sandbox_admission_grant(grant(box)), "not enabled")


@case("admission")
async def a_grant_is_answered_with_what_was_installed(box, ground):
    async with ground.fresh(config(ground, box)) as link:
        own = link.box()
        wanted = grant(own)
        answer = await own.upsert_sandbox_admission_grant(wanted)
        equal(
            answer,
            {
                "installed": True,
                "workspace_uuid": own.workspace,
                "execution_generation": 1,
                "entitlement_revision": 1,
                "max_sessions": 1,
                "max_managed_processes": 0,
                "expires_at": wanted.expires_at.isoformat(),
            },
            "receipt",
        )
        answer = await own.revoke_sandbox_admission_grant(revocation(own, 1))
        equal(answer, {"revoked": True, "workspace_uuid": own.workspace, "entitlement_revision": 1}, "receipt")


@case("admission")
async def bad_grants_are_refused(box, ground):
    from langbot_plugin.box.errors import BoxAdmissionError, BoxError

    async with ground.fresh(config(ground, box)) as link:
        own = link.box()
        now = dt.datetime.now(dt.UTC)
        table = [
            (grant(own, expires_at=now - dt.timedelta(seconds=1)), "expired"),
            (grant(own, expires_at=now + dt.timedelta(seconds=4000)), "lifetime exceeds"),
            (grant(own, max_sessions=2), "session cap"),
            (grant(own, max_managed_processes=1), "managed-process cap"),
        ]
        for wanted, text in table:
            await raises(BoxAdmissionError, own.upsert_sandbox_admission_grant(wanted), text)
        foreign = grant(own, instance_uuid="another")
        text = "PermissionError: Sandbox admission grant does not match the trusted instance"
        await raises(BoxError, own.upsert_sandbox_admission_grant(foreign), text)
        await own.upsert_sandbox_admission_grant(grant(own, entitlement_revision=3))
        await raises(BoxAdmissionError, own.upsert_sandbox_admission_grant(grant(own, entitlement_revision=2)), "stale")
        changed = grant(own, entitlement_revision=3, max_sessions=0)
        await raises(BoxAdmissionError, own.upsert_sandbox_admission_grant(changed), "limits changed")
        await own.revoke_sandbox_admission_grant(revocation(own, 3))
        await raises(
            BoxAdmissionError, own.upsert_sandbox_admission_grant(grant(own, entitlement_revision=3)), "revoked"
        )


@case("admission")
async def without_a_grant_there_is_no_box(box, ground):
    from langbot_plugin.box.errors import BoxAdmissionError, BoxReadinessError

    async with ground.fresh(config(ground, box)) as link:
        own = link.box()
        try:
            await own.execute(own.spec("true", session_id="global", workdir="/workspace"))
        except (BoxAdmissionError, BoxReadinessError):
            pass
        else:
            raise AssertionError("a command ran without a grant")


@case("admission")
async def readiness_is_told_with_every_check(box, ground):
    import json

    from ground import get

    async with ground.fresh(config(ground, box)) as link:
        status, _, text = await get(f"{link.relay_base}/readyz")
        found = json.loads(text)
        equal(found["mode"], "grant_enforced", "mode")
        equal(status, 200 if found["ready"] else 503, "status")
        wanted = {
            "configuration",
            "required_backend",
            "workspace_mount",
            "backend_available",
            "cgroup_v2",
            "namespace_isolation",
            "mount_isolation",
            "network_isolation",
            "hard_workspace_quota",
            "bounded_ephemeral_storage",
            "inode_quota",
            "session_cap",
            "managed_process_cap",
        }
        holds(wanted <= set(found["checks"]), f"checks are {found['checks']}")
        equal(found["ready"], all(found["checks"].values()), "ready")


@case("admission")
async def a_grant_opens_the_sandbox_where_nsjail_holds_it(box, ground):
    from ground import get
    from langbot_plugin.box.errors import BoxAdmissionError

    program = os.environ.get("STRONGBOX_TEST_NSJAIL")
    if not program:
        raise Skip("no nsjail here; the stage langbot-clients has one")
    variables = {
        "STRONGBOX_BACKEND": "nsjail",
        "STRONGBOX_NSJAIL_PROGRAM": program,
        "LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS": "1",
    }
    async with ground.fresh(config(ground, box), **variables) as link:
        status, _, text = await get(f"{link.relay_base}/readyz")
        equal(status, 200, f"status of {text}")
        own = link.box()
        spec = own.spec("echo granted", session_id="global", workdir="/workspace")
        await raises(BoxAdmissionError, own.execute(spec))
        await own.upsert_sandbox_admission_grant(grant(own))
        result = await own.execute(spec)
        equal((result.exit_code, result.stdout.strip()), (0, "granted"), "result")
        await own.revoke_sandbox_admission_grant(revocation(own, 1))
        await raises(BoxAdmissionError, own.execute(spec))
