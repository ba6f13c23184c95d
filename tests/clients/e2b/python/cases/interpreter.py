"""Code that is run statement by statement, by `e2b-code-interpreter`."""

import asyncio
import base64
import importlib.metadata
import io
import re
import struct
import tarfile
import time

from e2b import InvalidArgumentException, NotFoundException, SandboxException, TimeoutException

from suite import Skip, case, equal, holds, raises


async def sandbox_with(desk, program: str):
    """A sandbox in which there is this program, or none at all."""
    sandbox = await desk.sandbox()
    found = await sandbox.commands.run(f"command -v {program} || true")
    if not found.stdout:
        raise Skip(f"there is no {program} in the sandbox")
    return sandbox


@case("interpreter", limit_sec=120)
async def the_last_expression_is_the_result(desk):
    sandbox = await desk.sandbox()
    run = await sandbox.run_code("x = 20\nx * 2 + 2")
    equal((run.text, run.error, run.logs.stdout), ("42", None, []), "run")
    equal([it.is_main_result for it in run.results], [True], "results")
    equal((await sandbox.run_code("x = 1")).text, None, "text of a statement")
    equal((await sandbox.run_code("None")).text, None, "text of nothing")


@case("interpreter")
async def strings_come_without_quotes(desk):
    sandbox = await desk.sandbox()
    equal((await sandbox.run_code("'größe 漢字 🙂'")).text, "größe 漢字 🙂", "text")


@case("interpreter")
async def state_is_kept(desk):
    sandbox = await desk.sandbox()
    await sandbox.run_code("import math\ndef area(r):\n    return math.pi * r ** 2\nr = 2")
    equal((await sandbox.run_code("round(area(r), 3)")).text, "12.566", "text")


@case("interpreter")
async def executions_are_counted(desk):
    sandbox = await desk.sandbox()
    counts = [(await sandbox.run_code("1")).execution_count for _ in range(3)]
    equal([it - counts[0] for it in counts], [0, 1, 2], "counts")


@case("interpreter")
async def output_and_errors_come_apart_and_at_once(desk):
    sandbox = await desk.sandbox()
    out, err, moments = [], [], []

    def heard(message):
        out.append(message.line)
        moments.append(time.monotonic())

    code = "import sys, time\nprint('one', flush=True)\ntime.sleep(1)\nprint('two')\nprint('oh', file=sys.stderr)"
    run = await sandbox.run_code(code, on_stdout=heard, on_stderr=lambda message: err.append(message.line))
    equal(("".join(run.logs.stdout), "".join(run.logs.stderr)), ("one\ntwo\n", "oh\n"), "logs")
    equal(("".join(out), "".join(err)), ("one\ntwo\n", "oh\n"), "what was told")
    holds(moments[-1] - moments[0] > 0.5, "the first line came before the second was written")


@case("interpreter")
async def an_error_has_a_name_a_value_and_a_traceback(desk):
    sandbox = await desk.sandbox()
    told = []
    run = await sandbox.run_code("def fail():\n    return 1 / 0\nfail()", on_error=told.append)
    equal((run.error.name, run.error.value), ("ZeroDivisionError", "division by zero"), "error")
    holds("fail" in run.error.traceback and "ZeroDivisionError" in run.error.traceback, run.error.traceback)
    equal([it.name for it in told], ["ZeroDivisionError"], "what was told")
    equal((await sandbox.run_code("'alive'")).text, "alive", "the next run")


@case("interpreter")
async def what_is_no_code_is_an_error(desk):
    sandbox = await desk.sandbox()
    equal((await sandbox.run_code("this is no code")).error.name, "SyntaxError", "error")


@case("interpreter")
async def output_before_an_error_is_kept(desk):
    sandbox = await desk.sandbox()
    run = await sandbox.run_code("print('before')\nraise ValueError('größe')\nprint('after')")
    equal(("".join(run.logs.stdout), run.error.name, run.error.value), ("before\n", "ValueError", "größe"), "run")


@case("interpreter")
async def results_can_be_of_several_forms(desk):
    sandbox = await desk.sandbox()
    code = "class Page:\n    def _repr_html_(self):\n        return '<b>page</b>'\n    def __repr__(self):\n        return 'page'\nPage()"
    result = (await sandbox.run_code(code)).results[0]
    equal((result.text, result.html), ("page", "<b>page</b>"), "result")


@case("interpreter")
async def top_level_await_works(desk):
    sandbox = await desk.sandbox()
    run = await sandbox.run_code("import asyncio\nawait asyncio.sleep(0.01)\n'awaited'")
    equal((run.text, run.error), ("awaited", None), "run")


@case("interpreter")
async def variables_are_for_one_run(desk):
    sandbox = await desk.sandbox(envs={"KEPT": "sandbox"})
    code = "import os\nos.environ.get('KEPT'), os.environ.get('ONCE')"
    equal((await sandbox.run_code(code, envs={"ONCE": "run"})).text, "('sandbox', 'run')", "with it")
    equal((await sandbox.run_code(code)).text, "('sandbox', None)", "without it")


@case("interpreter")
async def code_and_commands_share_files(desk):
    sandbox = await desk.sandbox()
    await sandbox.run_code("open('note', 'w').write('from code')")
    equal((await sandbox.commands.run("cat /home/user/note")).stdout, "from code", "file")
    equal((await sandbox.run_code("import os\nos.getcwd()")).text, "/home/user", "place")


@case("interpreter")
async def a_run_out_of_time_is_interrupted_and_state_is_kept(desk):
    sandbox = await desk.sandbox()
    await sandbox.run_code("x = 7")
    await raises(TimeoutException, sandbox.run_code("while True:\n    pass", timeout=2))
    begun = time.monotonic()
    equal((await sandbox.run_code("x", timeout=20)).text, "7", "the next run")
    holds(time.monotonic() - begun < 15, "it did not have to wait")


@case("interpreter")
async def a_sleeping_run_is_interrupted_too(desk):
    sandbox = await desk.sandbox()
    await raises(TimeoutException, sandbox.run_code("import time\ntime.sleep(100)", timeout=1))
    equal((await sandbox.run_code("'awake'", timeout=20)).text, "awake", "the next run")


@case("interpreter", "async")
async def who_gives_up_interrupts_the_run(desk):
    sandbox = await desk.sandbox()
    await sandbox.run_code("x = 7")
    task = asyncio.create_task(sandbox.run_code("while True:\n    pass"))
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    equal((await sandbox.run_code("x", timeout=20)).text, "7", "the next run")


@case("interpreter")
async def runs_of_one_context_wait_for_each_other(desk):
    sandbox = await desk.sandbox()
    await sandbox.run_code("import time\nn = 0")
    step = "m = n\ntime.sleep(0.2)\nn = m + 1"
    await asyncio.gather(*(sandbox.run_code(step) for _ in range(4)))
    equal((await sandbox.run_code("n")).text, "4", "n")


@case("interpreter")
async def contexts_know_nothing_of_each_other(desk):
    sandbox = await desk.sandbox()
    one, other = await sandbox.create_code_context(), await sandbox.create_code_context(cwd="/tmp")
    equal((one.language, one.cwd, other.cwd), ("python", "/home/user", "/tmp"), "contexts")
    await sandbox.run_code("x = 'one'", context=one)
    equal((await sandbox.run_code("x", context=other)).error.name, "NameError", "error")
    equal((await sandbox.run_code("x", context=one)).text, "one", "text")
    equal((await sandbox.run_code("import os\nos.getcwd()", context=other)).text, "/tmp", "place")


@case("interpreter")
async def contexts_run_at_the_same_time(desk):
    sandbox = await desk.sandbox()
    contexts = [await sandbox.create_code_context() for _ in range(3)]
    begun = time.monotonic()
    code = "import time\ntime.sleep(2)\n'slept'"
    runs = await asyncio.gather(*(sandbox.run_code(code, context=it) for it in contexts))
    equal([it.text for it in runs], ["slept"] * 3, "texts")
    holds(time.monotonic() - begun < 5.5, f"they took {time.monotonic() - begun:.1f} s")


@case("interpreter")
async def contexts_are_listed_restarted_and_removed(desk):
    sandbox = await desk.sandbox()
    context = await sandbox.create_code_context()
    holds(context.id in [it.id for it in await sandbox.list_code_contexts()], "it is listed")
    await sandbox.run_code("x = 1", context=context)
    await sandbox.restart_code_context(context)
    equal((await sandbox.run_code("x", context=context)).error.name, "NameError", "error after a restart")
    await sandbox.remove_code_context(context)
    holds(context.id not in [it.id for it in await sandbox.list_code_contexts()], "it is not listed any more")
    await raises(NotFoundException, sandbox.run_code("1", context=context))


@case("interpreter")
async def a_context_has_its_language_already(desk):
    sandbox = await desk.sandbox()
    context = await sandbox.create_code_context()
    await raises(InvalidArgumentException, sandbox.run_code("1", language="python", context=context))


@case("interpreter")
async def bash_is_a_language(desk):
    sandbox = await sandbox_with(desk, "bash")
    run = await sandbox.run_code("GREETING=hello; echo $GREETING; echo oh >&2", language="bash")
    equal(("".join(run.logs.stdout), "".join(run.logs.stderr)), ("hello\n", "oh\n"), "logs")
    run = await sandbox.run_code("echo $GREETING again", language="bash")
    equal("".join(run.logs.stdout), "hello again\n", "state")


@case("interpreter")
async def javascript_is_a_language(desk):
    sandbox = await sandbox_with(desk, "node")
    run = await sandbox.run_code("console.log('größe'); const list = [1, 2, 3]; list.length + 39", language="javascript")
    equal(("".join(run.logs.stdout), run.text, run.error), ("größe\n", "42", None), "run")
    equal((await sandbox.run_code("list.join('-')", language="js")).text, "1-2-3", "state, by another name of the language")
    run = await sandbox.run_code("null.x", language="javascript")
    equal(run.error.name, "TypeError", "error")


@case("interpreter")
async def an_unknown_language_is_refused(desk):
    sandbox = await desk.sandbox()
    await raises(SandboxException, sandbox.run_code("1", language="cobol-85"), "cobol-85", "python")


@case("interpreter", limit_sec=120)
async def much_output_comes_whole(desk):
    sandbox = await desk.sandbox()
    run = await sandbox.run_code("for n in range(50000):\n    print(n)", timeout=100)
    equal("".join(run.logs.stdout), "".join(f"{n}\n" for n in range(50000)), "output")


@case("interpreter")
async def traffic_that_needs_a_token_gets_it_from_the_package(desk):
    sandbox = await desk.sandbox(network={"allow_public_traffic": False})
    equal((await sandbox.run_code("1 + 1")).text, "2", "text")
    equal((await sandbox.run_code("1 + 1", context=await sandbox.create_code_context())).text, "2", "text in a context")


@case("interpreter")
async def a_dead_sandbox_runs_nothing(desk):
    sandbox = await desk.sandbox()
    await sandbox.run_code("1")
    await sandbox.kill()
    await raises(TimeoutException, sandbox.run_code("1"))


@case("interpreter")
async def a_cell_that_needs_too_much_memory_says_so(desk):
    sandbox = await desk.sandbox()
    # Piece by piece: one large piece may be refused with a MemoryError, and then the kernel kills nothing.
    run = await sandbox.run_code("held = [bytearray(1 << 20) for _ in range(1 << 14)]", timeout=60)
    equal(run.error.name, "ContextDied", "error")
    holds("out of memory" in run.error.value, f"the error is {run.error}")
    equal((await sandbox.run_code("1 + 1")).text, "2", "the next cell")


@case("interpreter")
async def a_sandbox_that_is_killed_ends_its_cells_with_an_error(desk):
    sandbox = await desk.sandbox()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(_):
        loop.call_soon_threadsafe(begun.set)

    code = "import time\nprint('begun', flush=True)\ntime.sleep(60)"
    running = asyncio.ensure_future(sandbox.run_code(code, on_stdout=hear))
    await asyncio.wait_for(begun.wait(), 30)
    await sandbox.kill()
    await raises(TimeoutException, asyncio.wait_for(running, 30), "was killed")


@case("interpreter")
async def a_sandbox_that_reaches_its_end_cuts_its_cells_with_an_error(desk):
    sandbox = await desk.sandbox()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(_):
        loop.call_soon_threadsafe(begun.set)

    code = "import time\nprint('begun', flush=True)\ntime.sleep(60)"
    running = asyncio.ensure_future(sandbox.run_code(code, on_stdout=hear))
    await asyncio.wait_for(begun.wait(), 30)
    await sandbox.set_timeout(1)
    await raises(TimeoutException, asyncio.wait_for(running, 30))


@case("interpreter")
async def code_goes_on_after_a_pause(desk):
    sandbox = await desk.sandbox()
    await sandbox.run_code("x = 7")
    await sandbox.pause()
    again = await desk.Sandbox.connect(sandbox.sandbox_id)
    equal((await again.run_code("x")).text, "7", "text")


def files_of(name: str, seen: set[str]) -> list:
    """The files of a distribution and of what it needs, as they are installed beside this interpreter."""
    distribution = importlib.metadata.distribution(name)
    seen.add(name.lower())
    found = [(str(it), it.locate()) for it in distribution.files or [] if it.parts[0] not in ("..", "/")]
    for wanted in distribution.requires or []:
        needed = re.match(r"[\w.-]+", wanted)[0]
        if "extra ==" not in wanted and needed.lower() not in seen:
            try:
                found += files_of(needed, seen)
            except importlib.metadata.PackageNotFoundError:
                pass  # for other systems or versions
    return found


@case("interpreter", limit_sec=180)
async def a_box_that_has_ipython_knows_its_magics(desk):
    packages = io.BytesIO()
    with tarfile.open(fileobj=packages, mode="w") as archive:
        for name, path in files_of("ipython", set()):
            if path.is_file() and (path.suffix == ".py" or path.name == "METADATA"):
                archive.add(path, name)
    sandbox = await desk.sandbox(envs={"PYTHONPATH": "/home/user/packages"})
    await sandbox.files.write("/home/user/packages.tar", packages.getvalue())
    await sandbox.commands.run("mkdir packages && tar -xf packages.tar -C packages")
    context = await sandbox.create_code_context()

    async def run(code: str):
        return await sandbox.run_code(code, context=context)

    timed = await run("x = 5\n%timeit -n 1 -r 1 x + 1")
    holds("per loop" in "".join(timed.logs.stdout), f"what %timeit told is {timed}")
    equal("".join((await run("%who")).logs.stdout).split(), ["x"], "names of the user")
    await run("%%capture kept\nprint('hidden')")
    equal((await run("kept.stdout.strip()")).text, "hidden", "what was captured")
    equal((await run("get_ipython().user_ns['x']")).text, "5", "what the shell knows")
    equal([it.latex for it in (await run("%%latex\n$x$")).results], ["$x$"], "what a magic shows")
    equal((await run("%nonesuch")).error.name, "UsageError", "a magic that nobody knows")
    equal((await run("x = = 1")).error.name, "SyntaxError", "what is no code")


@case("interpreter")
async def contexts_of_languages_are_there_before_their_first_use(desk):
    sandbox = await desk.sandbox()
    listed = {it.language: it for it in await sandbox.list_code_contexts()}
    holds({"python", "javascript"} <= set(listed), f"the languages are {list(listed)}")
    equal((await sandbox.run_code("1 + 1", context=listed["python"])).text, "2", "text")
    equal(len(await sandbox.list_code_contexts()), len(listed), "contexts after the first use")


@case("interpreter")
async def a_directory_that_cannot_be_used_is_told_with_its_reason(desk):
    sandbox = await desk.sandbox()
    await sandbox.files.write("/home/user/note", "text")
    for cwd, why in [("/missing", "No such file"), ("/home/user/note", "Not a directory")]:
        error = await raises(SandboxException, sandbox.create_code_context(cwd=cwd))
        holds(cwd in str(error) and why in str(error), f"the refusal of {cwd} is {error}")


@case("interpreter", "guarded", limit_sec=120)
async def the_prepared_template_has_the_usual_packages(desk):
    """`strongbox e2b prepare` was run by one of two tenants before this driver."""
    code = "import numpy, pandas, matplotlib, PIL, IPython\nnumpy.__file__"
    with desk.behind_tokens("left"):
        sandbox = await desk.sandbox("code-interpreter-v1")
        run = await sandbox.run_code(code)
        equal((run.text or "").startswith("/usr/local/lib/"), True, f"where numpy is: {run}")
        seen = await sandbox.commands.run("python -c 'import pandas' && whoami && env | grep -icE '^(pip_|[a-z]+_proxy=)'; true")
        equal(seen.stdout, "user\n0\n", "who has it, and settings of the build that were kept")
        run = await sandbox.run_code("from PIL import Image\nImage.new('RGB', (4, 3), 'red').save('picture.png')")
        pictures = [base64.b64decode(it.png) for it in run.results if it.png]
        equal([it[:8] + it[16:24] for it in pictures], [b"\x89PNG\r\n\x1a\n" + struct.pack(">II", 4, 3)], f"pictures of {run}")
        run = await sandbox.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2, 4])\nplt.show()")
        shown = [base64.b64decode(it.png)[:8] for it in run.results if it.png]
        equal((shown, run.error), ([b"\x89PNG\r\n\x1a\n"], None), f"pictures of plt.show() in {run}")
        run = await sandbox.run_code("import pandas\npandas.DataFrame({'name': ['one', 'two'], 'value': [1, 2]})")
        table = run.results[0]
        holds("<table" in table.html and "two" in table.html and "value" in table.text, f"a DataFrame is shown as {run}")
    with desk.behind_tokens("right"):
        run = await (await desk.sandbox("code-interpreter-v1")).run_code(code)
        holds(run.error is not None or not run.text.startswith("/usr/local/lib/"), f"the other tenant has built none: {run}")
