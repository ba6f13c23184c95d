//! Two servers on one machine.

use std::sync::Arc;

use anyhow::{Result, ensure};
use box_tests::restart_server::{StateDirectory, boxes_on_file};
use serde_json::json;

/// On one state directory the second is refused with the reason, and touches nothing.
pub(crate) async fn a_second_server_is_refused(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    server.client.exec("a", "echo kept > /workspace/f").await?;
    let process = server.client.start_process("a", "p", "sleep 1000").await?;
    let before = boxes_on_file(&place.state());
    let refused = place.command("serve").args(["--listen", "127.0.0.1:0"]).output().await?;
    let told = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(125), "{}: {told}", refused.status);
    ensure!(told.contains("another server runs on the state directory"), "{told}");
    ensure!(boxes_on_file(&place.state()) == before, "boxes differ");
    ensure!(server.client.process("a", "p").await?["pid"] == process["pid"], "the process was touched");
    ensure!(server.client.said("a", "cat /workspace/f").await? == "kept", "the box was touched");
    server.kill().await
}

/// On two state directories neither sees or removes anything of the other, not even when it starts after a kill.
pub(crate) async fn two_servers_keep_to_themselves() -> Result<()> {
    let mut first = StateDirectory::fresh().await?;
    let second = StateDirectory::fresh().await?;
    first.note();
    let outcome = side_by_side(&first, &second).await;
    let ended = first.end().await.and(second.end().await);
    outcome.and(ended)?;
    first.settled().await?;
    second.settled().await
}

async fn side_by_side(first: &StateDirectory, second: &StateDirectory) -> Result<()> {
    let (one, two) = (first.start().await?, second.start().await?);
    for (client, text) in [(&one.client, "one"), (&two.client, "two")] {
        client.exec("same", &format!("echo {text} > /workspace/f")).await?;
    }
    let ids = (one.client.session("same").await?, two.client.session("same").await?);
    one.kill().await?;
    let one = first.start().await?;
    two.kill().await?;
    // What the first does while the second is dead must not reach the second's boxes either.
    one.client.create("more", &json!({})).await?;
    one.kill().await?;
    let one = first.start().await?;
    let two = second.start().await?;
    for (client, text, id) in [(&one.client, "one", &ids.0), (&two.client, "two", &ids.1)] {
        ensure!(client.said("same", "cat /workspace/f").await? == text, "{text} has other files");
        let same = client.session("same").await?["backend_session_id"] == id["backend_session_id"];
        ensure!(same, "{text} has another box");
    }
    one.kill().await?;
    two.kill().await
}
