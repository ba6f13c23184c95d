# What a value looks like: the forms in which it can show itself, by the names that the protocol has for them.
FORMS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "text/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
METHODS = [
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
]
TABLE_CELLS_MAX = 100_000


def plain(value):
    """A value as JSON takes it; what it does not know becomes text."""
    if value is None or isinstance(value, (bool, str)):
        return shortened(value) if isinstance(value, str) else value
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = value.item()
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return float(value) if value - value == 0 else None
    if isinstance(value, dict):
        return {shortened(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, str)) else shortened(str(value))


def unquoted(text):
    """A text without the one pair of quotes around it."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def is_of(value, module, name):
    """Whether a value is of a class, without importing what the cell did not import."""
    home = sys.modules.get(module)
    kind = getattr(home, name, None) if home else None
    return isinstance(kind, type) and isinstance(value, kind)


def table(frame):
    """The columns of a data frame as lists, when they are not too many."""
    if frame.size > TABLE_CELLS_MAX:
        return None
    return {shortened(str(name)): [plain(item) for item in frame.iloc[:, at].tolist()]
            for at, name in enumerate(frame.columns)}


def asked(value, method):
    """What a method of a value gives; nothing when it has none, or not for this value."""
    if isinstance(value, type):
        return None
    call = getattr(type(value), method, None) or getattr(value, "__dict__", {}).get(method)
    if call is None:
        return None
    try:
        shown = getattr(value, method)()
    except NotImplementedError:
        return None
    return shown[0] if isinstance(shown, tuple) and shown else shown


def forms(value):
    """All forms of a value by media type."""
    found = {}
    for method, media in METHODS:
        shown = asked(value, method)
        if shown is not None:
            found[media] = shown
    bundle = asked(value, "_repr_mimebundle_")
    if isinstance(bundle, dict):
        found.update(bundle)
    if is_of(value, "matplotlib.figure", "Figure"):
        found.update(figure_forms(value))
    if is_of(value, "pandas", "DataFrame"):
        found["e2b/data"] = table(value)
    if "text/plain" not in found:
        found["text/plain"] = repr(value)
    return found


def form(media, shown):
    if media in ("application/json", "e2b/data", "e2b/chart") or media.endswith("+json"):
        return plain(shown)
    if isinstance(shown, (bytes, bytearray)):
        return base64.b64encode(shown).decode("ascii")
    text = str(shown)
    return unquoted(shortened(text)) if media == "text/plain" else clean(text)


def result(bundle):
    """A bundle of forms by media type as the fields of a result."""
    fields, extra = {}, {}
    for media, shown in bundle.items():
        if shown is None:
            continue
        name = FORMS.get(media)
        if name:
            fields[name] = form(media, shown)
        else:
            extra[clean(str(media))] = form(str(media), shown)
    if extra:
        fields["extra"] = extra
    return fields


class Screen:
    """Where values are shown."""

    def __init__(self, frames):
        self.frames = frames
        self.figures = set()

    def show(self, bundle, is_main):
        fields = result(bundle)
        try:
            self.frames.event("result", is_main_result=is_main, **fields)
        except ValueError as error:
            # Too large in all its forms: its text says what it was.
            text = shortened(str(fields.get("text", "")), 1000)
            self.frames.event("result", is_main_result=is_main, text=text)
            sys.stderr.write("strongbox: %s; the text alone is shown\n" % error)

    def value(self, value, is_main):
        if asked(value, "_ipython_display_") is not None:
            return
        if is_of(value, "matplotlib.figure", "Figure"):
            self.figures.add(id(value))
        self.show(forms(value), is_main)

    def display(self, *values, **options):
        """Shows values, like the function of that name in notebooks. With raw=True they are bundles by media type."""
        for value in values:
            if options.get("raw") and isinstance(value, dict):
                self.show(value, False)
            else:
                self.value(value, False)

    def open_figures(self):
        """Shows figures that were drawn and not shown, and closes them all."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        try:
            for number in pyplot.get_fignums():
                figure = pyplot.figure(number)
                if id(figure) not in self.figures and figure.get_axes():
                    self.show(forms(figure), False)
        finally:
            self.figures.clear()
            pyplot.close("all")
