# Cells: one request per line comes in, its code is run in one namespace, and everything about it goes out in frames.
import __future__
import ast
import asyncio
import functools
import importlib
import importlib.util
import inspect
import linecache
import signal
import traceback
import types

OURS = "<strongbox>"
FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


class AfterImport:
    """Does something with a module right after a cell imported it."""

    def __init__(self, actions):
        self.actions = actions

    def find_spec(self, name, path=None, target=None):
        action = self.actions.pop(name, None)
        spec = importlib.util.find_spec(name) if action else None
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            action(module)

        spec.loader.exec_module = exec_module
        return spec


class Kernel:
    def __init__(self, requests, nonce):
        self.requests, self.frames = requests, Frames(nonce)
        self.process, self.count, self.armed, self.future, self.loop = os.getpid(), 0, False, 0, None
        main = types.ModuleType("__main__")
        self.namespace = main.__dict__
        self.screen = Screen(self.frames)
        self.notebook = Notebook(main, self.screen)
        magics = Magics(self.namespace, lambda code: self.run(code, "<timed>", False), self.notebook)
        self.namespace.update(display=self.screen.display, _magics=magics, __builtins__=__builtins__)
        sys.modules["__main__"], sys.argv = main, [""]
        self.take_streams()
        self.show_figures()

    def take_streams(self):
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        sys.stdin = sys.__stdin__ = NoInput()
        sys.stdout = sys.__stdout__ = Stream(1, "<stdout>")
        sys.stderr = sys.__stderr__ = Stream(2, "<stderr>")

    def show_figures(self):
        """Has all figures and values shown by this program."""
        os.environ.setdefault("MPLBACKEND", "agg")

        def pyplot(module):
            module.show = lambda *_, **__: self.screen.open_figures()

        def notebook(module):
            module.display = self.screen.display

        def pictures(module):
            module.Image.save = self.saving(module.Image.save)
            module.Image.show = lambda image, *_, **__: self.screen.display(image)

        hooks = {"PIL.Image": pictures, "matplotlib.pyplot": pyplot, "IPython.display": notebook, "IPython.core.display_functions": notebook}
        sys.meta_path.insert(0, AfterImport(hooks))

    def saving(self, save):
        """Has a picture that a cell saves to a file shown as well. Those of figures are shown with their figure."""

        @functools.wraps(save)
        def saved(image, file, *args, **options):
            done = save(image, file, *args, **options)
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if isinstance(file, (str, os.PathLike)) and not caller.startswith("matplotlib."):
                self.screen.display(image)
            return done

        return saved

    def interrupted(self, *_):
        if self.armed:
            raise KeyboardInterrupt

    def serve(self):
        signal.signal(signal.SIGINT, self.interrupted)
        self.frames.begin(0, 0)
        while True:
            signal.signal(signal.SIGINT, self.interrupted)
            line = self.requests.readline()
            if not line:
                return
            try:
                request = json.loads(line)
            except ValueError:
                continue  # an unfinished line
            self.count += 1
            self.frames.begin(request["id"], self.count)
            try:
                self.cell(request)
            except BaseException as error:  # an interrupt that came late
                self.armed = False
                self.tell(error)
            self.frames.end(request["id"])

    def open_streams(self):
        """Gives standard output and error back to a cell when one before it closed them."""
        for descriptor, copy in ((1, self.frames.out), (2, self.frames.err)):
            try:
                os.fstat(descriptor)
            except OSError:
                os.dup2(copy, descriptor)

    def cell(self, request):
        self.open_streams()
        before = {name: os.environ.get(name) for name in request.get("env") or {}}
        os.environ.update(request.get("env") or {})
        try:
            try:
                self.armed = True
                self.shown(request["code"])
            finally:
                self.armed = False
        except BaseException as error:
            self.armed = False
            self.leave_if_copy(error)
            self.tell(error)
        self.leave_if_copy(None)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass

    def leave_if_copy(self, error):
        """A cell that forked ends here in the copy: only the original serves."""
        if os.getpid() == self.process:
            return
        code = 0
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        elif error is not None:
            sys.stderr.write(told(error))
            code = 1
        sys.stdout.flush()
        os._exit(code & 255)

    def shown(self, code):
        """Runs a cell and shows what it came to."""
        try:
            value = self.run(code, "<cell %d>" % self.count, True)
            if value is not None:
                self.namespace.update(_=value, __=self.namespace.get("_"), ___=self.namespace.get("__"))
                self.screen.value(value, True)
        finally:
            if os.getpid() == self.process:
                self.screen.open_figures()

    def run(self, code, file, is_cell):
        """Runs code in the namespace. Gives the value of its last expression, unless a semicolon follows it."""
        linecache.cache[file] = (len(code), None, code.splitlines(True), file)
        if is_cell and code.lstrip().startswith("%%"):
            return self.namespace["_magics"].whole(code)
        tree = parsed(code, file, self.notebook)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self.execute(tree, file, "exec")
        if last is None:
            return None
        value = self.execute(ast.Expression(last.value), file, "eval")
        return None if is_quiet(code, last) else value

    def execute(self, tree, file, mode):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self.future
        compiled = compile(tree, file, mode, flags, True)
        self.future |= compiled.co_flags & FUTURE
        value = eval(compiled, self.namespace)
        return self.awaited(value) if compiled.co_flags & inspect.CO_COROUTINE else value

    def awaited(self, coroutine):
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except BaseException:
                    pass
            raise

    def tell(self, error):
        try:
            value = str(error)
        except Exception as worse:
            value = "<its text cannot be told: %s>" % type(worse).__name__
        name = shortened(type(error).__name__, 1000)
        self.frames.event("error", name=name, value=shortened(value, 100_000), traceback=shortened(told(error), 200_000))


def is_quiet(code, last):
    line = code.split("\n")[last.end_lineno - 1].encode("utf-8", "surrogatepass")
    return line[last.end_col_offset:].lstrip(b" \t)").startswith(b";")


def told(error):
    """An error with the frames of the user."""
    try:
        if isinstance(error, SyntaxError) and (error.filename or "").startswith("<cell"):
            return "".join(traceback.format_exception_only(type(error), error))
        whole = traceback.TracebackException(type(error), error, error.__traceback__)
        without_ours(whole)
        return "".join(whole.format())
    except Exception as worse:
        return "%s (its traceback cannot be told: %s)" % (type(error).__name__, type(worse).__name__)


def without_ours(whole):
    left, seen = [whole], set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        kept = [frame for frame in one.stack if frame.filename != OURS]
        one.stack = traceback.StackSummary.from_list(kept)
        left += [one.__cause__, one.__context__] + list(getattr(one, "exceptions", None) or ())


Kernel(requests, nonce).serve()
