//! Saved boxes, with archives that are files like any others.

use std::path::Path;
use std::sync::Arc;

use box_core::store::{TemplateBase, TemplateDefaults, TemplateKey, TemplateOrigin, TemplateRow, TemplateState};
use box_core::{Caller, Store, TenantId};
use jiff::{SignedDuration, Timestamp};

use super::{Reference, SnapshotStore};
use crate::limits;
use door_http::testing::MemoryStore;

pub(crate) fn row(id: &str, template: &str, tags: &[&str]) -> TemplateRow {
    let at = Timestamp::UNIX_EPOCH + SignedDuration::from_secs(i64::from(id.as_bytes()[0]));
    TemplateRow {
        key: TemplateKey { tenant: TenantId::default(), id: id.to_owned() },
        template: template.to_owned(),
        build: format!("build-{id}"),
        name: Some("mine".to_owned()),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        origin: TemplateOrigin::Build,
        state: TemplateState::Ready,
        base: TemplateBase::default(),
        archive_bytes: 1 << 20,
        env: std::collections::BTreeMap::new(),
        defaults: TemplateDefaults::default(),
        created_at: at,
        updated_at: at,
    }
}

struct TestStore {
    directory: tempfile::TempDir,
    store: Arc<dyn Store>,
}

impl TestStore {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), store: Arc::new(MemoryStore::default()) }
    }

    fn open(&self) -> SnapshotStore {
        SnapshotStore::new(Arc::clone(&self.store), Some(self.directory.path().join("templates")), 4 << 20)
    }

    /// Puts one on the shelf, with an archive.
    async fn publish(&self, snapshots: &SnapshotStore, row: TemplateRow) {
        self.write(&format!("{}.tar", row.key.id));
        snapshots.publish(row).await.unwrap();
    }

    fn write(&self, name: &str) {
        let directory = self.directory.path().join("templates");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(name), "archive").unwrap();
    }

    fn files(&self) -> Vec<String> {
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = Path::read_dir(&self.directory.path().join("templates")).unwrap().map(name).collect();
        names.sort();
        names
    }
}

async fn found(snapshots: &SnapshotStore, text: &str) -> Option<String> {
    let row = snapshots.find(&Caller::local(), &Reference::read(text)).await.unwrap();
    row.map(|row| row.key.id.clone())
}

#[tokio::test]
async fn a_tag_belongs_to_the_version_that_was_made_last() {
    let (place, tenant) = (TestStore::new(), TenantId::default());
    let snapshots = place.open();
    place.publish(&snapshots, row("a", "a", &["default", "v1"])).await;
    place.publish(&snapshots, row("b", "a", &["default"])).await;
    for text in ["mine", "a", "team/mine:default", "a:default"] {
        assert_eq!(found(&snapshots, text).await.as_deref(), Some("b"), "{text}");
    }
    assert_eq!(found(&snapshots, "mine:v1").await.as_deref(), Some("a"));
    assert_eq!(found(&snapshots, "mine:v2").await, None);
    place.publish(&snapshots, row("c", "a", &["v1"])).await;
    assert_eq!(place.files(), ["b.tar", "c.tar"], "the one without a tag is gone");
    let other = Caller { tenant: "other".parse().unwrap(), ..Caller::local() };
    assert!(snapshots.find(&other, &Reference::read("mine")).await.unwrap().is_none(), "tenants are apart");
    let all = snapshots.of(&tenant).await.unwrap();
    snapshots.take_tags(&all[0], &["v1".to_owned()]).await.unwrap();
    assert_eq!(place.files(), ["b.tar"]);
}

#[tokio::test]
async fn after_a_restart_only_what_belongs_together_is_there() {
    let place = TestStore::new();
    let snapshots = place.open();
    place.publish(&snapshots, row("a", "a", &["default"])).await;
    snapshots.put(row("b", "b", &["default"])).await.unwrap();
    snapshots.put(TemplateRow { state: TemplateState::Building, ..row("c", "c", &["default"]) }).await.unwrap();
    for name in ["c.tar.part", "fork-d.tar", "e.tar"] {
        place.write(name);
    }
    let again = place.open();
    again.clear().await;
    assert_eq!(place.files(), ["a.tar"]);
    let left = again.of(&TenantId::default()).await.unwrap();
    let left: Vec<_> = left.iter().map(|row| (row.key.id.as_str(), &row.state)).collect();
    assert!(matches!(left[..], [("c", TemplateState::Failed { .. }), ("a", TemplateState::Ready)]), "{left:?}");
}

#[tokio::test]
async fn a_tenant_has_so_much_room_and_what_is_being_written_counts() {
    let (place, tenant) = (TestStore::new(), TenantId::default());
    let snapshots = place.open();
    place.publish(&snapshots, row("a", "a", &["default"])).await;
    let mut first = snapshots.room(&tenant, 2 << 20).await.unwrap();
    first.take(2 << 20).unwrap();
    let told = first.take(1).unwrap_err();
    assert!(told.status().as_u16() == 507 && told.message().contains("too large"), "{told:?}");
    let mut second = snapshots.room(&tenant, 2 << 20).await.unwrap();
    let told = second.take((1 << 20) + 1).unwrap_err();
    assert!(told.message().contains("saved_mb_max"), "{told:?}");
    drop((first, second));
    snapshots.room(&tenant, 4 << 20).await.unwrap().take(3 << 20).unwrap();
    let mut rooms = Vec::new();
    for _ in 1..limits::E2B_SAVED_MAX {
        rooms.push(snapshots.room(&tenant, 1).await.unwrap());
    }
    assert!(snapshots.room(&tenant, 1).await.unwrap_err().message().contains("delete some first"));
    assert!(snapshots.room(&"other".parse().unwrap(), 1).await.is_ok());
}

#[tokio::test]
async fn an_archive_that_was_finished_meanwhile_counts_for_those_that_are_being_written() {
    let (place, tenant) = (TestStore::new(), TenantId::default());
    let snapshots = place.open();
    let [mut first, mut second] =
        [snapshots.room(&tenant, 4 << 20).await.unwrap(), snapshots.room(&tenant, 4 << 20).await.unwrap()];
    first.take(3 << 20).unwrap();
    place.publish(&snapshots, TemplateRow { archive_bytes: 3 << 20, ..row("a", "a", &["default"]) }).await;
    drop(first);
    second.take(1 << 20).unwrap();
    assert!(second.take(1).unwrap_err().message().contains("saved_mb_max"));
}

#[tokio::test]
async fn a_server_without_a_place_for_archives_says_so() {
    let snapshots = SnapshotStore::new(Arc::new(MemoryStore::default()), None, 1);
    let told = snapshots.room(&TenantId::default(), 1).await.unwrap_err();
    assert!(told.status().as_u16() == 503 && told.message().contains("state directory"), "{told:?}");
}
