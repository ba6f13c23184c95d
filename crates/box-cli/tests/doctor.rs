//! `strongbox doctor` on this machine.

use std::process::Command;

#[test]
fn what_the_doctor_says_is_what_a_box_then_holds() {
    let doctor = Command::new(env!("CARGO_BIN_EXE_strongbox")).args(["doctor", "--json"]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert_eq!((doctor.status.code(), &told["available"]), (Some(0), &true.into()), "{told:#}");
    assert!(told["findings"].as_array().unwrap().len() > 10);
    let run = Command::new(env!("CARGO_BIN_EXE_strongbox")).args(["run", "--json", "--", "true"]).output().unwrap();
    let receipt: serde_json::Value = serde_json::from_slice(&run.stderr).unwrap();
    assert_eq!(told["guarantees"], receipt["guarantees"]);
}

#[test]
fn the_table_has_a_line_for_each_finding_and_a_summary() {
    let doctor = Command::new(env!("CARGO_BIN_EXE_strongbox")).arg("doctor").output().unwrap();
    let text = String::from_utf8(doctor.stdout).unwrap();
    for name in ["kernel", "user_namespaces", "cgroups", "landlock", "network"] {
        assert!(text.contains(&format!("  {name} ")), "{name} in {text}");
    }
    assert!(text.contains("It held: hard "), "{text}");
    assert!(!text.contains('\x1b'), "no colours where there is no terminal");
}
