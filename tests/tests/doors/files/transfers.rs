//! Bytes in and out.

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{of, read, upload, write};
use crate::{Door, DoorCase, cases, eventually};

pub(super) fn cases() -> Vec<DoorCase> {
    cases![
        a_file_goes_in_and_comes_out_as_it_was,
        large_files_cost_the_server_nothing,
        a_part_is_read_by_range_and_a_download_is_resumed,
        an_upload_is_resumed_in_place,
        who_hangs_up_in_the_middle_leaves_nothing,
        a_download_that_cannot_be_completed_breaks_off,
        what_is_too_large_is_refused_before_it_is_sent,
        what_does_not_fit_the_disk_is_told,
    ]
}

/// How much the server may grow.
const GROWTH_KB_MAX: u64 = 32 << 10;

/// Bytes of which no part looks like another.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}

async fn a_file_goes_in_and_comes_out_as_it_was(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    for size in [0, 1, 4096, 1_000_003] {
        let bytes = noise(size);
        let entry = write(client, "/workspace/file", bytes.clone()).await?.must(200)?;
        ensure!(entry["size"] == size && entry["kind"] == "file" && entry["path"] == "/workspace/file", "{entry}");
        let back = read(client, "/workspace/file").await?;
        ensure!(back.status == 200 && back.bytes == bytes, "{} of {size} bytes", back.bytes.len());
        ensure!(back.header("content-type") == "application/octet-stream", "{:?}", back.headers);
        ensure!(back.header("content-length") == size.to_string() && back.header("accept-ranges") == "bytes");
        let head = client.request("HEAD", &of("", "/workspace/file")).send().await?;
        ensure!(head.status == 200 && head.bytes.is_empty() && head.header("content-length") == size.to_string());
        ensure!(!head.header("etag").is_empty() && head.header("etag") == back.header("etag"), "{:?}", head.headers);
        let seen = client.exec("one", "wc -c < /workspace/file").await?;
        ensure!(seen["stdout"] == format!("{size}\n"), "{seen}");
    }
    let script = upload(client, "/workspace/run", "&mode=0755", "#!/bin/sh\necho ran\n").send().await?.must(200)?;
    ensure!(script["mode"] == "0755", "{script}");
    ensure!(client.exec("one", "/workspace/run").await?["stdout"] == "ran\n");
    ensure!(read(client, "/workspace/run").await?.header("strongbox-mode") == "0755");
    upload(client, "/workspace/run", "&create=true", "x").send().await?.refused(409, "exists")?;
    upload(client, "/workspace/new", "&create=true", "x").send().await?.must(201)?;
    ensure!(client.exec("one", "cat /workspace/run").await?["stdout"] == "#!/bin/sh\necho ran\n", "it is untouched");
    let proc = read(client, "/proc/self/status").await?;
    ensure!(proc.status == 200 && proc.text().contains("Uid:"), "a file that says it is empty: {proc:?}");
    Ok(())
}

async fn large_files_cost_the_server_nothing(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let bytes = noise(96 << 20);
    let before = door.server.resident_kb()?;
    let entry = write(client, "/workspace/large", bytes.clone()).await?.must(200)?;
    ensure!(entry["size"] == bytes.len(), "{entry}");
    let back = read(client, "/workspace/large").await?;
    ensure!(back.bytes == bytes, "{} of {} bytes", back.bytes.len(), bytes.len());
    // Those who open a download and never read it.
    let mut idle = Vec::new();
    for _ in 0..10 {
        idle.push(client.request("GET", &of("", "/workspace/large")).open().await?);
    }
    ensure!(client.exec("one", "echo on").await?["stdout"] == "on\n");
    let grown = door.server.resident_kb()?.saturating_sub(before);
    ensure!(grown < GROWTH_KB_MAX, "the server grew by {grown} kB");
    ensure!(idle.len() == 10);
    Ok(())
}

async fn a_part_is_read_by_range_and_a_download_is_resumed(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let bytes = noise(200_000);
    write(client, "/workspace/f", bytes.clone()).await?.must(200)?;
    let part = |range: &str| client.request("GET", &of("", "/workspace/f")).header("range", range);
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=10-19", 10..20),
        ("bytes=199990-", 199_990..200_000),
        ("bytes=-5", 199_995..200_000),
        ("bytes=199999-300000", 199_999..200_000),
        ("bytes=0-", 0..200_000),
    ] {
        let answer = part(range).send().await?;
        ensure!(answer.status == 206 && answer.bytes == bytes[expected.clone()], "{range}: {}", answer.status);
        let told = format!("bytes {}-{}/200000", expected.start, expected.end - 1);
        ensure!(answer.header("content-range") == told, "{range}: {}", answer.header("content-range"));
    }
    let nothing = part("bytes=200000-").send().await?;
    ensure!(nothing.header("content-range") == "bytes */200000", "{:?}", nothing.headers);
    nothing.refused(416, "range_not_satisfiable")?;
    part("bytes=0-1,5-6").send().await?.refused(400, "validation_error")?;
    // A partial download continues while the file is the same, and starts over when it has changed.
    let tag = part("bytes=0-99999").send().await?.header("etag").to_owned();
    let rest = part("bytes=100000-").header("if-range", &tag).send().await?;
    ensure!(rest.status == 206 && rest.bytes == bytes[100_000..], "{}", rest.status);
    let other = noise(150_000);
    write(client, "/workspace/f", other.clone()).await?.must(200)?;
    let whole = part("bytes=100000-").header("if-range", &tag).send().await?;
    ensure!(whole.status == 200 && whole.bytes == other && whole.header("etag") != tag, "{}", whole.status);
    Ok(())
}

async fn an_upload_is_resumed_in_place(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let (bytes, path) = (noise(300_000), "/workspace/f");
    upload(client, path, "&offset=0", &bytes[..100_000]).send().await?.must(200)?;
    // The client sends half of the rest and vanishes.
    let head =
        format!("PUT {}&offset=100000 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n", of("", path));
    let mut broken = TcpStream::connect(door.server.address()?).await?;
    broken.write_all(head.as_bytes()).await?;
    broken.write_all(&bytes[100_000..200_000]).await?;
    let size = || async { client.get(&of("/stat", path)).await?.must(200)?["size"].as_u64().context("no size") };
    eventually("some of the rest", || async { Ok((size().await? > 100_000).then_some(())) }).await?;
    drop(broken);
    // To continue, a client asks for the size.
    let there = usize::try_from(size().await?)?;
    ensure!((100_001..=200_000).contains(&there), "{there}");
    let more = format!("&offset={there}");
    let entry = eventually("the rest", || async {
        let answer = upload(client, path, &more, &bytes[there..]).send().await?;
        Ok((answer.status == 200).then_some(answer.json))
    })
    .await?;
    ensure!(entry["size"] == 300_000, "{entry}");
    ensure!(read(client, path).await?.bytes == bytes);
    let behind = upload(client, path, "&offset=300001", "x").send().await?;
    ensure!(behind.status == 413 || behind.status == 400, "{behind:?}");
    upload(client, path, "&offset=0&create=true", "x").send().await?.refused(400, "validation_error")?;
    Ok(())
}

async fn who_hangs_up_in_the_middle_leaves_nothing(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    write(client, "/workspace/old", "old").await?.must(200)?;
    for (path, kind) in
        [("/workspace/old", "Content-Length: 1000000"), ("/workspace/new", "Transfer-Encoding: chunked")]
    {
        let mut stream = TcpStream::connect(door.server.address()?).await?;
        let head = format!("PUT {} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n", of("", path));
        stream.write_all(head.as_bytes()).await?;
        if kind.contains("chunked") {
            stream.write_all(b"10000\r\n").await?;
        }
        stream.write_all(&noise(65_536)).await?;
        // After another command to the same box it is on its way there.
        client.exec("one", "true").await?;
        drop(stream);
    }
    eventually("a directory without leftovers", || async {
        let listed = client.get(&of("/list", "/workspace")).await?.must(200)?;
        let names: Vec<_> =
            listed["entries"].as_array().context("no list")?.iter().map(|it| it["path"].clone()).collect();
        Ok((names == [json!("/workspace/old")]).then_some(()))
    })
    .await?;
    ensure!(read(client, "/workspace/old").await?.text() == "old");
    Ok(())
}

async fn a_download_that_cannot_be_completed_breaks_off(door: &mut Door) -> Result<()> {
    let client = &door.client;
    for more in ["", "&archive=tar"] {
        client.create("one", &json!({})).await?;
        client.exec("one", "head -c 100000000 /dev/zero > /workspace/f").await?;
        let mut response = client.request("GET", &(of("", "/workspace/f") + more)).open().await?;
        ensure!(response.status() == 200);
        response.body_mut().frame().await.context("no bytes")??;
        client.delete("/v1/sessions/one").await?.must(200)?;
        let rest = response.into_body().collect().await;
        ensure!(rest.is_err(), "the end of the box was taken for the end of the file: {more:?}");
    }
    Ok(())
}

async fn what_is_too_large_is_refused_before_it_is_sent(door: &mut Door) -> Result<()> {
    door.client.create("one", &json!({})).await?;
    let mut stream = TcpStream::connect(door.server.address()?).await?;
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000000\r\nExpect: 100-continue\r\n\r\n",
        of("", "/workspace/f")
    );
    stream.write_all(head.as_bytes()).await?;
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    ensure!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    read(&door.client, "/workspace/f").await?.refused(404, "not_found")?;
    Ok(())
}

async fn what_does_not_fit_the_disk_is_told(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({ "workspace_quota_mb": 32 })).await?;
    write(client, "/workspace/f", "old").await?.must(200)?;
    let full = write(client, "/workspace/f", noise(80 << 20)).await?;
    ensure!(full.status == 507, "{full:?}");
    eventually("room again", || async {
        let answer = write(client, "/workspace/other", "x").await?;
        Ok((answer.status == 200).then_some(()))
    })
    .await?;
    ensure!(read(client, "/workspace/f").await?.text() == "old", "it is replaced when all is there, and not before");
    Ok(())
}
