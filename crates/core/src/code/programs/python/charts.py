# What a figure of matplotlib shows, as numbers. It has only what matplotlib itself remembers.
CHART_POINTS_MAX = 100_000


def figure_forms(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    found = {"image/png": buffer.getvalue(), "text/plain": repr(figure)}
    try:
        found["e2b/chart"] = chart(figure)
    except Exception:  # a picture without numbers is still a picture
        pass
    return found


def chart(figure):
    charts = [axes_chart(axes) for axes in figure.get_axes() if axes.get_visible()]
    if not charts:
        return None
    if len(charts) == 1:
        return charts[0]
    title = figure.get_suptitle() if hasattr(figure, "get_suptitle") else ""
    return {"type": "superchart", "title": title, "elements": charts}


def axes_chart(axes):
    title = axes.get_title() or None
    for kind, elements in (("pie", pie(axes)), ("box_and_whisker", boxes(axes)), ("bar", bars(axes))):
        if elements:
            common = {} if kind == "pie" else labels(axes)
            return dict(common, type=kind, title=title, elements=elements)
    for kind, elements in (("line", lines(axes)), ("scatter", scatter(axes))):
        if elements:
            return dict(labels(axes), type=kind, title=title, elements=elements, **dict(scale(axes, "x"), **scale(axes, "y")))
    return {"type": "unknown", "title": title, "elements": []}


def labels(axes):
    found = {}
    for name, label in (("x", axes.get_xlabel()), ("y", axes.get_ylabel())):
        found[name + "_label"] = label or None
        opening = label.rfind("(") if label.rstrip().endswith(")") else -1
        found[name + "_unit"] = (label.rstrip()[opening + 1:-1].strip() or None) if opening >= 0 else None
    return found


def scale(axes, name):
    axis = getattr(axes, name + "axis")
    ticks = [float(tick) for tick in axis.get_ticklocs()]
    converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
    kind = type(converter).__name__.lower() if converter is not None else ""
    told = axis.get_scale()
    if "date" in kind:
        told = "datetime"
    elif "category" in kind:
        told = "categorical"
    return {
        name + "_ticks": [coordinate(tick, told) for tick in ticks],
        name + "_tick_labels": [label.get_text() for label in axis.get_ticklabels()],
        name + "_scale": told,
    }


def coordinate(value, told):
    if told == "datetime" and isinstance(value, float):
        return sys.modules["matplotlib.dates"].num2date(value).isoformat()
    return plain(value)


def lines(axes):
    return [{"label": line.get_label(), "points": points(line.get_xdata(orig=True), line.get_ydata(orig=True))}
            for line in axes.get_lines() if line.get_transform().contains_branch(axes.transData)]


def scatter(axes):
    home = sys.modules.get("matplotlib.collections")
    found = []
    for collection in axes.collections:
        if isinstance(collection, home.PathCollection):
            offsets = collection.get_offsets()
            found.append({"label": collection.get_label(), "points": points(offsets[:, 0], offsets[:, 1])})
    return found


def points(horizontal, vertical):
    pairs = zip(list(horizontal)[:CHART_POINTS_MAX], list(vertical)[:CHART_POINTS_MAX])
    return [[plain(x), plain(y)] for x, y in pairs]


def bars(axes):
    found = []
    for container in axes.containers:
        if type(container).__name__ != "BarContainer":
            continue
        lying = getattr(container, "orientation", None) == "horizontal"
        axis = axes.yaxis if lying else axes.xaxis
        names = dict(zip((round(float(at), 6) for at in axis.get_ticklocs()), (it.get_text() for it in axis.get_ticklabels())))
        for bar in list(container)[:CHART_POINTS_MAX]:
            middle = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
            found.append({
                "label": names.get(round(float(middle), 6)) or str(plain(middle)),
                "group": str(container.get_label()),
                "value": plain(bar.get_width() if lying else bar.get_height()),
            })
    return found


def pie(axes):
    wedge = getattr(sys.modules.get("matplotlib.patches"), "Wedge", ())
    return [{"label": patch.get_label(), "angle": plain(patch.theta2 - patch.theta1), "radius": plain(patch.r)}
            for patch in axes.patches if isinstance(patch, wedge)]


def boxes(axes):
    """A box plot is remembered as lines only; what belongs together is found by where it stands."""
    closed, found = [], []
    for line in axes.get_lines():
        if len(line.get_xdata()) == 5 and len(set(map(float, line.get_xdata()))) == 2 and line.get_xdata()[0] == line.get_xdata()[-1]:
            closed.append(line)
    patches = [patch for patch in axes.patches if type(patch).__name__ == "PathPatch"]
    corners = [(line.get_xdata(), line.get_ydata()) for line in closed]
    corners += [(patch.get_path().vertices[:5, 0], patch.get_path().vertices[:5, 1]) for patch in patches]
    names = dict(zip((round(float(at), 6) for at in axes.get_xticks()), (it.get_text() for it in axes.get_xticklabels())))
    for xs, ys in corners:
        left, right, low, high = float(min(xs)), float(max(xs)), float(min(ys)), float(max(ys))
        found.append(one_box(axes, left, right, low, high, names))
    return [box for box in found if box]


def one_box(axes, left, right, low, high, names):
    middle, ends, median, outliers = (left + right) / 2, [low, high], None, []
    for line in axes.get_lines():
        xs, ys = [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]
        inside = xs and min(xs) >= left - 1e-9 and max(xs) <= right + 1e-9
        if not inside or len(xs) == 5 and xs[0] == xs[-1]:
            continue
        if line.get_linestyle() == "None":
            outliers.extend(ys)
        elif len(xs) == 2 and xs[0] == xs[1]:
            ends.extend(ys)
        elif len(xs) == 2 and ys[0] == ys[1] and low <= ys[0] <= high and abs(xs[0] - left) < 1e-9:
            median = ys[0]
    if median is None:
        return None
    return {
        "label": names.get(round(middle, 6)) or str(plain(middle)), "min": min(ends), "first_quartile": low,
        "median": median, "third_quartile": high, "max": max(ends), "outliers": outliers,
    }
