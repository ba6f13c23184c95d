//! Ends a box and removes everything that existed because of it, whatever state it was left in.

use std::os::fd::OwnedFd;
use std::time::Duration;

use bollard::query_parameters::RemoveContainerOptions;
use box_core::{Error, Result};
use box_host::instance::Remains;
use box_host::process::Process;
use box_host::{journal, record};
use rustix::process::Signal;

use crate::client::{Client, setup, status};
use crate::labels::Identity;
use crate::live::{Link, LiveBox};
use crate::record::Record;
use crate::{fault, labels};

/// How long a container that another process is removing may take to be gone.
const REMOVAL_WAIT: Duration = Duration::from_secs(20);
/// Pause between checks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The directories with traces of boxes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) client: &'a Client,
    pub(crate) disks: &'a OwnedFd,
    pub(crate) journals: &'a OwnedFd,
}

/// Ends a box and removes what its record names. Only the box's directory is left, for the caller.
pub(crate) async fn dismantle(
    record: &Record,
    owner: &Owner<'_>,
    live: Option<&LiveBox>,
    places: &Places<'_>,
) -> Result<()> {
    kill(record, live);
    fault::point("engine_killed");
    match (&record.container, owner) {
        (Some(container), _) => remove(places.client, container).await?,
        // It died between asking for the container and writing down what it is called: it is found by its name, and by
        // who says to have made it.
        (None, owner) => remove_by_name(places.client, &record.container_name, owner).await?,
    }
    fault::point("engine_container_removed");
    let name = format!("{}.{}", owner.instance(), record.id);
    journal::remove(places.disks, &name)?;
    journal::remove(places.journals, &name)?;
    fault::point("engine_storage_removed");
    Ok(())
}

/// The owner of a box.
#[derive(Debug)]
pub(crate) enum Owner<'a> {
    /// This instance.
    Ourselves(&'a Identity),
    /// An instance of this state directory that died, and whose lease we hold.
    Dead(&'a str),
}

impl Owner<'_> {
    fn instance(&self) -> &str {
        match self {
            Self::Ourselves(identity) => &identity.instance,
            Self::Dead(name) => name,
        }
    }
}

/// Removes everything that a dead instance left. A failed removal is logged and left for the next start.
pub(crate) async fn sweep(remains: Remains, places: &Places<'_>) {
    let name = remains.name.clone();
    for id in remains.list() {
        let record = remains.open_box(&id).and_then(record::read::<Record>);
        let dismantled = match &record {
            Some(record) => dismantle(record, &Owner::Dead(&name), None, places).await,
            None => Ok(()),
        };
        if let Err(error) = dismantled.and_then(|()| remains.remove_box(&id)) {
            tracing::warn!(instance.name = %name, r#box.id = %id, error = %error, "remains of a box cannot be removed yet");
        }
    }
    remains.clear();
}

/// Kills the first process, which takes all others of the container with it; the engine may be gone and this works all the same.
fn kill(record: &Record, live: Option<&LiveBox>) {
    let known = live.and_then(|live| match &live.link {
        Link::Shared { pidfd, .. } => Some(pidfd),
        Link::Remote => None,
    });
    let opened = if known.is_none() { record.agent.and_then(Process::open) } else { None };
    if let Some(pidfd) = known.or(opened.as_ref()) {
        // It may be frozen, or gone; the engine knows how to deal with either.
        let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
    }
}

/// Removes a container, running or not, and waits until it is gone.
pub(crate) async fn remove(client: &Client, container: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + REMOVAL_WAIT;
    loop {
        let options = RemoveContainerOptions { force: true, v: true, link: false };
        let error = match client.docker.remove_container(container, Some(options)).await {
            Ok(()) => return Ok(()),
            Err(error) if status(&error) == Some(404) => return Ok(()),
            Err(error) => error,
        };
        // Another process removes it already, or an earlier kill is still stopping it.
        let is_busy = matches!(status(&error), Some(409 | 500));
        if !is_busy || tokio::time::Instant::now() >= deadline {
            return Err(client.explain("remove", &error));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn remove_by_name(client: &Client, name: &str, owner: &Owner<'_>) -> Result<()> {
    let inspected = match client.inspect_container(name).await {
        Ok(inspected) => inspected,
        Err(error) if status(&error) == Some(404) => return Ok(()),
        Err(error) => return Err(client.explain("remove", &error)),
    };
    let labels = inspected.config.and_then(|config| config.labels).unwrap_or_default();
    let is_theirs = match owner {
        Owner::Ourselves(identity) => identity.owns(&labels),
        Owner::Dead(name) => labels.get(labels::INSTANCE).is_some_and(|label| label == name),
    };
    match inspected.id {
        Some(id) if is_theirs => remove(client, &id).await,
        // A name is not proof of ownership: this container belongs to another program, and the create request made
        // none.
        Some(_) => Ok(()),
        None => Err(setup("remove", &format!("the engine does not say what {name} is"))),
    }
}

/// The error for a box that is gone.
pub(crate) fn gone(reason: &str) -> Error {
    Error::Gone { reason: reason.to_owned() }
}
