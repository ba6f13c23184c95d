# Prepares the Python environment of a skill. Runs in the box, as everything of a skill does. Says what came of it in one line of
# JSON: {"path": …}, or {"error": …, "output": …}.
import fcntl, hashlib, json, os, shutil, signal, subprocess, sys, time

MANIFESTS = ("requirements.txt", "pyproject.toml", "setup.py", "setup.cfg")
# Directories that are no part of what is installed.
LEFT_OUT = (".git", ".venv", "__pycache__", "node_modules")
# In an environment: that it is complete.
MARK = ".prepared"
OUTPUT_CHARS_MAX = 2000
MANIFEST_BYTES_MAX = 1 << 20


class Failed(Exception):
    def __init__(self, reason, output=""):
        super().__init__(reason)
        self.reason, self.output = reason, output


def main(asked):
    skill, deadline = asked["skill"], time.monotonic() + asked["seconds"]
    place = writable(asked["places"])
    home = os.path.join(place, asked["name"] + "-" + key(skill))
    if os.path.exists(os.path.join(home, MARK)):
        return home
    with open(home + ".lock", "w") as lock:
        wait_for(lock, deadline)
        if not os.path.exists(os.path.join(home, MARK)):
            # What a build that was killed left behind.
            shutil.rmtree(home, ignore_errors=True)
            try:
                Build(skill, home, asked["network"], deadline).run()
            except BaseException:
                shutil.rmtree(home, ignore_errors=True)
                raise
    return home


def key(skill):
    """Names what an environment is made from: the manifests and the interpreter."""
    whole = hashlib.sha256(sys.version.encode())
    for name in MANIFESTS:
        text = manifest(skill, name)
        if text is not None:
            whole.update(b"%s %d\n" % (name.encode(), len(text)) + text)
    return whole.hexdigest()[:16]


def manifest(skill, name):
    path = os.path.join(skill, name)
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        text = file.read(MANIFEST_BYTES_MAX + 1)
    if len(text) > MANIFEST_BYTES_MAX:
        raise Failed("%s has more than %d bytes" % (name, MANIFEST_BYTES_MAX))
    return text


def writable(places):
    for place in places:
        try:
            os.makedirs(place, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    raise Failed("none of %s can be written to" % ", ".join(places))


def wait_for(lock, deadline):
    """Waits until whoever builds the same environment is done, or dead."""
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Failed("another command still prepares it; try again later")
            time.sleep(0.1)


class Build:
    def __init__(self, skill, home, network, deadline):
        self.skill, self.home, self.network, self.deadline = skill, home, network, deadline
        self.python = os.path.join(home, "bin", "python")
        self.log = os.path.join(home, ".log")
        self.source = os.path.join(home, ".source")

    def run(self):
        os.makedirs(self.home)
        # The system's packages can be used too: without network there may be no others.
        venv = [sys.executable, "-I", "-m", "venv", "--system-site-packages", "--without-pip", self.home]
        self.call(venv, "making a virtual environment")
        steps = [step for step in (self.requirements(), self.project()) if step]
        if steps:
            # A copy, because building writes next to the source, and the package may be read-only.
            shutil.copytree(self.skill, self.source, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
            pip = self.pip()
            for step in steps:
                step(pip)
            shutil.rmtree(self.source)
        self.write_pip()
        with open(os.path.join(self.home, MARK), "w"):
            pass

    def requirements(self):
        text = (manifest(self.skill, "requirements.txt") or b"").decode("utf-8", "replace")
        lines = [line.strip() for line in text.splitlines()]
        if any(line and not line.startswith("#") for line in lines):
            return lambda pip: self.call(pip + ["-r", "requirements.txt"], "installing requirements.txt", self.source)

    def project(self):
        project = self.pyproject()
        has_setup = os.path.isfile(os.path.join(self.skill, "setup.py"))
        has_setup = has_setup or b"[metadata]" in (manifest(self.skill, "setup.cfg") or b"")
        if has_setup or "project" in project or "build-system" in project:
            return lambda pip: self.install_project(pip, project)

    def pyproject(self):
        text = manifest(self.skill, "pyproject.toml")
        if text is None:
            return {}
        try:
            import tomllib
        except ImportError:
            return {"project": {"dependencies": ["unknown"]}}
        try:
            return tomllib.loads(text.decode())
        except ValueError as error:
            raise Failed("pyproject.toml cannot be read: %s" % error)

    def install_project(self, pip, project):
        try:
            self.call(pip + [self.source], "installing the package of the skill", self.source)
        except Failed:
            needs = project.get("project", {}).get("dependencies", ["unknown"])
            if self.network or needs:
                raise
            # Whatever would build it cannot be had without network. It needs nothing else, so it can be used where it is.
            self.use_in_place()

    def use_in_place(self):
        where = [sys.executable, "-I", "-c", "import sysconfig,sys;print(sysconfig.get_path('purelib',vars={'base':sys.argv[1]}))", self.home]
        site = subprocess.run(where, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30).stdout.strip()
        os.makedirs(site, exist_ok=True)
        with open(os.path.join(site, "skill.pth"), "w") as file:
            file.write("%s\n%s\n" % (os.path.join(self.skill, "src"), self.skill))

    def pip(self):
        known = subprocess.run([self.python, "-I", "-m", "pip", "--version"], stdin=subprocess.DEVNULL, capture_output=True)
        if known.returncode != 0:
            self.call([self.python, "-I", "-m", "ensurepip"], "finding pip; the image has none,")
        quiet = ["--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off"]
        pip = [self.python, "-I", "-m", "pip", "install", "--retries", "1", "--timeout", "15"] + quiet
        wheels = os.path.join(self.source, "wheels")
        if os.path.isdir(wheels):
            pip += ["--find-links", wheels]
        if not self.network:
            pip += ["--no-index", "--no-build-isolation"]
        return pip

    def write_pip(self):
        path = os.path.join(self.home, "bin", "pip")
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
            os.chmod(path, 0o755)

    def call(self, argv, what, cwd="/"):
        left = self.deadline - time.monotonic()
        with open(self.log, "wb") as log:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=cwd, start_new_session=True
            )
            try:
                code = child.wait(max(left, 1))
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                raise Failed("%s took too long" % what, self.tail())
        if code != 0:
            raise Failed("%s failed" % what, self.tail())

    def tail(self):
        with open(self.log, "rb") as log:
            log.seek(max(0, os.path.getsize(self.log) - 4 * OUTPUT_CHARS_MAX))
            return log.read().decode("utf-8", "replace").strip()[-OUTPUT_CHARS_MAX:]


try:
    told = {"path": main(json.loads(sys.argv[1]))}
except Failed as failed:
    told = {"error": failed.reason, "output": failed.output}
except OSError as error:
    told = {"error": str(error), "output": ""}
print(json.dumps(told))
