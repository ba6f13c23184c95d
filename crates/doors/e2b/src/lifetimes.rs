//! The end of sandboxes: at its time each is removed, or stopped where it is if its maker said so.

use std::sync::Arc;
use std::time::Duration;

use box_core::session::{LeaseEnd, SessionState};
use box_core::store::SandboxRow;
use box_core::tasks::Start as _;
use box_core::{Caller, Error, SessionId};
use box_e2b_wire::SandboxId;
use futures_util::StreamExt;
use jiff::Timestamp;

use super::sandbox_request::caller_of;
use crate::app::App;
use crate::limits;

/// Looks after sandboxes until the server stops.
pub(crate) fn start(app: &App) {
    let app = app.clone();
    app.tasks().clone().start(async move {
        loop {
            let rest = look(&app).await;
            tokio::select! {
                () = app.closing().cancelled() => return,
                () = app.e2b().directory().changed() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    });
}

/// Ends what is to end, and says when to look again.
async fn look(app: &App) -> Duration {
    let all = match app.e2b().directory().all().await {
        Ok(all) => all,
        Err(error) => {
            tracing::error!(%error, "sandboxes cannot be read; none ends until they can");
            return limits::E2B_LOOK_EVERY;
        }
    };
    futures_util::stream::iter(&all).for_each_concurrent(limits::E2B_ENDINGS_MAX, |row| end_if_due(app, row)).await;
    let now = Timestamp::now();
    let next = all.iter().map(|row| row.ends_at).filter(|end| *end > now).min();
    let until = next.and_then(|end| Duration::try_from(end.duration_since(now)).ok());
    until.map_or(limits::E2B_LOOK_EVERY, |until| until.min(limits::E2B_LOOK_EVERY))
}

async fn end_if_due(app: &App, row: &Arc<SandboxRow>) {
    if is_settled(app, row) {
        return;
    }
    // Nobody changes its end meanwhile; who changed it just now is heard.
    let _turn = app.e2b().turns().take(&row.key.tenant, &row.key.id).await;
    let Ok(id) = row.key.id.as_str().parse() else { return };
    let Ok(Some(row)) = app.e2b().directory().find(&id).await else { return };
    if !is_settled(app, &row) {
        end(app, &row).await;
    }
}

/// Whether nothing is to be done about it now.
fn is_settled(app: &App, row: &SandboxRow) -> bool {
    match app.service().session_state(&caller_of(row), &row.key.id) {
        Ok(SessionState::Running) => row.ends_at > Timestamp::now(),
        Ok(SessionState::Lost) | Err(Error::SessionNotFound { .. }) => false,
        Ok(SessionState::Paused | SessionState::Creating | SessionState::Destroying) | Err(_) => true,
    }
}

async fn end(app: &App, row: &SandboxRow) {
    let caller = caller_of(row);
    let is_running = matches!(app.service().session_state(&caller, &row.key.id), Ok(SessionState::Running));
    if is_running && row.auto_pause {
        match app.service().pause_session(&caller, &row.key.id).await {
            Ok(_) => return tracing::info!(session.id = %row.key.id, "a sandbox is stopped at its end"),
            // Trying for ever would make it live for ever.
            Err(error) => {
                tracing::warn!(session.id = %row.key.id, %error, "a sandbox cannot be stopped and is removed instead");
            }
        }
    }
    if let Err(error) = end_if_there(app, &caller, &row.key.id).await {
        return tracing::error!(session.id = %row.key.id, %error, "a sandbox cannot be removed at its end");
    }
    if let Err(error) = app.e2b().directory().forget(&row.key).await {
        tracing::error!(session.id = %row.key.id, %error, "a sandbox cannot be forgotten");
    }
}

/// When the box of a sandbox ends itself if no server is there to end it. One that is to be stopped at its end waits for a server:
/// what it holds was meant to be kept.
pub(super) fn lease_end(row: &SandboxRow) -> LeaseEnd {
    if row.auto_pause { LeaseEnd::Never } else { LeaseEnd::At(row.ends_at) }
}

/// Changes when a sandbox ends, for the server and for its box. Nothing if the sandbox is not there any more.
pub(super) async fn change_end(
    app: &App,
    id: &SandboxId,
    change: impl FnOnce(&mut SandboxRow) + Send,
) -> Result<Option<Arc<SandboxRow>>, Error> {
    let Some(row) = app.e2b().directory().change(id, change).await? else { return Ok(None) };
    app.service().set_lease_end(&caller_of(&row), &row.key.id, lease_end(&row)).await?;
    Ok(Some(row))
}

/// Ends a session; one that is not there has ended.
pub(super) async fn end_if_there(app: &App, caller: &Caller, session: &SessionId) -> Result<(), Error> {
    match app.service().delete_session(caller, session).await {
        Ok(()) | Err(Error::SessionNotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
