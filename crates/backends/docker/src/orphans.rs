//! Orphaned containers: those of dead instances are removed at startup, all others stay.

use std::collections::HashMap;
use std::path::Path;

use box_core::{Error, Result};
use box_host::instance::{self, Instance};
use box_host::record;
use futures_util::StreamExt;

use crate::client::Client;
use crate::destroy;
use crate::labels::{self, Identity};
use crate::models::ContainerSummary;
use crate::record::Record;

/// Containers that are removed at the same time.
const REMOVALS_AT_ONCE: usize = 8;

/// What to do with a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Another program made it, its instance lives, or that cannot be determined.
    Leave,
    /// It is of this instance: removed unless a record names it.
    Own,
    /// Its instance is dead.
    Dead,
    /// An older version made it, without a label for the instance.
    Unclaimed,
}

/// Removes, in one batch, containers of dead instances and older versions, and those of this instance without a record.
pub(crate) async fn sweep(client: &Client, identity: &Identity, instance: &Instance) -> Result<()> {
    let records: Vec<Record> =
        instance.list().iter().filter_map(|id| record::read::<Record>(instance.open_box(id).ok()?)).collect();
    let mut doomed = Vec::new();
    for container in list_or_mend(client, &records).await? {
        let labels = container.labels.clone().unwrap_or_default();
        let verdict = verdict(&labels, &names(&container), identity, instance::is_dead);
        let remove = match verdict {
            Verdict::Leave => false,
            Verdict::Own => !is_recorded(&container, &records),
            Verdict::Dead | Verdict::Unclaimed => true,
        };
        if let (true, Some(id)) = (remove, container.id) {
            tracing::info!(container.id = %id, reason = ?verdict, "removing orphaned container");
            doomed.push(id);
        }
    }
    // By value: a future that borrowed each name could not be sent to another thread, as far as the compiler sees.
    let removals = doomed.into_iter().map(|id| async move {
        let removed = destroy::remove(client, &id).await;
        (id, removed)
    });
    let mut removals = futures_util::stream::iter(removals).buffer_unordered(REMOVALS_AT_ONCE);
    while let Some((id, removed)) = removals.next().await {
        if let Err(error) = removed {
            tracing::warn!(container.id = %id, error = %error, "a container cannot be removed yet");
        }
    }
    Ok(())
}

/// Lists containers, if necessary after removing those of dead boxes. Podman refuses to list anything while it has a
/// container whose removal was interrupted by a kill. If that container is not recorded here, listing keeps failing;
/// then orphans stay until another start, and the backend starts anyway.
async fn list_or_mend(client: &Client, records: &[Record]) -> Result<Vec<ContainerSummary>> {
    let refused = match list(client).await {
        Err(error @ Error::Setup { .. }) => error,
        listed => return listed,
    };
    tracing::warn!(error = %refused, "the engine refuses to list its containers; those of dead boxes are removed first");
    let is_dead = |record: &&Record| record.agent.is_none_or(|agent| agent.open().is_none());
    for container in records.iter().filter(is_dead).filter_map(|record| record.container.as_ref()) {
        if let Err(error) = destroy::remove(client, container).await {
            tracing::warn!(container.id = %container, error = %error, "a container cannot be removed yet");
        }
    }
    match list(client).await {
        Err(error @ Error::Setup { .. }) => {
            tracing::warn!(error = %error, "the engine refuses to list its containers; orphaned ones stay");
            Ok(Vec::new())
        }
        listed => listed,
    }
}

/// Every container with a label of this server, running or not.
async fn list(client: &Client) -> Result<Vec<ContainerSummary>> {
    let mut all: HashMap<String, ContainerSummary> = HashMap::new();
    for label in [labels::MARK, labels::BOX] {
        // {"label":["LABEL"]}, encoded for a query. Our labels need no encoding.
        let filters = format!("%7B%22label%22%3A%5B%22{label}%22%5D%7D");
        let listed = client.get::<Vec<ContainerSummary>>(&format!("/containers/json?all=true&filters={filters}")).await;
        let listed = listed.map_err(|error| client.explain("orphans", &error))?;
        all.extend(listed.into_iter().filter_map(|container| Some((container.id.clone()?, container))));
    }
    Ok(all.into_values().collect())
}

fn names(container: &ContainerSummary) -> Vec<String> {
    let bare = |name: &String| name.trim_start_matches('/').to_owned();
    container.names.iter().flatten().map(bare).collect()
}

fn is_recorded(container: &ContainerSummary, records: &[Record]) -> bool {
    let names = names(container);
    records.iter().any(|record| match &record.container {
        Some(id) => Some(id) == container.id.as_ref(),
        None => names.contains(&record.container_name),
    })
}

fn verdict(
    labels: &HashMap<String, String>,
    names: &[String],
    identity: &Identity,
    is_dead: impl Fn(&str, &Path) -> bool,
) -> Verdict {
    let label = |key: &str| labels.get(key).map(String::as_str);
    let has_our_name = names.iter().any(|name| name.starts_with(labels::NAME_PREFIX));
    let is_marked = label(labels::BOX).is_some() || label(labels::MARK) == Some("1") && has_our_name;
    if !is_marked {
        return Verdict::Leave;
    }
    let Some(instance) = label(labels::INSTANCE) else { return Verdict::Unclaimed };
    if identity.owns(labels) {
        return Verdict::Own;
    }
    // A lease of another machine says nothing here: its path may mean another file.
    let lease = label(labels::LEASE).map(Path::new).filter(|path| path.is_absolute());
    match lease {
        Some(lease) if label(labels::HOST) == Some(&identity.host) && is_dead(instance, lease) => Verdict::Dead,
        _ => Verdict::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(instance: &str, host: &str) -> Identity {
        Identity { instance: instance.into(), lease: format!("/run/{instance}/lock"), host: host.into() }
    }

    fn judge(labels: &HashMap<String, String>, name: &str) -> Verdict {
        let dead = |instance: &str, lease: &Path| instance == "dead" && lease == Path::new("/run/dead/lock");
        verdict(labels, &[name.to_owned()], &identity("main", "here"), dead)
    }

    #[test]
    fn only_boxes_of_the_dead_and_of_older_versions_are_removed() {
        let id = "b".parse().unwrap();
        let of = |instance: &str, host: &str| identity(instance, host).labels(&id, None, "h");
        let table = [
            (of("main", "here"), "strongbox-b", Verdict::Own),
            (of("dead", "here"), "strongbox-b", Verdict::Dead),
            (of("dead", "elsewhere"), "strongbox-b", Verdict::Leave),
            (of("alive", "here"), "strongbox-b", Verdict::Leave),
            (of("main", "elsewhere"), "strongbox-b", Verdict::Leave),
            (HashMap::new(), "strongbox-b", Verdict::Leave),
        ];
        for (labels, name, expected) in table {
            assert_eq!(judge(&labels, name), expected, "{labels:?}");
        }
        let one = |key: &str, value: &str| HashMap::from([(key.to_owned(), value.to_owned())]);
        assert_eq!(judge(&one(labels::BOX, "b"), "anything"), Verdict::Unclaimed);
        assert_eq!(judge(&one(labels::MARK, "1"), "strongbox-b"), Verdict::Unclaimed);
        assert_eq!(judge(&one(labels::MARK, "1"), "strongboxes"), Verdict::Leave, "another's name");
        assert_eq!(judge(&one(labels::MARK, "2"), "strongbox-b"), Verdict::Leave, "another's label");
        let mut relative = of("dead", "here");
        relative.insert(labels::LEASE.to_owned(), "lock".to_owned());
        assert_eq!(judge(&relative, "strongbox-b"), Verdict::Leave);
    }
}
