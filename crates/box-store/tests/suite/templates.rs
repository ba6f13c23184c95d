//! Saved boxes, each tenant's apart.

use box_core::Store;
use box_core::store::{Change, Wait};
use box_store::SqliteStore;

use crate::rows::{template, template_key};

fn put(tenant: &str, id: &str, number: u64) -> Change {
    Change::PutTemplate(Box::new(template(&template_key(tenant, id), number)))
}

#[tokio::test]
async fn saved_boxes_come_back_as_they_were_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path).unwrap();
    let changes = [
        put("acme", "t1", 1),
        put("other", "t1", 2),
        put("acme", "gone", 3),
        put("acme", "t1", 4),
        Change::DeleteTemplate(template_key("acme", "gone")),
        // What is not there is not there.
        Change::DeleteTemplate(template_key("acme", "gone")),
    ];
    for change in changes {
        store.write(change, Wait::Committed).await.unwrap();
    }
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    let expected = [template(&template_key("acme", "t1"), 4), template(&template_key("other", "t1"), 2)];
    assert_eq!(store.templates().await.unwrap(), expected);
}
