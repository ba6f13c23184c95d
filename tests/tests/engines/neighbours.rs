//! Several servers on one engine.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_core::Backend;
use box_host::InstanceKind;

use crate::maker::Maker;
use crate::site::Site;

/// Boxes of each server.
const BOXES: usize = 2;

/// Each sees its own boxes alone, also when the other starts or stops beside it, and when both call themselves the same.
pub(crate) async fn two_servers_keep_to_themselves(site: Arc<Site>) -> Result<()> {
    let (here, there) = (site.state()?, site.state()?);
    let mut first = Maker::start(&site, &here, Some("same"), BOXES, &[]).await.context("the first server")?;
    let mut second = Maker::start(&site, &there, Some("same"), BOXES, &[]).await.context("the second server")?;
    first.is_whole().await.context("the first, after the second has started")?;
    second.is_whole().await?;
    let kept = second.handles.clone();
    second.stop().await?;
    let mut third = Maker::start(&site, &site.state()?, None, BOXES, &[]).await.context("a third server")?;
    first.is_whole().await.context("the first, after the second has stopped and a third has started")?;
    third.is_whole().await?;
    third.stop().await?;
    let mut second = Maker::start(&site, &there, Some("same"), 0, &kept).await.context("the second once more")?;
    second.is_whole().await?;
    second.stop().await?;
    first.is_whole().await.context("the first, at the end")?;
    first.stop().await?;
    for state in [here, there] {
        end_all(&site, &state, "same", BOXES).await?;
    }
    Ok(())
}

/// What a killed server would not find again is removed by the next start of any server; what it would find stays.
pub(crate) async fn a_killed_server_loses_only_what_dies_with_it(site: Arc<Site>) -> Result<()> {
    let (passing, lasting) = (site.state()?, site.state()?);
    let ephemeral = Maker::start(&site, &passing, None, BOXES, &[]).await?;
    let persistent = Maker::start(&site, &lasting, Some("lasting"), BOXES, &[]).await?;
    let mut living = Maker::start(&site, &site.state()?, None, BOXES, &[]).await?;
    let (doomed, kept) = (ephemeral.kill().await?, persistent.kill().await?);
    // No server has started since, so nothing can have been removed yet; otherwise the removal below would prove
    // nothing.
    ensure!(site.has(&doomed)?.into_iter().chain(site.has(&kept)?).all(|has| has), "a container went with its maker");
    let anybody = Maker::start(&site, &site.state()?, None, 1, &[]).await.context("the start of another server")?;
    ensure!(!site.has(&doomed)?.into_iter().any(|has| has), "a container of a dead server stays");
    ensure!(site.has(&kept)?.into_iter().all(|has| has), "a container of a server that will be back was removed");
    living.is_whole().await.context("a server that lives")?;
    site.stranger_is_there()?;
    anybody.stop().await?;
    living.stop().await?;
    let mut back = Maker::start(&site, &lasting, Some("lasting"), 0, &kept).await.context("the server that is back")?;
    back.is_whole().await?;
    back.stop().await?;
    end_all(&site, &lasting, "lasting", BOXES).await?;
    // What is on file of the dead one is removed by the next start on the same state.
    site.open(&passing, InstanceKind::Ephemeral).await?.close().await;
    Ok(())
}

/// Ends the boxes of an instance, of which there must be so many.
async fn end_all(site: &Site, state: &std::path::Path, instance: &str, count: usize) -> Result<()> {
    let engine = site.open(state, InstanceKind::Persistent(instance.to_owned())).await?;
    let known = engine.list_orphans().await?;
    ensure!(known.len() == count, "{} boxes of {instance}, not {count}", known.len());
    for handle in known {
        engine.destroy(&handle).await?;
    }
    engine.close().await;
    Ok(())
}
