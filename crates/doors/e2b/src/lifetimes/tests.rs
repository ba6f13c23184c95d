//! Ends, with boxes that do nothing.

use std::sync::atomic::Ordering;

use box_core::{Caller, Store};

use super::*;
use crate::testing::{Still, app, make, row, service};
use door_http::testing::MemoryStore;

async fn world(backend: Arc<Still>) -> (App, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    (app(service(backend, Arc::clone(&store)).await, Arc::clone(&store)), store)
}

fn due(name: &str) -> SandboxRow {
    SandboxRow { ends_at: Timestamp::UNIX_EPOCH, ..row(name) }
}

async fn names(app: &App) -> Vec<(String, Option<SessionState>)> {
    let mut all = app.e2b().directory().all().await.unwrap();
    all.sort_by(|one, other| one.key.id.cmp(&other.key.id));
    let state = |row: &SandboxRow| app.service().session_state(&Caller::local(), &row.key.id).ok();
    all.iter().map(|row| (row.key.id.to_string(), state(row))).collect()
}

#[tokio::test]
async fn a_sandbox_ends_at_its_time_and_not_before() {
    let (app, store) = world(Arc::default()).await;
    for row in [due("a"), SandboxRow { auto_pause: true, ..due("b") }, row("c")] {
        make(&app, row).await;
    }
    assert_eq!(look(&app).await, limits::E2B_LOOK_EVERY);
    let expected = [("b".to_owned(), Some(SessionState::Paused)), ("c".to_owned(), Some(SessionState::Running))];
    assert_eq!(names(&app).await, expected);
    assert!(!app.service().has_session(&Caller::local(), &"a".parse().unwrap()).unwrap());
    assert_eq!(store.sandboxes().await.unwrap().len(), 2, "and is forgotten");
    look(&app).await;
    assert_eq!(names(&app).await, expected, "what is stopped stays");
}

#[tokio::test]
async fn what_cannot_be_stopped_is_removed() {
    let backend = Arc::new(Still::default());
    backend.is_restless.store(true, Ordering::Relaxed);
    let (app, _) = world(backend).await;
    make(&app, SandboxRow { auto_pause: true, ..due("a") }).await;
    look(&app).await;
    assert_eq!(names(&app).await, []);
}

#[tokio::test]
async fn what_others_removed_is_forgotten() {
    let (app, _) = world(Arc::default()).await;
    make(&app, row("a")).await;
    app.service().delete_session(&Caller::local(), &"a".parse().unwrap()).await.unwrap();
    look(&app).await;
    assert_eq!(names(&app).await, []);
}

#[tokio::test]
async fn the_next_look_is_when_the_next_one_ends() {
    let (app, _) = world(Arc::default()).await;
    let after = |milliseconds| Timestamp::now() + jiff::SignedDuration::from_millis(milliseconds);
    let soon = after(700);
    make(&app, SandboxRow { ends_at: soon, ..row("a") }).await;
    // On a busy machine the first may have ended by now; the second has not.
    make(&app, SandboxRow { ends_at: after(4500), ..row("b") }).await;
    assert!(look(&app).await < limits::E2B_LOOK_EVERY);
    start(&app);
    while names(&app).await.len() > 1 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(Timestamp::now() >= soon, "and not before");
}
