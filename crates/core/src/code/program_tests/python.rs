use super::*;

async fn python() -> Program {
    Program::start(CodeLanguage::Python).await
}

#[tokio::test]
async fn the_last_expression_is_the_main_result_and_names_are_kept() {
    let mut python = python().await;
    let came = python.run("x = 20\nx + 1").await;
    assert_eq!((came.text(), &came.results[0]["is_main_result"]), ("21", &Value::Bool(true)));
    assert_eq!(python.run("'it is ' + str(x)").await.text(), "it is 20");
    assert_eq!(python.run("_").await.text(), "it is 20");
    for nothing in ["y = 1", "None", "x;", "x; # quiet", "", "# nothing"] {
        let came = python.run(nothing).await;
        assert!(came.results.is_empty() && came.errors.is_empty(), "{nothing}: {came:?}");
    }
}

#[tokio::test]
async fn what_commands_print_keeps_its_place() {
    let mut python = python().await;
    let came = python.run("import os\nprint('a')\nos.system('echo b; echo c >&2')\nprint('d', end='')\n1").await;
    assert_eq!((came.stdout.as_str(), came.stderr.as_str(), came.text()), ("a\nb\nd", "c\n", "1"));
    let came = python.run("print('1')\ndisplay(2)\nprint('3')\n4").await;
    let order = ["started", "stdout", "result", "stdout", "result"];
    assert_eq!(came.order, order);
    let came = python.run("import sys\nsys.stdout.buffer.write(b'raw ')\nprint('text')\nNone").await;
    assert_eq!(came.stdout, "raw text\n");
}

#[tokio::test]
async fn errors_have_a_name_a_value_and_the_frames_of_the_user() {
    let mut python = python().await;
    let came = python.run("def f(x):\n    return 1 / x\n\nf(0)").await;
    assert_eq!(came.error(), ("ZeroDivisionError", "division by zero"));
    let traceback = came.errors[0]["traceback"].as_str().unwrap();
    for line in ["<cell 1>\", line 4, in <module>", "<cell 1>\", line 2, in f", "return 1 / x"] {
        assert!(traceback.contains(line), "{traceback}");
    }
    assert!(!traceback.contains("strongbox"), "{traceback}");
    let came = python.run("try:\n    f(0)\nexcept Exception as error:\n    raise KeyError('k') from error").await;
    assert_eq!(came.error().0, "KeyError");
    let traceback = came.errors[0]["traceback"].as_str().unwrap();
    assert!(traceback.contains("direct cause") && !traceback.contains("strongbox"), "{traceback}");
}

#[tokio::test]
async fn whatever_fails_is_told_and_the_context_goes_on() {
    let mut python = python().await;
    for (code, name) in [
        ("x = = 1", "SyntaxError"),
        ("def r(): r()\nr()", "RecursionError"),
        ("class B:\n    def __repr__(self): raise RuntimeError('no')\nB()", "RuntimeError"),
        ("class E(Exception):\n    def __str__(self): raise ValueError()\nraise E", "E"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("exit()", "SystemExit"),
        ("input('name? ')", "EOFError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("'\\ud800'.encode()", "UnicodeEncodeError"),
        ("x", "NameError"),
        ("%unknown", "UsageError"),
        ("%%unknown\nx", "UsageError"),
    ] {
        let came = python.run(code).await;
        assert_eq!(came.error().0, name, "{code}");
        assert!(!came.died);
    }
    assert_eq!(python.run("6 * 7").await.text(), "42");
}

#[tokio::test]
async fn an_interrupt_ends_the_cell_and_nothing_else() {
    let mut python = python().await;
    python.run("kept = 1").await;
    for code in [
        "while True: pass",
        "import time; time.sleep(100)",
        "import subprocess; subprocess.run(['sleep', '100'])",
        "import os; os.system('sleep 100'); import time; time.sleep(0.2)",
        "import asyncio; await asyncio.sleep(100)",
    ] {
        let came = python.interrupted(code).await;
        let is_ended = came.errors.first().is_some_and(|error| error["name"] == "KeyboardInterrupt");
        assert!(is_ended || code.contains("os.system"), "{code}: {came:?}");
    }
    python.interrupt();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(python.run("kept").await.text(), "1", "an interrupt between cells is ignored");
}

#[tokio::test]
async fn awaiting_needs_no_function() {
    let mut python = python().await;
    let code = "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return 5\nawait f()";
    assert_eq!(python.run(code).await.text(), "5");
    assert_eq!(python.run("[x async for x in (lambda: agen())()]").await.error().0, "NameError");
    assert_eq!(python.run("asyncio.run(f()) + await f()").await.error().0, "RuntimeError");
    assert_eq!(python.run("asyncio.run(f())").await.text(), "5");
}

#[tokio::test]
async fn variables_of_a_cell_are_gone_after_it() {
    let mut python = python().await;
    python.run("import os\nos.environ['OLD'] = 'old'").await;
    let look = "os.environ.get('OLD'), os.environ.get('NEW')";
    assert_eq!(python.run_with(look, &[("OLD", "x"), ("NEW", "ü")]).await.text(), "('x', 'ü')");
    assert_eq!(python.run(look).await.text(), "('old', None)");
    assert_eq!(python.run_with("1/0", &[("NEW", "x")]).await.error().0, "ZeroDivisionError");
    assert_eq!(python.run(look).await.text(), "('old', None)");
}

#[tokio::test]
async fn a_copy_of_the_process_does_not_answer_for_it() {
    let mut python = python().await;
    let came = python.run("import os, sys\npid = os.fork()\nif pid == 0:\n    print('copy')\n    sys.exit(7)\nos.waitpid(pid, 0)[1] >> 8").await;
    assert_eq!((came.stdout.as_str(), came.text()), ("copy\n", "7"));
    let came = python.run("pid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\nelse:\n    1 / 0\n'original'").await;
    assert_eq!(came.text(), "original");
    assert!(came.stderr.contains("ZeroDivisionError"), "{came:?}");
    let came =
        python.run("from multiprocessing import Pool\nwith Pool(2) as pool:\n    print(pool.map(abs, [-1, -2]))").await;
    assert_eq!(came.stdout, "[1, 2]\n");
}

#[tokio::test]
async fn what_a_thread_prints_after_the_cell_belongs_to_nobody() {
    let mut python = python().await;
    python
        .run("import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()")
        .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let came = python.run("print('mine')").await;
    assert_eq!(came.stdout, "mine\n");
}

#[tokio::test]
async fn output_is_whole_whatever_it_holds_and_however_much_it_is() {
    let mut python = python().await;
    let came = python.run("print('äöü \\U0001f600 \\ud800')\n'\\U0001f600'").await;
    assert_eq!((came.stdout.as_str(), came.text()), ("äöü 😀 \\ud800\n", "😀"));
    let came = python.run("for i in range(20000): print(i, 'x' * 100)").await;
    assert_eq!(came.stdout.lines().count(), 20000);
    let came = python.run("'x' * 10_000_000").await;
    assert!(came.text().len() < (1 << 20) + 100 && came.text().ends_with("more characters)"));
    let came = python.run("display({'image/png': bytes(3_000_000), 'text/plain': 'p'}, raw=True)").await;
    assert_eq!(came.results[0]["png"].as_str().unwrap().len(), 4_000_000);
    let came = python.run("display({'image/png': bytes(30_000_000), 'text/plain': 'p'}, raw=True)").await;
    assert_eq!(came.text(), "p");
    assert!(came.stderr.contains("at most"), "{}", came.stderr);
}

#[tokio::test]
async fn values_show_themselves_in_every_form_that_they_have() {
    let mut python = python().await;
    let code = "class V:\n    def _repr_html_(self): return '<b>'\n    def _repr_png_(self): return b'png'\n    def _repr_markdown_(self): return None\n    def _repr_json_(self): return {'a': [1, float('nan')]}\n    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/latex': '$x$', 'x/y': 'z'}\n    def __repr__(self): return '\"V\"'\nV()";
    let came = python.run(code).await;
    let shown = serde_json::json!({ "is_main_result": true, "text": "V", "html": "<b>", "png": "cG5n",
        "json": { "a": [1, null] }, "latex": "$x$", "extra": { "x/y": "z" } });
    assert_eq!(came.results, [shown]);
    assert_eq!(python.run("V").await.text(), "<class '__main__.V'>", "a class is not one of its values");
}

#[tokio::test]
async fn lines_of_notebooks_are_understood_where_python_does_not_understand_them() {
    let mut python = python().await;
    let came = python.run("name = 'you'\n!echo hello {name}\n\"\"\"\n!not a command\n\"\"\"").await;
    assert_eq!((came.stdout.as_str(), came.text()), ("hello you\n", "\\n!not a command\\n"));
    assert_eq!(python.run("lines = !printf 'a\\nb'\nlines").await.text(), "['a', 'b']");
    assert_eq!(python.run("for i in range(2):\n    !echo {i}").await.stdout, "0\n1\n");
    assert_eq!(python.run("%%bash\nx=1\necho $((x + 1))").await.stdout, "2\n");
    assert_eq!(python.run("7 %\\\n3").await.text(), "1");
    assert_eq!(python.run("%matplotlib inline\n%cd /\nimport os; os.getcwd()").await.text(), "/");
}

#[tokio::test]
async fn a_cell_that_ends_the_process_ends_it() {
    let mut python = python().await;
    let came = python.run("import os\nprint('said')\nos._exit(9)").await;
    assert!(came.died);
    assert_eq!(came.stdout, "said\n", "what was said is not lost with it");
}

#[tokio::test]
async fn a_cell_that_closes_its_streams_harms_itself_only() {
    let mut python = python().await;
    assert_eq!(python.run("import os; os.close(1); os.close(2); os.close(0); 1").await.text(), "1");
    assert_eq!(python.run("print('again')").await.stdout, "again\n");
}

#[tokio::test]
async fn figures_and_tables_are_shown_where_they_can_be_made() {
    let mut python = python().await;
    let code =
        "try:\n    import matplotlib.pyplot as plt, pandas\nexcept ImportError:\n    plt = None\nplt is not None";
    if python.run(code).await.text() != "True" {
        return;
    }
    let came = python.run("plt.plot([1, 2], [3, 4], label='a')\nplt.xlabel('t (s)')\nplt.show()").await;
    let chart = &came.results[0]["chart"];
    assert_eq!((&chart["type"], &chart["x_unit"]), (&"line".into(), &"s".into()), "{chart}");
    assert_eq!(chart["elements"][0]["points"], serde_json::json!([[1, 3], [2, 4]]));
    assert!(came.results[0]["png"].as_str().unwrap().starts_with("iVBOR"));
    let came = python.run("pandas.DataFrame({'a': [1, 2]})").await;
    assert_eq!(came.results[0]["data"], serde_json::json!({ "a": [1, 2] }));
}

/// A module with the name of Pillow, and with what cells use of it.
const PICTURES: &str = r#"
import os, sys, tempfile
place = tempfile.mkdtemp()
os.chdir(place)
os.mkdir("PIL")
open("PIL/__init__.py", "w").close()
with open("PIL/Image.py", "w") as module:
    module.write("""
class Image:
    def save(self, file, format=None):
        with (open(file, 'wb') if isinstance(file, str) else file) as out:
            out.write(b'picture')
    def show(self):
        raise OSError('no display')
    def _repr_png_(self):
        return b'picture'
""")
sys.path.insert(0, place)
from PIL import Image
image = Image.Image()
"#;

#[tokio::test]
async fn pictures_that_are_saved_or_shown_are_results() {
    let mut python = python().await;
    let came = python.run(PICTURES).await;
    assert!(came.errors.is_empty() && came.results.is_empty(), "{came:?}");
    for code in ["image.save('one.png')", "image.show()", "image"] {
        let came = python.run(code).await;
        assert!(came.errors.is_empty() && came.results.len() == 1, "{code}: {came:?}");
        assert_eq!(came.results[0]["png"], "cGljdHVyZQ==", "{code}");
    }
    let figure = "exec('image.save(\"two.png\")', {'__name__': 'matplotlib.image', 'image': image})";
    for quiet in ["import io\nimage.save(io.BytesIO())", figure] {
        let came = python.run(quiet).await;
        assert!(came.errors.is_empty() && came.results.is_empty(), "{quiet}: {came:?}");
    }
    python.run("import shutil\nshutil.rmtree(place)").await;
}
