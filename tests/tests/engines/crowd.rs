//! Many boxes of one engine at the same time.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_host::InstanceKind;
use tokio::task::JoinSet;

use crate::site::{self, Site};

/// How many.
const BOXES: usize = 30;

/// All are asked for at once, all live at once and answer, and all are removed at once.
pub(crate) async fn thirty_boxes_at_once(site: Arc<Site>) -> Result<()> {
    let engine = Arc::new(site.open(&site.state()?, InstanceKind::Ephemeral).await?);
    let mut makers = JoinSet::new();
    for number in 0..BOXES {
        let (site, engine) = (Arc::clone(&site), Arc::clone(&engine));
        makers.spawn(async move { site.make(&engine).await.with_context(|| format!("box {number}")) });
    }
    let boxes = makers.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    let handles: Vec<_> = boxes.iter().map(|one| one.handle.clone()).collect();
    ensure!(site.has(&handles)?.into_iter().all(|has| has), "a box has no container");
    let mut askers = JoinSet::new();
    for one in boxes.clone() {
        askers.spawn(async move { site::is_whole(&one).await });
    }
    askers.join_all().await.into_iter().collect::<Result<()>>()?;
    let mut enders = JoinSet::new();
    for one in boxes {
        enders.spawn(async move { one.destroy().await.with_context(|| format!("ending {}", one.handle.id)) });
    }
    enders.join_all().await.into_iter().collect::<Result<()>>()?;
    ensure!(!site.has(&handles)?.into_iter().any(|has| has), "a container outlived its box");
    site::close(engine).await
}
