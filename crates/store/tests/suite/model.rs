//! Whatever is written, and whenever the store is opened again: it remembers what a plain map in memory does.

use std::collections::BTreeMap;

use box_core::session::SessionState::{Creating, Lost, Running};
use box_core::store::{
    Change, ExecRow, LastToken, McpApprovalsRow, McpServerKey, McpServerRow, ProcessRow, SandboxRow, SessionKey,
    SessionRow, TemplateKey, TemplateRow, VolumeRow, Wait,
};
use box_core::token::TokenRow;
use box_core::{Store, TenantId};
use box_store::SqliteStore;
use proptest::prelude::*;

use crate::{rows, templates};

/// A store as one would write it without a disk.
#[derive(Debug, Default, PartialEq)]
struct Model {
    sessions: BTreeMap<SessionKey, SessionRow>,
    execs: BTreeMap<(SessionKey, String), ExecRow>,
    processes: BTreeMap<(SessionKey, String), ProcessRow>,
    tokens: BTreeMap<String, TokenRow>,
    mcp_servers: BTreeMap<McpServerKey, McpServerRow>,
    mcp_approvals: BTreeMap<McpServerKey, McpApprovalsRow>,
    sandboxes: BTreeMap<SessionKey, SandboxRow>,
    volumes: BTreeMap<(TenantId, String), VolumeRow>,
    templates: BTreeMap<TemplateKey, TemplateRow>,
}

impl Model {
    fn apply(&mut self, change: Change) {
        match change {
            Change::PutSession(row) => drop(self.sessions.insert(row.key.clone(), *row)),
            Change::PutExec(row) if self.sessions.contains_key(&row.key) => {
                self.execs.insert((row.key.clone(), row.info.exec_id.to_string()), *row);
            }
            Change::PutProcess(row) if self.sessions.contains_key(&row.key) => {
                self.processes.insert((row.key.clone(), row.call.process_id.to_string()), *row);
            }
            Change::PutExec(_) | Change::PutProcess(_) => {}
            Change::PutToken(row) => drop(self.tokens.insert(row.id.clone(), *row)),
            Change::DeleteSession(key) => {
                self.sessions.remove(&key);
                self.execs.retain(|(session, _), _| *session != key);
                self.processes.retain(|(session, _), _| *session != key);
            }
            Change::DeleteExec(key, id) => drop(self.execs.remove(&(key, id.to_string()))),
            Change::DeleteProcess(key, id) => drop(self.processes.remove(&(key, id.to_string()))),
            Change::DeleteTokens(ids, last) => {
                let others = self.tokens.keys().any(|id| !ids.contains(id));
                if others || last == LastToken::Deleted {
                    self.tokens.retain(|id, _| !ids.contains(id));
                }
            }
            Change::PutMcpServer(row) => drop(self.mcp_servers.insert(row.key.clone(), *row)),
            Change::DeleteMcpServer(key) => drop(self.mcp_servers.remove(&key)),
            Change::PutMcpApprovals(row) => drop(self.mcp_approvals.insert(row.key.clone(), *row)),
            Change::DeleteMcpApprovals(key) => drop(self.mcp_approvals.remove(&key)),
            Change::PutSandbox(row) => drop(self.sandboxes.insert(row.key.clone(), *row)),
            Change::DeleteSandbox(key) => drop(self.sandboxes.remove(&key)),
            Change::PutVolume(row) => drop(self.volumes.insert((row.tenant.clone(), row.id.clone()), *row)),
            Change::DeleteVolume(tenant, id) => drop(self.volumes.remove(&(tenant, id))),
            Change::PutTemplate(row) => drop(self.templates.insert(row.key.clone(), *row)),
            Change::DeleteTemplate(key) => drop(self.templates.remove(&key)),
        }
    }

    async fn of(store: &SqliteStore) -> Self {
        let loaded = store.load().await.unwrap();
        let mut model = Self::default();
        let sessions = loaded.sessions.into_iter().map(|row| Change::PutSession(Box::new(row)));
        let execs = loaded.execs.into_iter().map(|row| Change::PutExec(Box::new(row)));
        let processes = loaded.processes.into_iter().map(|row| Change::PutProcess(Box::new(row)));
        let tokens = store.tokens().await.unwrap().into_iter().map(|row| Change::PutToken(Box::new(row)));
        let mcp_servers = store.mcp_servers().await.unwrap();
        let mcp_servers = mcp_servers.into_iter().map(|row| Change::PutMcpServer(Box::new(row)));
        let sandboxes = store.sandboxes().await.unwrap();
        let sandboxes = sandboxes.into_iter().map(|row| Change::PutSandbox(Box::new(row)));
        let volumes = store.volumes().await.unwrap().into_iter().map(|row| Change::PutVolume(Box::new(row)));
        let saved = store.templates().await.unwrap();
        let saved = saved.into_iter().map(|row| Change::PutTemplate(Box::new(row)));
        let approvals = store.mcp_approvals().await.unwrap();
        let approvals = approvals.into_iter().map(|row| Change::PutMcpApprovals(Box::new(row)));
        let doors = mcp_servers.chain(approvals).chain(sandboxes).chain(volumes).chain(saved);
        for change in sessions.chain(execs).chain(processes).chain(tokens).chain(doors) {
            model.apply(change);
        }
        model
    }
}

/// Few names, so that changes meet.
fn any_key() -> impl Strategy<Value = SessionKey> {
    (0..2, 0..2).prop_map(|(tenant, session)| rows::key(&format!("t{tenant}"), &format!("s{session}")))
}

fn any_id() -> impl Strategy<Value = String> {
    (0..3).prop_map(|number| format!("i{number}"))
}

fn any_mcp_key() -> impl Strategy<Value = McpServerKey> {
    (0..2, any_id()).prop_map(|(tenant, name)| rows::mcp_key(&format!("t{tenant}"), &name))
}

fn any_template_key() -> impl Strategy<Value = TemplateKey> {
    (0..2, any_id()).prop_map(|(tenant, id)| templates::template_key(&format!("t{tenant}"), &id))
}

fn any_change() -> impl Strategy<Value = Change> {
    let state = prop_oneof![Just(Creating), Just(Running), Just(Lost)];
    let last = prop_oneof![Just(LastToken::Kept), Just(LastToken::Deleted)];
    prop_oneof![
        2 => (any_key(), state).prop_map(|(key, state)| Change::PutSession(Box::new(rows::session(&key, state)))),
        1 => any_key().prop_map(Change::DeleteSession),
        4 => (any_key(), any_id(), any::<i32>())
            .prop_map(|(key, id, code)| Change::PutExec(Box::new(rows::exec(&key, &id, code)))),
        1 => (any_key(), any_id()).prop_map(|(key, id)| Change::DeleteExec(key, id.parse().unwrap())),
        3 => (any_key(), any_id(), any::<u32>())
            .prop_map(|(key, id, restarts)| Change::PutProcess(Box::new(rows::process(&key, &id, restarts)))),
        1 => (any_key(), any_id()).prop_map(|(key, id)| Change::DeleteProcess(key, id.parse().unwrap())),
        2 => (any_id(), any_id()).prop_map(|(id, name)| Change::PutToken(Box::new(rows::token(&id, &name)))),
        1 => (prop::collection::vec(any_id(), 0..3), last).prop_map(|(ids, last)| Change::DeleteTokens(ids, last)),
        2 => (any_mcp_key(), any::<u32>())
            .prop_map(|(key, number)| Change::PutMcpServer(Box::new(rows::mcp_server(&key, number)))),
        1 => any_mcp_key().prop_map(Change::DeleteMcpServer),
        2 => (any_mcp_key(), any::<u32>())
            .prop_map(|(key, number)| Change::PutMcpApprovals(Box::new(rows::mcp_approvals(&key, number)))),
        1 => any_mcp_key().prop_map(Change::DeleteMcpApprovals),
        2 => (any_key(), any::<u64>())
            .prop_map(|(key, number)| Change::PutSandbox(Box::new(rows::sandbox(&key, number)))),
        1 => any_key().prop_map(Change::DeleteSandbox),
        2 => (any_key(), any_id())
            .prop_map(|(key, name)| Change::PutVolume(Box::new(rows::volume(&key, &name)))),
        1 => any_key().prop_map(|key| Change::DeleteVolume(key.tenant, key.id.as_str().to_owned())),
        2 => (any_template_key(), any::<u64>())
            .prop_map(|(key, number)| Change::PutTemplate(Box::new(templates::template(&key, number)))),
        1 => any_template_key().prop_map(Change::DeleteTemplate),
    ]
}

/// What somebody does with a store.
#[derive(Debug, Clone)]
enum Step {
    Write(Change, Wait),
    Reopen,
}

fn any_step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![4 => Just(Wait::Queued), 1 => Just(Wait::Committed)];
    prop_oneof![
        20 => (any_change(), wait).prop_map(|(change, wait)| Step::Write(change, wait)),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_remembers_what_a_map_does(steps in prop::collection::vec(any_step(), 0..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (found, expected) = runtime.block_on(remember(steps));
        prop_assert_eq!(found, expected);
    }
}

async fn remember(steps: Vec<Step>) -> (Model, Model) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut expected = Model::default();
    let mut store = SqliteStore::open(&path).unwrap();
    for step in steps {
        match step {
            Step::Reopen => {
                drop(store);
                store = SqliteStore::open(&path).unwrap();
            }
            Step::Write(change, wait) => {
                store.write(change.clone(), wait).await.unwrap();
                expected.apply(change);
            }
        }
    }
    drop(store);
    (Model::of(&SqliteStore::open(&path).unwrap()).await, expected)
}
