//! A server whose engine shares no files with it, as one of another machine would not.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_tests::server::{ServerOptions, TestServer};
use box_tests::{engines, eventually, http};
use tokio::net::{TcpListener, UnixStream};

use crate::site::Site;

/// Sessions last there too: what commands write is kept in their box, and found again by the next server.
pub(crate) async fn sessions_on_an_engine_far_away(site: Arc<Site>) -> Result<()> {
    let (backend, address) = (site.daemon.backend(), forward(&site.daemon.address()).await?);
    let config = format!(
        "backend = \"{backend}\"\n[{backend}]\naddress = \"{address}\"\nimage = \"{}\"\npull = \"never\"\n",
        engines::image()
    );
    let mut server = TestServer::start_with(ServerOptions::configured(&config)).await?;
    let client = server.client()?;
    let done = client.exec("far", "echo said; echo wrong >&2; exit 3").await?;
    ensure!((&done["stdout"], &done["stderr"]) == (&"said\n".into(), &"wrong\n".into()), "{done}");
    ensure!(done["exit_code"] == 3 && done["backend_name"] == backend.as_str(), "{done}");
    let long = client.exec("far", "seq 1 300000").await?;
    ensure!(long["stdout_truncated"] == true && long["exit_code"] == 0, "{long}");
    let exec = long["exec_id"].as_str().context("an exec without an id")?;
    let part = client.get(&format!("/v1/sessions/far/execs/{exec}/output?from=1988881&max=14")).await?;
    ensure!(part.text() == "299999\n300000\n", "{part:?}");
    let waiting = client.start("far", "echo before; while [ ! -e go ]; do sleep 0.1; done; echo after").await?;
    said(&client, &waiting, "before\n").await?;
    server.restart().await?;
    let client = server.client()?;
    client.exec("far", "touch go").await?;
    let done = client.get(&format!("/v1/sessions/far/execs/{waiting}/result")).await?.must(200)?;
    ensure!(done["stdout"] == "before\nafter\n", "{done}");
    let again = client.get(&format!("/v1/sessions/far/execs/{exec}/output?max=4")).await?;
    ensure!(again.text() == "1\n2\n", "what was written before the restart is lost: {again:?}");
    client.delete("/v1/sessions/far").await?.must(200)?;
    server.finish().await
}

/// Waits until a command has written this.
async fn said(client: &http::Client, exec: &str, text: &str) -> Result<()> {
    let path = format!("/v1/sessions/far/execs/{exec}/output");
    eventually(&format!("{text:?}"), || async { Ok((client.get(&path).await?.text() == text).then_some(())) }).await
}

/// A TCP address that leads to the engine.
async fn forward(address: &str) -> Result<String> {
    let socket = address.strip_prefix("unix://").context("the engine listens at a socket")?.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("tcp://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            let socket = socket.clone();
            tokio::spawn(async move {
                let mut to = UnixStream::connect(socket).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    Ok(address)
}
