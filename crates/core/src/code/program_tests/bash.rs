use super::*;

async fn bash() -> Program {
    Program::start(CodeLanguage::Bash).await
}

#[tokio::test]
async fn one_shell_keeps_everything() {
    let mut bash = bash().await;
    let came = bash.run("x=5; f() { echo \"f $x ü $1\"; }; cd /tmp; alias hi='echo hello'").await;
    assert!(came.errors.is_empty() && came.stdout.is_empty() && came.stderr.is_empty(), "{came:?}");
    assert_eq!(bash.run("f 'a\nb'; pwd; hi").await.stdout, "f 5 ü a\nb\n/tmp\nhello\n");
    let came = bash.run("echo out; echo err >&2; printf 'no end'").await;
    assert_eq!((came.stdout.as_str(), came.stderr.as_str()), ("out\nno end", "err\n"));
}

#[tokio::test]
async fn what_the_last_command_returned_is_an_error_when_it_is_not_0() {
    let mut bash = bash().await;
    assert_eq!(bash.run("false; (exit 7)").await.error(), ("ExitStatus", "the last command returned 7"));
    let came = bash.run("if then").await;
    assert_eq!(came.error().0, "ExitStatus");
    assert!(came.stderr.contains("syntax error"), "{came:?}");
    assert!(bash.run("false; true").await.errors.is_empty());
}

#[tokio::test]
async fn commands_do_not_read_what_is_meant_for_the_shell() {
    let mut bash = bash().await;
    assert_eq!(bash.run("cat; read line; echo \"got $?\"").await.stdout, "got 1\n");
    assert_eq!(bash.run("echo still").await.stdout, "still\n");
}

#[tokio::test]
async fn variables_of_a_cell_are_gone_after_it() {
    let mut bash = bash().await;
    bash.run("export OLD=old; SHY=shy").await;
    let look = "echo \"$OLD,$SHY,$NEW\"; sh -c 'echo \"$OLD,$SHY,$NEW\"'";
    let came = bash.run_with(look, &[("OLD", "x"), ("SHY", "y"), ("NEW", "it's\nü")]).await;
    assert_eq!(came.stdout, "x,y,it's\nü\nx,y,it's\nü\n");
    assert_eq!(bash.run(look).await.stdout, "old,shy,\nold,,\n");
}

#[tokio::test]
async fn an_interrupt_ends_the_cell_and_nothing_else() {
    let mut bash = bash().await;
    bash.run("kept=1; f() { sleep 50; echo no; }").await;
    for code in ["while :; do :; done", "sleep 100; echo no", "f; f; echo no"] {
        let came = bash.interrupted(code).await;
        assert_eq!((came.error().0, came.stdout.as_str()), ("KeyboardInterrupt", ""), "{code}");
    }
    assert_eq!(bash.run("echo $kept").await.stdout, "1\n");
}

#[tokio::test]
async fn tracing_does_not_show_what_is_ours() {
    let mut bash = bash().await;
    let came = bash.run("set -x; echo t; set +x").await;
    assert!(!came.stderr.contains("strongbox"), "{came:?}");
    bash.run("set -x").await;
    let came = bash.run("echo t").await;
    assert!(!came.stderr.contains("strongbox") && came.stderr.contains("echo t"), "{came:?}");
}

#[tokio::test]
async fn a_cell_that_ends_the_shell_ends_it() {
    let mut bash = bash().await;
    let came = bash.run("echo said; exit 3").await;
    assert!(came.died);
    assert_eq!(came.stdout, "said\n");
}
