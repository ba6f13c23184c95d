//! Saved boxes, with archives that are files like any others.

use std::path::Path;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{Reference, SavedKind, SnapshotConfig, SnapshotError, SnapshotStore};
use crate::service::Memory;
use crate::store::{Store, TemplateBase, TemplateDefaults, TemplateKey, TemplateOrigin, TemplateRow, TemplateState};
use crate::{Caller, Error, TenantId, limits};

fn row(id: &str, template: &str, tags: &[&str]) -> TemplateRow {
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
        Self { directory: tempfile::tempdir().unwrap(), store: Arc::new(Memory::default()) }
    }

    fn open(&self) -> SnapshotStore {
        let directory = Some(self.directory.path().join("templates"));
        let config = SnapshotConfig { directory, bytes_max: 4 << 20, reserved: ["base".to_owned()].into() };
        SnapshotStore::new(Arc::clone(&self.store), config)
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
    assert_eq!((told.code(), told.to_string().contains("too large")), ("box_too_large", true), "{told}");
    let mut second = snapshots.room(&tenant, 2 << 20).await.unwrap();
    let told = second.take((1 << 20) + 1).unwrap_err();
    assert!(told.to_string().contains("saved_mb_max"), "{told}");
    drop((first, second));
    snapshots.room(&tenant, 4 << 20).await.unwrap().take(3 << 20).unwrap();
    let mut rooms = Vec::new();
    for _ in 1..limits::SNAPSHOTS_MAX {
        rooms.push(snapshots.room(&tenant, 1).await.unwrap());
    }
    assert!(snapshots.room(&tenant, 1).await.unwrap_err().to_string().contains("delete some first"));
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
    assert!(second.take(1).unwrap_err().to_string().contains("saved_mb_max"));
}

#[tokio::test]
async fn a_server_without_a_place_for_archives_says_so() {
    let snapshots = SnapshotStore::new(Arc::new(Memory::default()), SnapshotConfig::default());
    let told = snapshots.room(&TenantId::default(), 1).await.unwrap_err();
    assert!(matches!(told, Error::Snapshot(SnapshotError::NoDirectory)), "{told}");
    assert!(told.to_string().contains("state directory"), "{told}");
}

fn snapshot_of(id: &str, session: &str) -> TemplateRow {
    let origin = TemplateOrigin::Snapshot(session.to_owned());
    TemplateRow { origin, name: Some(format!("named-{id}")), ..row(id, id, &["default"]) }
}

#[tokio::test]
async fn who_is_bound_to_sessions_uses_their_snapshots_only() {
    let place = TestStore::new();
    let snapshots = place.open();
    for row in [snapshot_of("a", "chat-1"), snapshot_of("b", "chat-2"), snapshot_of("c", "mcp-shared")] {
        place.publish(&snapshots, row).await;
    }
    place.publish(&snapshots, row("d", "d", &["default"])).await;
    let bound = Caller::local().bound_to(&"chat-1".parse().unwrap()).unwrap();
    let loopback = Caller::loopback();
    for (caller, expected) in [(Caller::local(), "dcba"), (loopback, "dba"), (bound, "a")] {
        let seen = snapshots.visible(&caller).await.unwrap();
        assert_eq!(seen.iter().map(|row| row.key.id.as_str()).collect::<String>(), expected, "{caller:?}");
        assert_eq!(snapshots.get(&caller, SavedKind::Any, "named-b").await.is_ok(), expected.contains('b'));
    }
}

#[tokio::test]
async fn kinds_are_told_apart() {
    let place = TestStore::new();
    let snapshots = place.open();
    place.publish(&snapshots, snapshot_of("a", "s")).await;
    place.publish(&snapshots, row("d", "d", &["default"])).await;
    let caller = Caller::local();
    let get = async |kind, name| snapshots.get(&caller, kind, name).await.map(|row| row.key.id.clone());
    assert_eq!(get(SavedKind::Snapshot, "named-a").await.unwrap(), "a");
    assert_eq!(get(SavedKind::Snapshot, "mine").await.unwrap_err().code(), "snapshot_not_found");
    assert_eq!(get(SavedKind::Template, "a").await.unwrap_err().code(), "template_not_found");
    assert_eq!(get(SavedKind::Any, "d").await.unwrap(), "d");
}

#[tokio::test]
async fn names_of_the_operator_and_too_many_tags_are_refused() {
    let place = TestStore::new();
    let snapshots = place.open();
    assert!(snapshots.check_free("base").unwrap_err().to_string().contains("choose another"));
    assert!(snapshots.check_free("Bad Name").unwrap_err().to_string().contains("lowercase"));
    snapshots.check_free("base-2").unwrap();
    place.publish(&snapshots, row("a", "a", &["default"])).await;
    let tags: Vec<_> = (0..limits::SNAPSHOT_TAGS_MAX).map(|number| format!("v{number}")).collect();
    let refused = snapshots.tag(&Caller::local(), "mine", &tags).await.unwrap_err();
    assert!(refused.to_string().contains("at most 32"), "{refused}");
    let row = snapshots.tag(&Caller::local(), "mine", &tags[1..]).await.unwrap();
    assert_eq!(row.tags.len(), limits::SNAPSHOT_TAGS_MAX);
}
