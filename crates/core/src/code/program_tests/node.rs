use super::*;

async fn node() -> Program {
    Program::start(CodeLanguage::JavaScript).await
}

#[tokio::test]
async fn the_last_value_is_the_result_and_names_are_kept() {
    let mut node = node().await;
    assert_eq!(node.run("const x = 20; x + 1").await.text(), "21");
    assert_eq!(node.run("`it is ${x}`").await.text(), "it is 20");
    assert_eq!(node.run("({ a: [1] })").await.text(), "{ a: [ 1 ] }");
    assert_eq!(node.run("const y = await Promise.resolve(7); y").await.text(), "7");
    assert_eq!(node.run("async function main() { console.log('in'); return 9 }\nmain()").await.text(), "9");
    for nothing in ["let z = 1", "undefined", "// nothing", ""] {
        let came = node.run(nothing).await;
        assert!(came.results.is_empty() && came.errors.is_empty(), "{nothing}: {came:?}");
    }
}

#[tokio::test]
async fn everything_that_is_printed_is_told() {
    let mut node = node().await;
    let code = "console.log('ü😀', { a: 1 }); console.error('e');\nrequire('child_process').execSync('echo sub; cat', { stdio: 'inherit' });\nprocess.stdout.write('raw'); undefined";
    let came = node.run(code).await;
    assert_eq!((came.stdout.as_str(), came.stderr.as_str()), ("ü😀 { a: 1 }\nsub\nraw", "e\n"));
    let came = node.run("console.log('x'.repeat(5_000_000))").await;
    assert_eq!(came.stdout.len(), 5_000_001);
}

#[tokio::test]
async fn errors_are_told_and_the_context_goes_on() {
    let mut node = node().await;
    for (code, name) in [
        ("throw new TypeError('bad')", "TypeError"),
        ("function f() { throw new RangeError('f') }\nf()", "RangeError"),
        ("let = ;", "SyntaxError"),
        ("await Promise.reject(new RangeError('later'))", "RangeError"),
        ("missing", "ReferenceError"),
        ("throw 5", "Error"),
        (
            "setTimeout(() => { throw new TypeError('late') }, 5); await new Promise((done) => setTimeout(done, 1000))",
            "TypeError",
        ),
        ("function r() { r() }\nr()", "RangeError"),
    ] {
        let came = node.run(code).await;
        assert_eq!(came.error().0, name, "{code}");
        let traceback = came.errors[0]["traceback"].as_str().unwrap();
        assert!(!traceback.contains("strongbox"), "{traceback}");
    }
    assert_eq!(node.run("6 * 7").await.text(), "42");
}

#[tokio::test]
async fn an_interrupt_ends_the_cell_and_nothing_else() {
    let mut node = node().await;
    node.run("let kept = 1").await;
    for code in ["while (true) {}", "await new Promise(() => {})", "new Promise(() => {})"] {
        assert_eq!(node.interrupted(code).await.error().0, "KeyboardInterrupt", "{code}");
    }
    node.interrupt();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(node.run("kept").await.text(), "1");
}

#[tokio::test]
async fn imports_work_as_in_modules() {
    let mut node = node().await;
    let code = "import path from 'node:path'\nimport { join as j, basename } from 'node:path'\nimport * as os from 'node:os'\nj('a', basename('/x/b')) + typeof path.join + typeof os.cpus";
    assert_eq!(node.run(code).await.text(), "a/bfunctionfunction");
}

#[tokio::test]
async fn variables_of_a_cell_are_gone_after_it() {
    let mut node = node().await;
    assert_eq!(node.run_with("process.env.NEW", &[("NEW", "ü")]).await.text(), "ü");
    assert!(node.run("process.env.NEW").await.results.is_empty());
}

#[tokio::test]
async fn values_may_say_how_they_look() {
    let mut node = node().await;
    let code = "const value = { [Symbol.for('Jupyter.display')]: () => ({ 'text/html': '<b>', 'x/y': 'z' }) };\nawait display(value); undefined";
    let came = node.run(code).await;
    assert_eq!((&came.results[0]["html"], &came.results[0]["extra"]["x/y"]), (&"<b>".into(), &"z".into()));
}

#[tokio::test]
async fn types_are_taken_away_where_node_can_and_explained_where_it_cannot() {
    let mut node = Program::start(CodeLanguage::TypeScript).await;
    assert_eq!(node.run("const plain = 1; plain").await.text(), "1");
    let came = node.run("const typed: number = 2; typed").await;
    match came.errors.first() {
        None => assert_eq!(came.text(), "2"),
        Some(error) => assert!(error["value"].as_str().unwrap().contains("22.13"), "{error}"),
    }
}

#[tokio::test]
async fn a_cell_that_ends_the_process_ends_it() {
    let mut node = node().await;
    let came = node.run("console.log('said'); process.exit(4)").await;
    assert!(came.died);
    assert_eq!(came.stdout, "said\n");
}
