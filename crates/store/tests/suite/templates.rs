//! Saved boxes, each tenant's apart.

use box_core::Store;
use box_core::store::{
    Change, TemplateBase, TemplateDefaults, TemplateKey, TemplateOrigin, TemplateRow, TemplateState, Wait,
};
use box_store::SqliteStore;

use crate::rows::at;

pub(crate) fn template_key(tenant: &str, id: &str) -> TemplateKey {
    TemplateKey { tenant: tenant.parse().unwrap(), id: id.to_owned() }
}

pub(crate) fn template(key: &TemplateKey, number: u64) -> TemplateRow {
    let failed = TemplateState::Failed { message: "exit 1".into(), step: Some("2".into()) };
    TemplateRow {
        key: key.clone(),
        template: key.id.clone(),
        build: "00000000-0000-7000-8000-000000000001".into(),
        name: Some("named".into()),
        tags: vec!["default".into()],
        origin: TemplateOrigin::Snapshot("i1".into()),
        state: if number.is_multiple_of(2) { TemplateState::Ready } else { failed },
        base: TemplateBase { image: Some("host".into()), cpus: Some(0.5), ..TemplateBase::default() },
        archive_bytes: number,
        env: [("KEY".to_owned(), "a \"quoted\" one".to_owned())].into(),
        defaults: TemplateDefaults { user: Some("root".into()), ..TemplateDefaults::default() },
        created_at: at(),
        updated_at: at(),
    }
}

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
