# IPython, where the box has it: what its shell knows beyond Python, in the namespace of the cells. It is started when something
# first needs it, because that takes a while.


class Notebook:
    def __init__(self, main, screen):
        self.main, self.screen, self.started = main, screen, None
        if importlib.util.find_spec("IPython") is not None:
            main.get_ipython = self.shell

    def shell(self):
        """The shell; nothing where there is none."""
        if self.started is None and getattr(self.main, "get_ipython", None):
            try:
                self.started = self.start()
            except Exception as error:
                sys.stderr.write("strongbox: IPython does not start: %s\n" % error)
                del self.main.get_ipython
        return self.started

    def start(self):
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        streams, known = (sys.stdin, sys.stdout, sys.stderr), set(self.main.__dict__)
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "NoColor"
        shell = InteractiveShell.instance(config=config, user_module=self.main)
        sys.stdin, sys.stdout, sys.stderr = streams
        # Its own way has a terminal between the command and the output of the cell.
        shell.system = shell.system_raw
        shell.display_pub.publish = lambda data, *_, **__: self.screen.show(data, False)
        # Its own would end a program that it is not.
        for name in ("exit", "quit"):
            self.main.__dict__.pop(name, None)
        # What it and we brought is not the user's.
        brought = set(self.main.__dict__) - known | {"display", "get_ipython"}
        shell.user_ns_hidden.update({name: self.main.__dict__[name] for name in brought})
        return shell

    def magic(self, kind, name, *words):
        """What a magic gives; nothing where there is none of that name, in a tuple where there is."""
        shell = self.shell()
        if shell is None or getattr(shell, "find_%s_magic" % kind)(name) is None:
            return None
        # It takes the names of its caller for the user's.
        call = "get_ipython().run_%s_magic(%s)" % (kind, ", ".join(map(repr, (name,) + words)))
        return (eval(compile(call, OURS, "eval"), self.main.__dict__),)

    def python(self, code):
        """A cell as Python, or nothing where no shell can read it."""
        shell = self.shell()
        return shell.transform_cell(code) if shell else None
