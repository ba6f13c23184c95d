//! Which skills a session mounts, and where.

use std::collections::HashSet;
use std::path::Path;

use box_wire::{GuestPath, Invalid};

use super::SkillInfo;
use crate::limits;
use crate::session::{ExtraMount, HostPathMode};

/// The directory of the workspace that skills are in.
pub(crate) const DIRECTORY: &str = ".skills";

/// Whether paths of the backend's machine mean something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// They do: what is not there can be seen not to be.
    Shared,
    /// They do not: what the skills say is trusted, because looking here would find nothing.
    Separate,
}

impl Files {
    /// What [`crate::Backend::shares_filesystem`] says.
    pub fn of(shares_filesystem: bool) -> Self {
        if shares_filesystem { Self::Shared } else { Self::Separate }
    }
}

/// Where the packages of skills are in a box.
pub(crate) fn directory(workspace: &GuestPath) -> Option<GuestPath> {
    GuestPath::parse("skills", &format!("{}/{DIRECTORY}", workspace.as_str().trim_end_matches('/'))).ok()
}

/// Where the package of a skill is in a box.
pub fn mount_path(workspace: &GuestPath, name: &str) -> Result<GuestPath, Invalid> {
    if name.is_empty() || name.contains('/') {
        return Err(Invalid::new("skill", name, "one name"));
    }
    GuestPath::parse("skill", &format!("{}/{DIRECTORY}/{name}", workspace.as_str().trim_end_matches('/')))
}

/// The mounts for skills, in their order and as many as a box has room for. Those without a place are left out, and so are those
/// whose place is no directory any more, where that can be seen: a mount of nothing would keep the whole box from being made. Of two
/// that have one name, which a box can bring about, the first counts.
pub fn mounts(skills: &[SkillInfo], workspace: &GuestPath, mode: HostPathMode, files: Files) -> Vec<ExtraMount> {
    let mut seen = HashSet::new();
    let mounted = skills.iter().filter(|skill| is_there(skill, files) && seen.insert(&skill.name));
    let mut mounts: Vec<ExtraMount> = mounted.filter_map(|skill| mount(skill, workspace, mode)).collect();
    if mounts.len() > limits::SKILLS_MOUNTED_MAX {
        let left_out = mounts.len() - limits::SKILLS_MOUNTED_MAX;
        tracing::debug!(left_out, "a box has no room for all skills; the others are mounted when they are activated");
        mounts.truncate(limits::SKILLS_MOUNTED_MAX);
    }
    mounts
}

/// Whether the package of a skill can be mounted.
pub(crate) fn is_there(skill: &SkillInfo, files: Files) -> bool {
    let root = skill.package_root.trim();
    if root.is_empty() {
        return false;
    }
    if files == Files::Shared && !Path::new(root).is_dir() {
        tracing::warn!(
            skill.name = skill.name,
            skill.package_root = root,
            "a skill is not mounted: package_root missing"
        );
        return false;
    }
    true
}

fn mount(skill: &SkillInfo, workspace: &GuestPath, mode: HostPathMode) -> Option<ExtraMount> {
    let mount_path = mount_path(workspace, &skill.name).ok()?;
    Some(ExtraMount { host_path: skill.package_root.trim().to_owned(), mount_path, mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(name: &str, package_root: &str) -> SkillInfo {
        SkillInfo { name: name.into(), package_root: package_root.into(), ..SkillInfo::default() }
    }

    fn shown(skills: &[SkillInfo], files: Files) -> Vec<(String, String, HostPathMode)> {
        let workspace = "/workspace".parse().unwrap();
        let mounts = mounts(skills, &workspace, HostPathMode::Rw, files);
        mounts.into_iter().map(|mount| (mount.host_path, mount.mount_path.to_string(), mount.mode)).collect()
    }

    /// Collects what is logged while something is done.
    fn logged(work: impl FnOnce()) -> String {
        use std::io::Write;
        use std::sync::{Arc, Mutex};
        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<u8>>>);
        impl Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
        tracing::subscriber::with_default(log, work);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_skill_whose_package_is_gone_is_left_out_with_a_warning() {
        let alive = tempfile::tempdir().unwrap();
        let alive = alive.path().to_str().unwrap();
        let skills = [skill("alive", alive), skill("ghost", "/nonexistent/path/should/never/exist")];
        let log = logged(|| {
            let expected = (alive.to_owned(), "/workspace/.skills/alive".to_owned(), HostPathMode::Rw);
            assert_eq!(shown(&skills, Files::Shared), [expected]);
        });
        assert!(log.contains("WARN") && log.contains("ghost") && log.contains("package_root missing"), "{log}");
        assert!(!log.contains("alive"), "{log}");
    }

    #[test]
    fn a_file_in_the_place_of_a_package_is_no_package() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(shown(&[skill("file", file.path().to_str().unwrap())], Files::Shared).is_empty());
    }

    #[test]
    fn paths_of_another_machine_are_trusted() {
        let skills = [skill("a", "/box/skills/a"), skill("b", "/box/skills/b")];
        let log = logged(|| {
            let expected =
                |name: &str| (format!("/box/skills/{name}"), format!("/workspace/.skills/{name}"), HostPathMode::Rw);
            assert_eq!(shown(&skills, Files::Separate), [expected("a"), expected("b")]);
        });
        assert!(!log.contains("package_root missing"), "{log}");
    }

    #[test]
    fn a_skill_without_a_place_is_ignored_wherever_files_are() {
        let skills = [skill("no_root", ""), skill("whitespace", "   ")];
        for files in [Files::Shared, Files::Separate] {
            assert!(shown(&skills, files).is_empty(), "{files:?}");
        }
    }

    #[test]
    fn no_skills_are_no_mounts() {
        assert!(shown(&[], Files::Shared).is_empty());
    }

    #[test]
    fn what_the_backend_says_of_its_files_decides_who_is_trusted() {
        assert_eq!([Files::of(true), Files::of(false)], [Files::Shared, Files::Separate]);
    }

    #[test]
    fn a_box_gets_as_many_as_it_has_room_for_the_first_ones() {
        let skills: Vec<SkillInfo> = (0..100).map(|number| skill(&format!("s{number}"), "/s")).collect();
        let mounted = shown(&skills, Files::Separate);
        assert_eq!(mounted.len(), limits::SKILLS_MOUNTED_MAX);
        assert_eq!(mounted[0].1, "/workspace/.skills/s0");
        const { assert!(limits::SKILLS_MOUNTED_MAX + 2 < limits::MOUNTS_MAX, "others want to mount too") };
    }

    #[test]
    fn of_two_that_have_one_name_the_first_is_mounted() {
        let mounted = shown(&[skill("a", "/new"), skill("b", "/b"), skill("a", "/old")], Files::Separate);
        assert_eq!(mounted.iter().map(|mount| mount.0.as_str()).collect::<Vec<_>>(), ["/new", "/b"]);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_no_mount() {
        for name in ["..", "", ".", "a\nb", "a/../../b"] {
            assert!(shown(&[skill(name, "/s")], Files::Separate).is_empty(), "{name:?}");
        }
        assert_eq!(mount_path(&GuestPath::root(), "a").unwrap().as_str(), "/.skills/a");
    }
}
