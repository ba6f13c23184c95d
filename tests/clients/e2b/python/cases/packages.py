"""Packages in the sandboxes of a machine: what pip and apt can do there, without any address of the network."""

import io
import zipfile

from e2b import CommandExitException

from suite import case, equal, holds, raises

# Makes an archive of dpkg's at /tmp/NAME.deb, whose one file says which version it is of.
ARCHIVE = """set -e
rm -rf /tmp/made && mkdir -p /tmp/made/DEBIAN "/tmp/made/$(dirname {path})"
printf 'Package: {name}\\nVersion: {version}\\nArchitecture: all\\nMaintainer: none <none@example.invalid>\\nDescription: test\\n' > /tmp/made/DEBIAN/control
printf '#!/bin/sh\\necho {version}\\n' > "/tmp/made/{path}" && chmod 755 "/tmp/made/{path}"
printf '{postinst}' > /tmp/made/DEBIAN/postinst && chmod 755 /tmp/made/DEBIAN/postinst
dpkg-deb --root-owner-group --build /tmp/made /tmp/{name}.deb > /tmp/build.log
"""


def wheel(name: str) -> bytes:
    """A package of Python with nothing but a version."""
    made, about = io.BytesIO(), f"{name}-1.0.dist-info"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(f"{name}.py", "VERSION = '1.0'\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return made.getvalue()


async def archive(sandbox, name: str, version: str, path: str, postinst: str = "#!/bin/sh\\n") -> None:
    line = ARCHIVE.format(name=name, version=version, path=path, postinst=postinst)
    await sandbox.commands.run(line, user="root")


async def install(sandbox, name: str) -> str:
    done = await sandbox.commands.run(f"apt-get install -y /tmp/{name}.deb 2>&1", user="root", timeout=120)
    return done.stdout


@case("packages", limit_sec=120)
async def pip_installs_without_an_environment(desk):
    sandbox = await desk.sandbox()
    for user, name in [("user", "mine"), ("root", "everybodys")]:
        path = f"/tmp/{name}-1.0-py3-none-any.whl"
        await sandbox.files.write(path, wheel(name))
        line = f"python -m pip install --no-index --root-user-action=ignore {path} && python -c 'import {name}; print({name}.VERSION)'"
        done = await sandbox.commands.run(line, user=user, timeout=100)
        equal(done.stdout.split()[-1], "1.0", f"what {user} installed")
    equal((await sandbox.commands.run("python -c 'import everybodys'")).exit_code, 0, "what root installed is everybody's")


@case("packages", limit_sec=240)
async def apt_installs_removes_and_asks_for_no_user_of_the_machine(desk):
    sandbox = await desk.sandbox()
    script = "#!/bin/sh\\nset -e\\ninstall -d -o man -g man /var/cache/probe\\nupdate-alternatives --install /usr/bin/probe-any probe-any /usr/bin/probe 1\\n"
    await archive(sandbox, "strongbox-probe", "1", "usr/bin/probe", script)
    said = await install(sandbox, "strongbox-probe")
    done = await sandbox.commands.run("probe; probe-any; dpkg-query -W -f '${Status}' strongbox-probe; stat -c ' %U' /var/cache/probe")
    equal(done.stdout, "1\n1\ninstall ok installed man\n", f"what was installed; apt said {said}")
    await sandbox.commands.run("apt-get remove -y strongbox-probe && ! test -e /usr/bin/probe && dpkg --audit", user="root", timeout=100)


@case("packages", "users", limit_sec=240)
async def sudo_lets_the_user_install_packages(desk):
    sandbox = await desk.sandbox()
    await archive(sandbox, "strongbox-probe", "1", "usr/bin/probe")
    line = "sudo DEBIAN_FRONTEND=noninteractive apt-get install -y /tmp/strongbox-probe.deb 2>&1"
    said = (await sandbox.commands.run(line, timeout=120)).stdout
    done = await sandbox.commands.run("probe; id -u; sudo id -u; echo x | sudo tee /etc/probe.conf; sudo -u user id -un")
    equal(done.stdout, "1\n1000\n0\nx\nuser\n", f"what is there; apt said {said}")
    error = await raises(CommandExitException, sandbox.commands.run("sudo sh -c 'exit 7'"))
    equal(error.exit_code, 7, "exit code")


# A repository without directories for releases: its packages and one index lie beside each other.
REPOSITORY = """set -e
mkdir -p /srv/repository && mv /tmp/{name}.deb /srv/repository/ && cd /srv/repository
dpkg-deb -f {name}.deb > Packages
printf 'Filename: ./{name}.deb\\nSize: %s\\nSHA256: %s\\n' "$(stat -c %s {name}.deb)" "$(sha256sum < {name}.deb | cut -c -64)" >> Packages
echo 'deb [trusted=yes] file:/srv/repository ./' > /etc/apt/sources.list.d/repository.list
"""


@case("packages", limit_sec=240)
async def apt_updates_its_lists_and_installs_by_name(desk):
    sandbox = await desk.sandbox()
    await archive(sandbox, "strongbox-listed", "3", "usr/bin/listed")
    await sandbox.commands.run(REPOSITORY.format(name="strongbox-listed"), user="root")
    # The lists of the machine's own sources stay as they are: nothing here asks the network.
    only = "-o Dir::Etc::SourceList=/etc/apt/sources.list.d/repository.list -o Dir::Etc::SourceParts=/dev/null"
    await raises(CommandExitException, sandbox.commands.run(f"apt-get install -y {only} strongbox-listed", user="root", timeout=120))
    update = f"apt-get update {only} -o APT::Get::List-Cleanup=0 2>&1"
    said = (await sandbox.commands.run(update, user="root", timeout=120)).stdout
    said += (await sandbox.commands.run(f"apt-get install -y {only} strongbox-listed 2>&1", user="root", timeout=120)).stdout
    done = await sandbox.commands.run("listed; dpkg-query -W -f '${Status}' strongbox-listed")
    equal(done.stdout, "3\ninstall ok installed", f"what was installed; apt said {said}")


@case("packages", limit_sec=240)
async def apt_replaces_a_package_of_the_machine_in_the_sandbox_alone(desk):
    sandbox = await desk.sandbox()
    await archive(sandbox, "hostname", "99", "bin/hostname")
    said = await install(sandbox, "hostname")
    equal((await sandbox.commands.run("hostname")).stdout, "99\n", f"the new version; apt said {said}")
    other = await desk.sandbox()
    holds((await other.commands.run("hostname")).stdout != "99\n", "the machine has the old one")


@case("packages", "saving", limit_sec=240)
async def what_apt_installed_is_in_a_snapshot(desk):
    sandbox = await desk.sandbox()
    await archive(sandbox, "strongbox-probe", "1", "usr/bin/probe")
    await install(sandbox, "strongbox-probe")
    snapshot = await sandbox.create_snapshot()
    copy = await desk.sandbox(snapshot.snapshot_id)
    await archive(copy, "strongbox-other", "2", "usr/bin/other")
    said = await install(copy, "strongbox-other")
    done = await copy.commands.run("probe; other; dpkg-query -W -f '${Package}\\n' 'strongbox-*'")
    equal(done.stdout, "1\n2\nstrongbox-other\nstrongbox-probe\n", f"what is installed; apt said {said}")
    equal(await desk.Sandbox.delete_snapshot(snapshot.snapshot_id), True, "delete")


@case("packages")
async def settings_of_apt_are_there_and_its_passwords_are_not(desk):
    sandbox = await desk.sandbox()
    found = await sandbox.commands.run("cd /etc/apt && find . -name 'auth.conf*' | wc -l; test -d apt.conf.d && echo settings", user="root")
    equal(found.stdout, "0\nsettings\n", "what is in /etc/apt")
