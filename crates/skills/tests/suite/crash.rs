//! What is left when an installation is killed at each of its steps.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use box_skills::{Selection, SkillStore, fault};

use crate::archive::{Entry, archive, skill};
use crate::{TestStore, request};

/// Tells the child where the store is.
const ROOT: &str = "BOX_SKILLS_TEST_ROOT";

fn three() -> (Vec<u8>, Selection) {
    let paths = ["a", "b", "c"];
    let entries = paths.map(|path| Entry::stored(&format!("{path}/SKILL.md"), skill(path)));
    (archive(&entries), Selection { source_paths: paths.map(String::from).to_vec(), ..Selection::default() })
}

/// Runs in a process of its own, and only there.
#[test]
fn child() {
    if let Some(root) = std::env::var_os(ROOT) {
        let store = SkillStore::open(root.as_ref()).unwrap();
        let (bytes, selection) = three();
        store.install_zip(&bytes, &request("x.zip"), &selection).unwrap();
    }
}

#[test]
fn an_installation_that_is_killed_is_whole_or_gone() {
    for step in fault::STEPS {
        let place = TestStore::new();
        place.create("there");
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child"])
            .env(ROOT, place.root())
            .env(box_core::fault::VARIABLE, step)
            .output()
            .unwrap()
            .status;
        assert_eq!(status.signal(), Some(9), "{step}");
        let opened = SkillStore::open(&place.root()).unwrap();
        let expected: &[&str] = if *step == "skill_staged" { &["there"] } else { &["a", "b", "c", "there"] };
        assert_eq!(place.names(), expected, "{step}");
        place.check_clean();
        drop(opened);
        let (bytes, selection) = three();
        let again = place.store.install_zip(&bytes, &request("x.zip"), &selection);
        assert_eq!(again.is_ok(), *step == "skill_staged", "{step}");
    }
}
