//! Text and searches that the agent does in the box: lines, edits, names and matches.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use box_core::{BoxSpec, Error, MountMode, Profile, link};
use box_tests::ground::{mount, request};
use box_tests::{Difference, Ground, TestBox};
use box_wire::file_op::{Cut, Lines, Match};
use box_wire::{Answer, FileErrorCode, FileOp, FileRequest, Program, RefusalCode};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    let mut cases = crate::cases![
        lines_are_told_by_number_and_within_bounds,
        an_edit_replaces_exactly_what_was_meant,
        a_mounted_file_can_be_edited,
        fifty_edits_of_one_file_lose_nothing,
        names_are_found_newest_first,
        a_search_leaves_out_what_is_ignored_hidden_binary_or_closed,
        huge_files_are_read_in_bounds,
        hostile_patterns_are_refused_or_answered,
        a_search_works_where_no_thread_can_be_started,
    ];
    let long =
        crate::cases![many_files_and_a_deep_tree_are_searched, links_that_are_swapped_in_lead_no_work_out_of_its_tree,];
    cases.extend(long.into_iter().map(|case| case.within_seconds(180)));
    cases
}

/// The tree that agents work in.
const ROOT: &str = "/workspace";

/// Does something below [`ROOT`].
async fn ask(one: &TestBox, op: FileOp) -> box_core::Result<Answer> {
    ask_below(one, ROOT, op).await
}

async fn ask_below(one: &TestBox, root: &str, op: FileOp) -> box_core::Result<Answer> {
    let file_request = FileRequest { root: root.parse()?, op };
    let request = request(Program::FileOp(Box::new(file_request)));
    let stream = one.backend.dial(&one.handle).await?;
    let (answer, _) = link::file_op(stream, &request, None::<tokio::io::Empty>).await?;
    Ok(answer)
}

/// What kind of trouble it was.
fn file_error(told: box_core::Result<Answer>) -> Result<FileErrorCode> {
    match told {
        Err(Error::File(error)) => Ok(error.code),
        other => bail!("no error with files: {other:?}"),
    }
}

fn lines(path: &str, first: u64, lines_max: u32, bytes_max: u32) -> Result<FileOp> {
    Ok(FileOp::Lines { path: path.parse()?, first, lines_max, bytes_max })
}

fn edit(path: &str, old: &str, new: &str, all: bool) -> Result<FileOp> {
    Ok(FileOp::Edit { path: path.parse()?, old: old.to_owned(), new: new.to_owned(), all })
}

fn glob(path: &str, pattern: &str, matches_max: u32) -> Result<FileOp> {
    Ok(FileOp::Glob { path: path.parse()?, pattern: pattern.to_owned(), matches_max })
}

fn grep(path: &str, pattern: &str, matches_max: u32) -> Result<FileOp> {
    let pattern = pattern.to_owned();
    Ok(FileOp::Grep { path: path.parse()?, pattern, include: None, ignore_case: false, matches_max })
}

async fn read(one: &TestBox, op: FileOp) -> Result<Lines> {
    match ask(one, op).await? {
        Answer::Lines(lines) => Ok(lines),
        other => bail!("{other:?}"),
    }
}

async fn find(one: &TestBox, pattern: &str, matches_max: u32) -> Result<(Vec<String>, bool)> {
    match ask(one, glob(ROOT, pattern, matches_max)?).await? {
        Answer::Found { paths, truncated } => Ok((paths, truncated)),
        other => bail!("{other:?}"),
    }
}

async fn search(one: &TestBox, path: &str, pattern: &str, matches_max: u32) -> Result<(Vec<Match>, bool, u64)> {
    match ask(one, grep(path, pattern, matches_max)?).await? {
        Answer::Matched { matches, truncated, skipped } => Ok((matches, truncated, skipped)),
        other => bail!("{other:?}"),
    }
}

async fn lines_are_told_by_number_and_within_bounds(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("seq 5000 > /workspace/n; printf 'a\\r\\n\\377b' > /workspace/odd; mkdir /workspace/d").await?;
    let told = read(&one, lines("/workspace/n", 4999, 100, 1000)?).await?;
    ensure!(told == Lines { text: "4999\n5000\n".into(), first: 4999, count: 2, total: Some(5000), cut: None });
    let told = read(&one, lines("/workspace/n", 2, 2, 1000)?).await?;
    ensure!(told.text == "2\n3\n" && told.cut == Some(Cut::Lines) && told.total == Some(5000), "{told:?}");
    let told = read(&one, lines("/workspace/n", 1, 100, 5)?).await?;
    ensure!(told.text == "1\n2\n" && told.cut == Some(Cut::Bytes), "{told:?}");
    let told = read(&one, lines("/workspace/odd", 1, 10, 100)?).await?;
    ensure!(told.text == "a\r\n\u{fffd}b" && told.count == 2, "{told:?}");
    let told = read(&one, lines("/workspace/n", 9000, 10, 100)?).await?;
    ensure!(told.count == 0 && told.total == Some(5000), "{told:?}");
    for (path, code) in [
        ("/workspace/none", FileErrorCode::NotFound),
        ("/workspace/d", FileErrorCode::IsDirectory),
        ("/etc/passwd", FileErrorCode::PathEscapes),
    ] {
        ensure!(file_error(ask(&one, lines(path, 1, 1, 1)?).await)? == code, "{path}");
    }
    Ok(())
}

async fn an_edit_replaces_exactly_what_was_meant(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; printf 'x = 1\\r\\ny = 2\\r\\nx = 1\\r\\n' > f; chmod 751 f; ln -s f link").await?;
    ensure!(file_error(ask(&one, edit("/workspace/f", "x = 1", "z", false)?).await)? == FileErrorCode::Ambiguous);
    ensure!(file_error(ask(&one, edit("/workspace/f", "x = 1\ny", "z", false)?).await)? == FileErrorCode::NoMatch);
    let told = ask(&one, edit("/workspace/link", "y = 2", "y = 3", false)?).await?;
    ensure!(told == Answer::Edited { replacements: 1 }, "{told:?}");
    let told = ask(&one, edit("/workspace/f", "x = 1", "x = 5", true)?).await?;
    ensure!(told == Answer::Edited { replacements: 2 }, "{told:?}");
    let left =
        one.check("cd /workspace; cat f | tr '\\r\\n' '^|'; stat -c ' %a %F' f link | tr '\\n' ' '; ls -A").await?;
    ensure!(left == "x = 5^|y = 3^|x = 5^| 751 regular file  777 symbolic link f\nlink", "{left:?}");
    ensure!(file_error(ask_below(&one, "/", edit("/usr/bin/env", "a", "b", false)?).await)? == FileErrorCode::Binary);
    let read_only = edit("/usr/share/common-licenses/Apache-2.0", "Apache License\n", "x", false)?;
    let code = file_error(ask_below(&one, "/", read_only).await)?;
    ensure!(matches!(code, FileErrorCode::ReadOnly | FileErrorCode::Denied), "{code:?}");
    Ok(())
}

async fn a_mounted_file_can_be_edited(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?.join("config");
    fs::write(&source, "level = low\nmore of it\n")?;
    fs::set_permissions(&source, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    let mounts = vec![mount(&source, "/workspace/config", MountMode::Rw)?];
    let one = ground.make(&BoxSpec { mounts, ..Profile::default().spec() }).await?;
    ask(&one, edit("/workspace/config", "level = low\n", "l = 1\n", false)?).await?;
    ensure!(fs::read_to_string(&source)? == "l = 1\nmore of it\n");
    ensure!(one.check("ls -A /workspace").await? == "config");
    Ok(())
}

/// FT-14.
async fn fifty_edits_of_one_file_lose_nothing(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("echo counter=N > /workspace/e.txt").await?;
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let (one, op) = (one.clone(), edit("/workspace/e.txt", "counter=N", "counter=N+1", false)?);
        tasks.spawn(async move { ask(&one, op).await });
    }
    while let Some(told) = tasks.join_next().await {
        ensure!(told?? == Answer::Edited { replacements: 1 });
    }
    let left = one.check("cat /workspace/e.txt; ls -A /workspace").await?;
    ensure!(left == format!("counter=N{}\ne.txt", "+1".repeat(50)), "{left}");
    Ok(())
}

async fn names_are_found_newest_first(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check(
        "cd /workspace; mkdir -p d/e .git .hid; touch -d @10 a.rs; touch -d @30 d/b.rs; touch -d @20 d/e/c.rs;
         touch .git/x.rs .hid/y.rs d/z.py; echo '*.rs' > .gitignore; ln -s /etc d/etc",
    )
    .await?;
    let (paths, truncated) = find(&one, "**/*.rs", 10).await?;
    ensure!(paths == ["/workspace/d/b.rs", "/workspace/d/e/c.rs", "/workspace/a.rs"] && !truncated, "{paths:?}");
    let (paths, truncated) = find(&one, "**/*.rs", 1).await?;
    ensure!(paths == ["/workspace/d/b.rs"] && truncated, "{paths:?}");
    let (paths, _) = find(&one, ".hid/*", 10).await?;
    ensure!(paths == ["/workspace/.hid/y.rs"], "{paths:?}");
    ensure!(file_error(ask(&one, glob("/workspace/d/etc", "*", 1)?).await)? == FileErrorCode::PathEscapes);
    Ok(())
}

async fn a_search_leaves_out_what_is_ignored_hidden_binary_or_closed(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check(
        "cd /workspace; mkdir -p .git src; echo '*.log' > .gitignore; for f in a.log .h src/b.rs src/c.py; do
         printf 'one\\nthe needle\\n' > $f; done; printf 'needle\\0' > bin; echo needle > no; chmod 0 no; ln -s /etc etc",
    )
    .await?;
    let (matches, truncated, skipped) = search(&one, ROOT, "needle$", 10).await?;
    let expected = ["/workspace/src/b.rs", "/workspace/src/c.py"];
    let expected = expected.map(|path| Match { path: path.into(), line: 2, text: "the needle".into() });
    ensure!(matches == expected && !truncated && skipped == 1, "{matches:?} {truncated} {skipped}");
    let (matches, truncated, _) = search(&one, ROOT, "needle", 1).await?;
    ensure!(matches.len() == 1 && truncated);
    let (matches, ..) = search(&one, "/workspace/a.log", "needle", 10).await?;
    ensure!(matches.len() == 1, "a file that is named is searched");
    ensure!(file_error(ask(&one, grep("/workspace/bin", "needle", 1)?).await)? == FileErrorCode::Binary);
    Ok(())
}

/// FT-08.
async fn huge_files_are_read_in_bounds(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; truncate -s 1T sparse; ln -s /dev/zero z; head -c 40M /dev/zero | tr '\\0' a > long")
        .await?;
    ensure!(file_error(ask(&one, lines("/workspace/sparse", 1, 10, 1000)?).await)? == FileErrorCode::Binary);
    ensure!(file_error(ask(&one, lines("/workspace/z", 1, 10, 1000)?).await)? == FileErrorCode::PathEscapes);
    let device = ask_below(&one, "/", lines("/workspace/z", 1, 10, 1000)?).await;
    ensure!(file_error(device)? == FileErrorCode::NotRegular);
    let told = read(&one, lines("/workspace/long", 1, 10, 1000)?).await?;
    ensure!(told.text.len() == 1000 && told.cut == Some(Cut::Bytes) && told.count == 1, "{told:?}");
    let (matches, _, skipped) = search(&one, ROOT, "b", 10).await?;
    ensure!(matches.is_empty() && skipped == 1, "{matches:?} {skipped}");
    ensure!(file_error(ask(&one, edit("/workspace/long", "a", "b", true)?).await)? == FileErrorCode::TooLarge);
    ensure!(file_error(ask(&one, edit("/workspace/sparse", "a", "b", true)?).await)? == FileErrorCode::Binary);
    Ok(())
}

/// FT-09.
async fn hostile_patterns_are_refused_or_answered(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("head -c 100000 /dev/zero | tr '\\0' a > /workspace/a.txt").await?;
    ensure!(search(&one, ROOT, "(a+)+$", 10).await?.0.len() == 1);
    ensure!(search(&one, ROOT, "(a|a)*b", 10).await?.0.is_empty());
    let groups = "(".repeat(5000);
    ensure!(file_error(ask(&one, grep(ROOT, &groups, 10)?).await)? == FileErrorCode::InvalidPattern);
    let counted = ask(&one, grep(ROOT, "a{0,65535}{0,65535}", 10)?).await;
    ensure!(file_error(counted)? == FileErrorCode::PatternTooComplex);
    find(&one, &format!("{}*", "**/".repeat(200)), 10).await?;
    let choices = format!("{{{}a}}", "a,".repeat(4000));
    find(&one, &choices, 10).await?;
    let nested = format!("{}a{}", "{".repeat(4000), "}".repeat(4000));
    ensure!(file_error(ask(&one, glob(ROOT, &nested, 10)?).await)? == FileErrorCode::PatternTooComplex);
    let long = format!("{{{}a}}", "a,".repeat(10_000));
    ensure!(matches!(ask(&one, glob(ROOT, &long, 10)?).await, Err(Error::Invalid(_))));
    Ok(())
}

/// FT-10, with fewer files.
async fn many_files_and_a_deep_tree_are_searched(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let files = "cd /workspace; mkdir m; cd m; seq -f f%.0f 30000 | xargs touch; echo zzz > f77";
    one.check(files).await?;
    let deep = "import os\nos.chdir('/workspace')\nfor i in range(3000): os.mkdir('d'); os.chdir('d')\n\
                open('bottom', 'w').write('zzz')";
    let made = one.argv(&["python3", "-c", deep]).await?;
    ensure!(made.succeeded(), "{}", made.errors());
    let (paths, truncated) = find(&one, "**/*", 100).await?;
    ensure!(paths.len() == 100 && truncated);
    let (paths, truncated) = find(&one, "**/bottom", 100).await?;
    ensure!(paths.len() == 1 && !truncated && paths[0].len() > 6000, "{} {truncated}", paths.len());
    let (matches, truncated, skipped) = search(&one, ROOT, "zzz", 100).await?;
    let short: Vec<_> = matches.iter().map(|one| one.path.len()).collect();
    ensure!(matches.len() == 2 && !truncated && skipped == 0, "{short:?} {truncated} {skipped}");
    Ok(())
}

async fn a_search_works_where_no_thread_can_be_started(ground: Arc<Ground>) -> Result<()> {
    let mut answered = 0;
    for pids_limit in 1..=6 {
        let one = ground.make(&BoxSpec { pids_limit, ..Profile::default().spec() }).await?;
        match ask_below(&one, "/", grep("/etc", "^root:", 10)?).await {
            Ok(Answer::Matched { matches, .. }) => {
                ensure!(matches.iter().any(|one| one.path == "/etc/passwd"), "{pids_limit}: {matches:?}");
                answered += 1;
            }
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::OutOfProcesses => {}
            other => bail!("with {pids_limit} processes: {other:?}"),
        }
        one.destroy().await?;
    }
    ensure!(answered > 0, "no box could search at all");
    Ok(())
}

/// Most rounds of each work while links are swapped.
const RACE_ROUNDS: usize = 150;

/// How long that may go on where each takes long, once there were enough of them.
const RACE_TIME: Duration = Duration::from_secs(20);

/// Fewer works than this would be no race.
const RACE_WORKS_MIN: usize = 40;

/// FT-05 and FT-06, for lines, edits, names and matches.
async fn links_that_are_swapped_in_lead_no_work_out_of_its_tree(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("mkdir /tmp/out /workspace/x; echo secret > /tmp/out/f; echo mine > /workspace/x/f; ln -s /tmp/out /workspace/y")
        .await?;
    let swap = "import ctypes\nL = ctypes.CDLL(None)\nwhile True: L.syscall(316, -100, b'/workspace/x', -100, b'/workspace/y', 2)";
    let swapper = one.clone();
    let mut swapping = JoinSet::new();
    let mut forever = request(Program::Argv(["python3", "-c", swap].map(str::to_owned).into()));
    forever.timeout_ms = None;
    swapping.spawn(async move { swapper.run(&forever).await });
    let (mut met, begun) = (0, Instant::now());
    for _ in 0..RACE_ROUNDS {
        if met > RACE_WORKS_MIN && begun.elapsed() > RACE_TIME {
            break;
        }
        for path in ["/workspace/x", "/workspace/y"] {
            let file = format!("{path}/f");
            let ops = [
                lines(&file, 1, 10, 100)?,
                edit(&file, "secret", "stolen", true)?,
                glob(path, "*", 10)?,
                grep(ROOT, "e", 10)?,
            ];
            for op in ops {
                let told = ask(&one, op).await;
                ensure!(!format!("{told:?}").contains("secret"), "{told:?}");
                met += usize::from(told.is_ok());
            }
        }
    }
    ensure!(met > RACE_WORKS_MIN, "only {met} works were done at all");
    swapping.shutdown().await;
    let left = one.check("cat /tmp/out/f; ls -A /tmp/out; cat /workspace/?/f | grep -c mine").await.context("after")?;
    ensure!(left == "secret\nf\n1", "{left:?}");
    Ok(())
}
