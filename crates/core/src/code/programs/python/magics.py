# The few lines of notebooks that are not Python: `!command`, `%pip`, `%%bash` and their like.
import re
import shlex
import subprocess
import time

LINE = re.compile(r"^(?P<indent>\s*)(?:(?P<name>[^\W\d]\w*)\s*=\s*)?(?P<mark>[!%])(?P<rest>.*)$")
LINES_MAX = 1000
KNOWN = "!command, %pip, %cd, %pwd, %env, %time, %matplotlib, %%bash, %%sh, %%writefile and %%time"


class UsageError(Exception):
    """A line of a notebook that this context does not know."""


def parsed(code, file, notebook):
    """The tree of a cell. Lines that are not Python become calls, one by one, where Python stumbles over them; IPython may
    read the rest."""
    try:
        return ast.parse(code, file)
    except SyntaxError as error:
        first = error
    try:
        return with_calls(code, file, first)
    except SyntaxError:
        python = notebook.python(code)
    if python is None or python.strip() == code.strip():
        raise first
    try:
        return ast.parse(python, file)
    except SyntaxError:
        raise first from None


def with_calls(code, file, first):
    latest = first
    lines = code.split("\n")
    for _ in range(LINES_MAX):
        at = (latest.lineno or 0) - 1
        match = LINE.match(lines[at]) if 0 <= at < len(lines) else None
        if match is None:
            raise first
        lines[at] = call(match)
        try:
            return ast.parse("\n".join(lines), file)
        except SyntaxError as error:
            latest = error
    raise first


def call(match):
    method = "shell" if match["mark"] == "!" else "line"
    if match["name"]:
        return "%s%s = _magics.%s(%r, True)" % (match["indent"], match["name"], method, match["rest"])
    return "%s_magics.%s(%r)" % (match["indent"], method, match["rest"])


class Magics:
    def __init__(self, namespace, cell, notebook):
        self.namespace, self.cell, self.notebook = namespace, cell, notebook

    def filled(self, text):
        """A text in which {expression} is replaced by what it is, where it is something."""
        def value(match):
            try:
                return str(eval(match[1], self.namespace))
            except Exception:
                return match[0]
        return re.sub(r"\{([^{}]+)\}", value, text)

    def run(self, command, keep=False):
        sys.stdout.flush()
        done = subprocess.run(command, stdout=subprocess.PIPE if keep else None)
        self.namespace["_exit_code"] = done.returncode
        return done.stdout.decode("utf-8", "replace").splitlines() if keep else None

    def shell(self, text, keep=False):
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        return self.run([shell, "-c", self.filled(text.lstrip("!"))], keep)

    def line(self, text, keep=False):
        name, _, rest = text.strip().partition(" ")
        known = getattr(self, "line_" + name.lstrip("%"), None)
        if known is None or name.startswith("%"):
            given = self.notebook.magic("line", name, rest.strip())
            if given is None:
                raise UsageError("%%%s is not known here; these are: %s" % (name, KNOWN))
            return given[0]
        return known(rest.strip(), keep)

    def line_pip(self, text, keep):
        words = [sys.executable, "-m", "pip"] + shlex.split(self.filled(text))
        kept = self.run(words, keep)
        importlib.invalidate_caches()
        return kept

    def line_cd(self, text, _):
        os.chdir(os.path.expanduser(self.filled(text.strip("'\"")) or "~"))
        return os.getcwd()

    def line_pwd(self, *_):
        return os.getcwd()

    def line_env(self, text, _):
        name, equals, value = text.replace(" ", "=", 1).partition("=")
        if equals:
            os.environ[name.strip()] = self.filled(value.strip())
        return os.environ.get(name.strip()) if name else dict(os.environ)

    def line_matplotlib(self, *_):
        """Figures are always shown where they are drawn."""

    def line_time(self, text, _):
        start = time.perf_counter()
        try:
            return self.cell(text)
        finally:
            print("Wall time: %.3f s" % (time.perf_counter() - start))

    def whole(self, code):
        """Runs a cell whose first line says that it is not Python."""
        first, _, rest = code.lstrip().partition("\n")
        name, _, option = first[2:].strip().partition(" ")
        if name in ("bash", "sh"):
            status = subprocess.run([name, "-c", rest]).returncode
            if status:
                raise subprocess.CalledProcessError(status, name)
        elif name == "writefile" and option:
            with open(os.path.expanduser(option.strip()), "w", encoding="utf-8") as file:
                file.write(rest)
            print("Writing " + option.strip())
        elif name == "time":
            return self.line_time(rest, False)
        else:
            given = self.notebook.magic("cell", name, option.strip(), rest)
            if given is None:
                raise UsageError("%%%%%s is not known here; these are: %s" % (name, KNOWN))
            return given[0]
