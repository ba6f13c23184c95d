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

/// The program, as if nothing were configured but an engine that nobody runs.
fn without_engines() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strongbox"));
    command.env("STRONGBOX_DOCKER_ADDRESS", "unix:///nonexistent/docker.sock").env_remove("STRONGBOX_BACKEND");
    command
}

#[test]
fn every_backend_is_listed_and_the_first_that_works_is_chosen() {
    let output = without_engines().args(["backends", "--json"]).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &told["chosen"]), (Some(0), &"native".into()), "{told:#}");
    let backends = told["backends"].as_array().unwrap();
    let names: Vec<_> = backends.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["native", "podman", "docker", "nsjail", "e2b"]);
    for one in backends {
        assert!(one["available"] == true || one["reason"].is_string() && one["fix"].is_string(), "{one}");
    }
}

#[test]
fn a_forced_backend_that_is_not_there_is_told_with_its_reason_and_nothing_stands_in_for_it() {
    let output = without_engines().arg("backends").env("STRONGBOX_BACKEND", "docker").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("Chosen: docker, on which no box can be made"), "{text}");
    for verb in [["run", "--backend", "docker", "--", "true"].as_slice(), &["doctor", "--backend", "docker"]] {
        let output = without_engines().args(verb).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        assert!(!output.status.success() && said.contains("the docker backend is not available here"), "{said}");
    }
    let unknown = without_engines().args(["run", "--backend", "gvisor", "--", "true"]).output().unwrap();
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(unknown.status.code() == Some(125) && said.contains("native, podman, docker, nsjail, e2b"), "{said}");
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
