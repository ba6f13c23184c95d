//! Trees that leave a box, and come into one, as archives.

use std::sync::Arc;

use anyhow::{Result, ensure};
use box_tests::Ground;
use box_wire::Answer;

use super::asked::{Tree, refused};

pub(super) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        a_tree_is_the_same_after_it_travelled,
        archives_are_understood_by_others,
        archives_lead_through_no_link,
        what_is_no_archive_or_too_much_is_refused,
    ]
}

const BYTES_MAX: u64 = 64 << 20;

async fn a_tree_is_the_same_after_it_travelled(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check(
        "mkdir -p /workspace/from/a/empty; cd /workspace/from; seq 100000 > a/numbers; printf x > tool; chmod 751 tool",
    )
    .await?;
    one.check("cd /workspace/from; ln -s /etc/passwd out; ln -s a/numbers link; : > \"$(printf 'odd\\377')\"").await?;
    one.check("cd /workspace/from; n=$(printf 'n%.0s' $(seq 200)); mkdir $n; : > $n/file; ln -s \"$(printf 't%.0s' $(seq 300))\" long").await?;
    one.check("cd /workspace/from; chmod 755 $(find . -type d); touch -d @1000000000 a/numbers tool").await?;
    let look = "find . -printf '%y %m %s %l %P\\n' | grep -v '^d ... [0-9]*  $' | sed 's/^\\(d ...\\) [0-9]*/\\1/' | sort; find . -type f -printf '%T@ %P\\n' | grep -v odd | grep -v /file | sort; md5sum a/numbers";
    let before = one.check(&format!("cd /workspace/from; {look}")).await?;
    one.check("cd /workspace/from; mkfifo pipe").await?;
    let tree = Tree::new(&one, "/workspace");
    let archive = tree.pack("/workspace/from").await?;
    let unpacked = tree.unpack("/workspace/new/to", &archive, BYTES_MAX).await?;
    ensure!(matches!(unpacked, Answer::Unpacked { entries: 10, .. }), "{unpacked:?}");
    let after = one.check(&format!("cd /workspace/new/to; {look}")).await?;
    ensure!(before == after, "{before}\n---\n{after}");
    tree.unpack("/workspace/new/to", &archive, BYTES_MAX).await?;
    ensure!(one.check(&format!("cd /workspace/new/to; {look}")).await? == after, "over itself it is another");
    let file = tree.pack("/workspace/from/tool").await?;
    tree.unpack("/workspace/single", &file, BYTES_MAX).await?;
    ensure!(one.check("cd /workspace/single; ls -A; stat -c %a tool").await? == "tool\n751");
    refused(tree.pack("/workspace/none").await, "not_found", "/workspace/none")?;
    refused(tree.pack("/workspace/from/pipe").await, "not_regular", "/workspace/from/pipe")
}

async fn archives_are_understood_by_others(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("mkdir -p /workspace/from/a; cd /workspace/from; seq 1000 > a/numbers; ln a/numbers second; ln -s a link; tar cf ../theirs.tar .").await?;
    let tree = Tree::new(&one, "/workspace");
    let theirs = tree.collect_file("/workspace/theirs.tar").await?;
    tree.unpack("/workspace/to", &theirs, BYTES_MAX).await?;
    let ours = tree.pack("/workspace/from").await?;
    tree.put("/workspace/ours.tar", &ours).await?;
    one.check("cd /workspace; diff -r from to; mkdir third; tar xf ours.tar -C third; diff -r from third").await?;
    ensure!(
        one.check("stat -c %h /workspace/to/second").await? == "2",
        "hard links are kept where an archive has them"
    );
    Ok(())
}

async fn archives_lead_through_no_link(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("mkdir -p /workspace/from/d /workspace/in /workspace/out; cd /workspace/from; echo new > d/file; echo new > file").await?;
    let whole = Tree::new(&one, "/workspace");
    let archive = whole.pack("/workspace/from").await?;
    let tree = Tree::new(&one, "/workspace/in");
    one.check("cd /workspace/in; mkdir a b c; ln -s /workspace/out a/d; ln -s ../../out b/d; ln -s /proc/self/cwd c/d")
        .await?;
    one.check(
        "echo old > /workspace/out/file; ln -s ../../out/file /workspace/in/a/file; ln -s ../out /workspace/in/link",
    )
    .await?;
    for name in ["a", "b", "c"] {
        let unpacked = tree.unpack(&format!("/workspace/in/{name}"), &archive, BYTES_MAX).await;
        refused(unpacked, "symlink_refused", &format!("/workspace/in/{name}/d"))?;
    }
    refused(tree.unpack("/workspace/in/link", &archive, BYTES_MAX).await, "path_escapes", "/workspace/in/link")?;
    refused(tree.unpack("/workspace/in/link/new", &archive, BYTES_MAX).await, "path_escapes", "/workspace/in/link")?;
    refused(tree.unpack("/workspace/other", &archive, BYTES_MAX).await, "path_escapes", "/workspace/other")?;
    ensure!(one.check("cd /workspace/out; ls -A; cat file").await? == "file\nold");
    Ok(())
}

async fn what_is_no_archive_or_too_much_is_refused(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("mkdir /workspace/from; cd /workspace/from; head -c 1000000 /dev/zero > zeros").await?;
    let tree = Tree::new(&one, "/workspace");
    let archive = tree.pack("/workspace/from").await?;
    refused(tree.unpack("/workspace/to", &archive, 999_999).await, "too_large", "999999")?;
    refused(tree.unpack("/workspace/to", &archive[..500_000], BYTES_MAX).await, "bad_archive", "/workspace/to")?;
    refused(tree.unpack("/workspace/to", &[b'x'; 4096], BYTES_MAX).await, "bad_archive", "/workspace/to")?;
    ensure!(one.check("ls -A /workspace/to").await?.is_empty(), "half a file is left");
    ensure!(matches!(
        tree.unpack("/workspace/to", &archive, 1_000_000).await?,
        Answer::Unpacked { entries: 1, bytes: 1_000_000 }
    ));
    Ok(())
}
