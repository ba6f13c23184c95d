//! Grants: what is taken, what is refused, and what follows what.

use super::*;

const NOW: &str = "2026-11-15T03:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn data(change: impl FnOnce(&mut Value)) -> Map<String, Value> {
    let mut value = json!({
        "instance_uuid": "an-instance", "workspace_uuid": "w", "execution_generation": 1, "entitlement_revision": 1,
        "expires_at": "2026-11-15T03:03:01.545556Z", "max_sessions": 1, "max_managed_processes": 0,
    });
    change(&mut value);
    value.as_object().unwrap().clone()
}

fn grant(change: impl FnOnce(&mut Value)) -> Grant {
    Grant::read(&data(change)).unwrap()
}

fn install(grants: &Grants, change: impl FnOnce(&mut Value)) -> Result<(Grant, Change), String> {
    let installed = grants.install("ws-a", grant(change), &Rules::default(), now(), 2);
    installed.map_err(|fault| fault.to_string())
}

#[test]
fn the_receipt_is_what_langbot_compares() {
    let receipt = serde_json::to_string(&grant(|_| ()).receipt()).unwrap();
    insta::assert_snapshot!(receipt, @r#"{"entitlement_revision":1,"execution_generation":1,"expires_at":"2026-11-15T03:03:01.545556+00:00","installed":true,"max_managed_processes":0,"max_sessions":1,"workspace_uuid":"w"}"#);
    let whole = grant(|value| value["expires_at"] = json!("2026-11-15T05:03:01+02:00"));
    assert_eq!(whole.receipt()["expires_at"], "2026-11-15T03:03:01+00:00");
}

#[test]
fn grants_are_read_strictly() {
    for (name, bad) in [
        ("surprise", json!(1)),
        ("execution_generation", json!(0)),
        ("execution_generation", json!(true)),
        ("entitlement_revision", json!("1")),
        ("max_sessions", json!(-1)),
        ("max_managed_processes", json!(1.5)),
        ("expires_at", json!("2026-11-15T03:03:01")),
        ("expires_at", json!(1_800_000_000)),
        ("workspace_uuid", json!(" ")),
        ("instance_uuid", json!(null)),
    ] {
        let fault = Grant::read(&data(|value| value[name] = bad)).unwrap_err();
        assert_eq!(fault.class, Class::Validation, "{name}");
    }
    assert!(Revocation::read(&data(|_| ())).is_err());
}

#[test]
fn refusals_have_the_texts_that_clients_know() {
    let grants = Grants::default();
    for (name, value, told) in [
        ("expires_at", json!(NOW), "expired"),
        ("expires_at", json!("2026-11-15T03:05:01Z"), "lifetime exceeds 300 seconds"),
        ("max_sessions", json!(2), "exceeds the session cap"),
        ("max_managed_processes", json!(1), "exceeds the managed-process cap"),
    ] {
        let fault = install(&grants, |grant| grant[name] = value).unwrap_err();
        assert!(fault.starts_with("BoxAdmissionError: ") && fault.contains(told), "{fault}");
    }
    install(&grants, |grant| {
        (grant["entitlement_revision"], grant["execution_generation"]) = (json!(5), json!(5));
    })
    .unwrap();
    for (revision, generation, sessions, told) in [
        (4, 5, 1, "revision is stale"),
        (5, 4, 1, "execution generation is stale"),
        (5, 5, 0, "limits changed without a new entitlement revision"),
        (5, 6, 0, "limits changed without a new entitlement revision"),
    ] {
        let fault = install(&grants, |grant| {
            grant["entitlement_revision"] = json!(revision);
            grant["execution_generation"] = json!(generation);
            grant["max_sessions"] = json!(sessions);
        });
        assert!(fault.as_ref().unwrap_err().contains(told), "{fault:?}");
    }
}

#[test]
fn an_earlier_expiry_does_not_shorten() {
    let grants = Grants::default();
    assert_eq!(install(&grants, |_| ()).unwrap().1, Change::Replaced);
    let (held, change) = install(&grants, |grant| grant["expires_at"] = json!("2026-11-15T03:01:00Z")).unwrap();
    assert_eq!((held, change), (grant(|_| ()), Change::Prolonged));
    let (_, change) = install(&grants, |grant| grant["entitlement_revision"] = json!(2)).unwrap();
    assert_eq!(change, Change::Replaced);
}

#[test]
fn a_revoked_revision_stays_dead() {
    let grants = Grants::default();
    install(&grants, |_| ()).unwrap();
    grants.revoke("ws-a", 3, 2).unwrap();
    let missing = grants.admit("ws-a", 1, now()).unwrap_err().to_string();
    assert_eq!(missing, "BoxAdmissionError: Sandbox admission grant is missing");
    for revision in [1, 3] {
        let fault = install(&grants, |grant| grant["entitlement_revision"] = json!(revision)).unwrap_err();
        assert!(fault.contains("was revoked"), "{fault}");
    }
    install(&grants, |grant| grant["entitlement_revision"] = json!(4)).unwrap();
    grants.revoke("ws-a", 3, 2).unwrap();
    assert!(grants.admit("ws-a", 1, now()).is_ok(), "a newer one is not touched by an old revocation");
}

#[test]
fn only_a_grant_of_this_generation_that_lives_admits() {
    let grants = Grants::default();
    install(&grants, |_| ()).unwrap();
    assert_eq!(grants.admit("ws-a", 1, now()).unwrap(), Admitted { max_sessions: 1, max_managed_processes: 0 });
    let told = |result: Result<Admitted, Fault>| result.unwrap_err().text;
    assert!(told(grants.admit("ws-b", 1, now())).ends_with("is missing"));
    assert!(told(grants.admit("ws-a", 2, now())).ends_with("belongs to another execution generation"));
    let later = "2026-11-15T03:03:02Z".parse().unwrap();
    assert!(told(grants.admit("ws-a", 1, later)).ends_with("has expired"));
    install(&grants, |grant| (grant["entitlement_revision"], grant["max_sessions"]) = (json!(2), json!(0))).unwrap();
    assert!(told(grants.admit("ws-a", 1, now())).ends_with("does not permit sessions"));
}

#[test]
fn only_so_many_workspaces_are_remembered() {
    let grants = Grants::default();
    grants.revoke("ws-b", 1, 2).unwrap();
    grants.revoke("ws-c", 1, 2).unwrap();
    assert!(install(&grants, |_| ()).unwrap_err().contains("record capacity"));
    assert!(grants.revoke("ws-d", 1, 2).is_err());
    assert!(grants.revoke("ws-b", 2, 2).is_ok());
}
