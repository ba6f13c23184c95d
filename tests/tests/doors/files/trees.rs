//! Directories: made, listed, moved, removed, packed, unpacked and watched; and who may.

use anyhow::{Context, Result, ensure};
use box_tests::events::{Event, Events};
use box_tests::http::Request;
use box_tests::suite::skip;
use serde_json::{Value, json};

use super::{of, read, upload, write};
use crate::{Door, DoorCase, cases, eventually};

pub(super) fn cases() -> Vec<DoorCase> {
    cases![
        directories_are_made_listed_moved_and_removed,
        a_tree_goes_out_and_in_as_an_archive,
        every_file_error_has_its_status,
        a_refusal_names_the_owner_of_a_file_in_a_mounted_directory,
        a_watcher_is_told_what_changes,
        watching_ends_with_the_box_and_with_the_server,
        files_are_their_tenants_and_need_their_scope,
        files_never_make_a_session,
    ]
}

fn paths(listed: &Value) -> Vec<&str> {
    listed["entries"].as_array().into_iter().flatten().filter_map(|entry| entry["path"].as_str()).collect()
}

async fn directories_are_made_listed_moved_and_removed(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let post = |what: &str, body: Value| {
        let path = format!("/v1/sessions/one/files/{what}");
        async move { client.post(&path, &body).await }
    };
    let made = post("mkdir", json!({ "path": "/workspace/a/b/c" })).await?.must(200)?;
    ensure!(made["kind"] == "directory" && made["path"] == "/workspace/a/b/c", "{made}");
    post("mkdir", json!({ "path": "/workspace/a" })).await?.must(200)?;
    post("mkdir", json!({ "path": "/workspace/a", "exclusive": true })).await?.refused(409, "exists")?;
    write(client, "/workspace/a/file", "words").await?.must(200)?;
    client.exec("one", "ln -s file /workspace/a/link").await?;
    let listed = client.get(&of("/list", "/workspace")).await?.must(200)?;
    ensure!(paths(&listed) == ["/workspace/a"] && listed["truncated"] == false, "{listed}");
    let deep = client.get(&(of("/list", "/workspace") + "&depth=3")).await?.must(200)?;
    let all = ["/workspace/a", "/workspace/a/b", "/workspace/a/b/c", "/workspace/a/file", "/workspace/a/link"];
    ensure!(paths(&deep) == all, "{deep}");
    let link = client.get(&of("/stat", "/workspace/a/link")).await?.must(200)?;
    ensure!(link["kind"] == "symlink" && link["target"] == "file" && deep["entries"][4] == link, "{link}");
    let some = client.get(&(of("/list", "/workspace") + "&depth=3&limit=2")).await?.must(200)?;
    ensure!(paths(&some) == all[..2] && some["truncated"] == true, "{some}");
    let move_to =
        |from: &str, to: &str, replace: bool| post("move", json!({ "from": from, "to": to, "replace": replace }));
    let moved = move_to("/workspace/a", "/workspace/z", false).await?.must(200)?;
    ensure!(moved["path"] == "/workspace/z", "{moved}");
    write(client, "/workspace/other", "other").await?.must(200)?;
    move_to("/workspace/z/file", "/workspace/other", false).await?.refused(409, "exists")?;
    move_to("/workspace/z/file", "/workspace/other", true).await?.must(200)?;
    ensure!(read(client, "/workspace/other").await?.text() == "words");
    client.delete(&of("", "/workspace/z")).await?.refused(409, "not_empty")?;
    ensure!(client.delete(&(of("", "/workspace/z") + "&recursive=true")).await?.status == 204);
    ensure!(client.delete(&of("", "/workspace/other")).await?.status == 204);
    client.delete(&of("", "/workspace/other")).await?.refused(404, "not_found")?;
    ensure!(paths(&client.get(&of("/list", "/workspace")).await?.must(200)?).is_empty());
    Ok(())
}

async fn a_tree_goes_out_and_in_as_an_archive(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let line = "cd /workspace; mkdir -p t/deep/er; echo words > t/deep/er/file; chmod 750 t/deep; ln -s er/file t/deep/link; \
                head -c 3000000 /dev/urandom > t/noise; : > \"t/a b\"";
    client.exec("one", line).await?;
    let refused = read(client, "/workspace/t").await?.refused(400, "is_directory")?;
    ensure!(refused["hint"].as_str().is_some_and(|hint| hint.contains("archive=tar")), "{refused}");
    let archive = client.get(&(of("", "/workspace/t") + "&archive=tar")).await?;
    ensure!(archive.status == 200 && archive.header("content-type") == "application/x-tar", "{:?}", archive.headers);
    // The server's archives can be unpacked by tar, and the other way round.
    write(client, "/workspace/ours.tar", archive.bytes.clone()).await?.must(200)?;
    client.exec("one", "cd /workspace; mkdir u; tar xf ours.tar -C u; tar cf theirs.tar -C t .").await?;
    let theirs = read(client, "/workspace/theirs.tar").await?.bytes;
    for (path, bytes) in [("/workspace/new/v", archive.bytes), ("/workspace/w", theirs)] {
        let done = upload(client, path, "&archive=tar", bytes).send().await?.must(200)?;
        ensure!(done["bytes"] == 3_000_006 && done["entries"].as_u64().is_some_and(|count| count >= 6), "{done}");
    }
    let same =
        client.exec("one", "cd /workspace; for d in u new/v w; do diff -r t $d && readlink $d/deep/link; done").await?;
    ensure!(same["exit_code"] == 0 && same["stdout"] == "er/file\n".repeat(3), "{same}");
    let file = client.get(&(of("", "/workspace/t/deep/er/file") + "&archive=tar")).await?;
    ensure!(file.status == 200 && file.text().contains("words\n"), "{file:?}");
    upload(client, "/workspace/x", "&archive=tar", "this is not an archive")
        .send()
        .await?
        .refused(400, "bad_archive")?;
    upload(client, "/workspace/x", "&archive=tar&offset=0", "").send().await?.refused(400, "validation_error")?;
    Ok(())
}

async fn a_refusal_names_the_owner_of_a_file_in_a_mounted_directory(door: &mut Door) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can give files away");
    }
    let place = door.server.mounts()?.join("shared");
    std::fs::create_dir_all(place.join("theirs"))?;
    std::fs::write(place.join("file"), "words")?;
    for name in ["file", "theirs"] {
        std::os::unix::fs::chown(place.join(name), Some(4242), Some(4242))?;
    }
    let client = &door.client;
    client.create("one", &json!({ "host_path": place })).await?;
    ensure!(read(client, "/workspace/file").await?.text() == "words", "it can be read by its mode");
    let names = |error: Value| {
        let text = error["message"].as_str().unwrap_or_default().to_owned();
        ensure!(text.contains("user 4242 of the host") && text.contains("chown 0"), "{error}");
        Ok(())
    };
    names(write(client, "/workspace/file", "x").await?.refused(403, "denied")?)?;
    names(write(client, "/workspace/theirs/new", "x").await?.refused(403, "denied")?)?;
    names(client.delete(&of("", "/workspace/file")).await?.refused(403, "denied")?)?;
    ensure!(std::fs::read_to_string(place.join("file"))? == "words");
    Ok(())
}

async fn every_file_error_has_its_status(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({ "read_only_rootfs": true })).await?;
    client.exec("one", "cd /workspace; echo x > f; mkdir d; mkfifo p; ln -s nowhere l; ln -s loop loop").await?;
    for (method, path, status, code) in [
        ("GET", "/workspace/none", 404, "not_found"),
        ("GET", "/workspace/l", 404, "not_found"),
        ("GET", "/workspace/f/x", 400, "not_directory"),
        ("GET", "/workspace/p", 400, "not_regular"),
        ("GET", "/dev/zero", 400, "not_regular"),
        ("GET", "/workspace/loop", 400, "symlink_refused"),
        ("PUT", "/workspace/d", 400, "is_directory"),
        ("PUT", "/usr/bin/evil", 403, "read_only"),
        ("DELETE", "/workspace/none", 404, "not_found"),
    ] {
        let answer = client.request(method, &of("", path)).send().await?;
        ensure!(answer.status == status && answer.json["error"]["code"] == code, "{method} {path}: {answer:?}");
    }
    client.get(&of("/list", "/workspace/f")).await?.refused(400, "not_directory")?;
    client.get(&of("/watch", "/workspace/none")).await?.refused(404, "not_found")?;
    let denied = read(client, "/proc/1/environ").await?;
    ensure!(denied.status == 403 || denied.status == 404, "the agent must stay hidden: {denied:?}");
    ensure!(client.exec("one", "cat /workspace/f").await?["stdout"] == "x\n");
    Ok(())
}

/// Waits for a change of a name.
async fn until(events: &mut Events, name: &str, path: &str) -> Result<Event> {
    loop {
        let event = events.next().await?.with_context(|| format!("the stream ended before {name} {path}"))?;
        if event.name == name && event.data["path"] == path {
            return Ok(event);
        }
        ensure!(event.name != "error" && event.name != "missed", "{event:?}");
    }
}

async fn a_watcher_is_told_what_changes(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    client.exec("one", "mkdir -p /workspace/sub").await?;
    let mut all = Events::open(client.request("GET", &(of("/watch", "/workspace") + "&recursive=true"))).await?;
    let mut top = Events::open(client.request("GET", &of("/watch", "/workspace"))).await?;
    for events in [&mut all, &mut top] {
        ensure!(events.next().await?.is_some_and(|event| event.name == "watching"));
    }
    client.exec("one", "cd /workspace; echo x > sub/file; mkdir new; mv new other").await?;
    until(&mut all, "created", "/workspace/sub/file").await?;
    let made = until(&mut all, "created", "/workspace/new").await?;
    ensure!(made.data["is_directory"] == true, "{made:?}");
    let first = top.next().await?.context("no event")?;
    ensure!(
        first.name == "created" && first.data["path"] == "/workspace/new",
        "what is below does not count: {first:?}"
    );
    until(&mut all, "renamed", "/workspace/other").await?;
    client.exec("one", "cd /workspace; echo y > other/inner; chmod 700 sub/file; rm sub/file").await?;
    until(&mut all, "created", "/workspace/other/inner").await?;
    until(&mut all, "removed", "/workspace/sub/file").await?;
    write(client, "/workspace/api", "from the door").await?.must(200)?;
    // What the door itself does is a change like any other, whichever way the file got there.
    while all.next().await?.context("no event")?.data["path"] != "/workspace/api" {}
    Ok(())
}

async fn watching_ends_with_the_box_and_with_the_server(door: &mut Door) -> Result<()> {
    let client = door.client.clone();
    for ending in ["box", "server"] {
        client.create("one", &json!({})).await?;
        let mut events = Events::open(client.request("GET", &of("/watch", "/workspace"))).await?;
        ensure!(events.next().await?.is_some_and(|event| event.name == "watching"));
        if ending == "box" {
            client.delete("/v1/sessions/one").await?.must(200)?;
        } else {
            // The server does not wait for watchers; otherwise it would take ten seconds.
            ensure!(door.server.sigterm().await?.success());
        }
        let rest = events.rest().await?;
        ensure!(rest.iter().all(|event| event.name == "error" || event.name == "removed"), "{ending}: {rest:?}");
    }
    door.server.launch().await
}

async fn files_are_their_tenants_and_need_their_scope(door: &mut Door) -> Result<()> {
    let token = |name: &str, tenant: &str, scope: &str| {
        door.server.token(&["--name", name, "--tenant", tenant, "--scope", scope])
    };
    let ours = door.client.with_token(&token("ours", "a", "exec,files")?);
    let files = door.client.with_token(&token("files", "a", "files")?);
    let exec = door.client.with_token(&token("exec", "a", "exec")?);
    let theirs = door.client.with_token(&token("theirs", "b", "exec,files")?);
    eventually("the tokens", || async { Ok((theirs.get("/v1/status").await?.status == 200).then_some(())) }).await?;
    ours.create("one", &json!({})).await?;
    write(&files, "/workspace/secret", "words").await?.must(200)?;
    ensure!(read(&files, "/workspace/secret").await?.text() == "words", "who has files needs no exec");
    let post = [("mkdir", json!({ "path": "/workspace/d" })), ("move", json!({ "from": "/a", "to": "/b" }))];
    let mut requests = Vec::new();
    for client in [&exec, &theirs] {
        for (method, what) in
            [("GET", ""), ("PUT", ""), ("DELETE", ""), ("GET", "/stat"), ("GET", "/list"), ("GET", "/watch")]
        {
            requests.push(client.request(method, &of(what, "/workspace/secret")));
        }
        for (what, body) in &post {
            requests.push(client.request("POST", &format!("/v1/sessions/one/files/{what}")).json(body));
        }
    }
    let refused: Vec<_> = futures_util::future::try_join_all(requests.into_iter().map(Request::send)).await?;
    for (number, answer) in refused.into_iter().enumerate() {
        let (status, code) = if number < 8 { (403, "forbidden") } else { (404, "session_not_found") };
        answer.refused(status, code).with_context(|| format!("request {number}"))?;
    }
    ensure!(read(&ours, "/workspace/secret").await?.text() == "words");
    Ok(())
}

async fn files_never_make_a_session(door: &mut Door) -> Result<()> {
    let client = &door.client;
    read(client, "/etc/passwd").await?.refused(404, "session_not_found")?;
    write(client, "/workspace/f", "x").await?.refused(404, "session_not_found")?;
    let body = json!({ "path": "/workspace/d" });
    client.post("/v1/sessions/one/files/mkdir", &body).await?.refused(404, "session_not_found")?;
    ensure!(client.sessions().await?.is_empty());
    Ok(())
}
