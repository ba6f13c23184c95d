//! Additions for a box with a writable root and the host's programs: its own directories to install into, the name `python`,
//! and the files in which `apt` and `dpkg` keep their state.

use std::fs::Metadata;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use box_wire::GuestPath;
use box_wire::plan::Own;

/// How deep below `/usr/local` a box without a shared layer can write.
const LOCAL_LEVELS_MAX: usize = 3;

/// Directories of `/usr`, besides its direct children, in which packages create others.
const PACKAGE_DIRECTORIES: [&str; 5] = ["lib", "lib/python3", "share", "share/man", "share/lintian"];

/// Most directories of `/usr` that one box creates for itself.
const DIRECTORIES_MAX: usize = 1024;

/// Most directories of `/usr` in the shared layer.
const SHARED_DIRECTORIES_MAX: usize = 64 << 10;

/// Depth of the shared layer.
const SHARED_LEVELS_MAX: usize = 16;

/// Distributions put this file beside a Python that their package manager owns, so that pip leaves it alone (PEP 668). A box
/// discards its changes, so there is nothing to protect.
const MANAGED: &str = "EXTERNALLY-MANAGED";

/// Files and directories of `/etc` that configure package sources, keys and setup. A directory stands for its files.
const PACKAGE_SETTINGS: [&str; 16] = [
    "adduser.conf",
    "apt/apt.conf",
    "apt/apt.conf.d",
    "apt/preferences",
    "apt/preferences.d",
    "apt/sources.list",
    "apt/sources.list.d",
    "apt/trusted.gpg",
    "debconf.conf",
    "debian_version",
    "deluser.conf",
    "dpkg/dpkg.cfg",
    "dpkg/dpkg.cfg.d",
    "ld.so.conf",
    "ld.so.conf.d",
    "login.defs",
];

/// The library cache. `ldconfig` replaces it.
const LIBRARIES: &str = "etc/ld.so.cache";

/// Directories of `/etc` with public keys of package signers.
const KEYS: [&str; 2] = ["apt/keyrings", "apt/trusted.gpg.d"];

/// Larger settings are not copied, and all of them together are at most this large.
const SETTING_BYTES_MAX: u64 = 1 << 20;
const SETTINGS_BYTES_MAX: u64 = 2 << 20;

/// Directories that `apt` and `dpkg` expect but do not create.
const PACKAGE_PLACES: [&str; 3] = ["/var/cache/apt/archives/partial", "/var/lib/apt/lists/partial", "/var/log/apt"];

/// The state directory of `dpkg`.
const DPKG: &str = "var/lib/dpkg";

/// State files that `dpkg` hard-links before it writes new ones.
const DPKG_COPIES: [&str; 3] = ["available", "diversions", "status"];

/// The host's locks, and its owner overrides for unknown accounts.
const DPKG_HIDDEN: [&str; 4] = ["lock", "lock-frontend", "statoverride", "triggers/Lock"];

/// Settings of `apt` in a box: it downloads as root, because the user `_apt` does not exist, and it runs [`OWN_FILES`].
const APT_SETTINGS: (&str, &str) = (
    "/etc/apt/apt.conf.d/99strongbox",
    "APT::Sandbox::User \"root\";\nDPkg::Pre-Install-Pkgs {\"/bin/sh /etc/apt/strongbox-own-files\";};\n",
);

/// Copies files of the machine into the box before `dpkg` replaces them.
const OWN_FILES: (&str, &str) = ("/etc/apt/strongbox-own-files", include_str!("own-files.sh"));

/// Debian's list of base accounts; maintainer scripts refer to them.
const USUAL_ACCOUNTS: [&str; 2] = ["usr/share/base-passwd/passwd.master", "usr/share/base-passwd/group.master"];

/// Additions for a box with a writable root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writable {
    /// Its own directories of `/usr`, without a shared layer.
    pub usr: Own,
    /// Host directories below which it can also write.
    pub trees: Vec<(PathBuf, GuestPath, Own)>,
    /// Small files, with their contents.
    pub files: Vec<(GuestPath, Vec<u8>)>,
    /// Directories that start empty.
    pub directories: Vec<GuestPath>,
    /// Lines of `/etc/passwd` and `/etc/group` for the base accounts of the distribution.
    pub accounts: (String, String),
    /// The shared layer above `/usr`, read on first use.
    pub shared: OnceLock<Own>,
}

impl Writable {
    /// Inspects a host.
    pub(super) fn find(root: &Path) -> Self {
        let usr = root.join("usr");
        let mut found = Self { usr: changed(&usr), ..Self::default() };
        found.usr.directories = directories(&usr);
        let mut bytes_left = SETTINGS_BYTES_MAX;
        found.add_file(root, LIBRARIES, &mut bytes_left);
        found.add_packages(root, bytes_left);
        found
    }

    /// The shared layer above `/usr`.
    pub fn shared(&self) -> &Own {
        self.shared.get_or_init(|| {
            let usr = Path::new("/usr");
            Own { directories: all_directories(usr), ..changed(usr) }
        })
    }

    /// Accounts of a box, and those that maintainer scripts expect.
    pub fn with_accounts(&self, (users, groups): (String, String)) -> (String, String) {
        (with_lines(users, &self.accounts.0), with_lines(groups, &self.accounts.1))
    }

    /// Files that `apt` and `dpkg` need, if the host has them.
    fn add_packages(&mut self, root: &Path, mut bytes_left: u64) {
        if !root.join(DPKG).join("status").is_file() || !root.join("usr/bin/dpkg").is_file() {
            return;
        }
        let own = Own {
            directories: below(&root.join(DPKG), "", |_| true),
            copies: DPKG_COPIES.map(str::to_owned).into(),
            hidden: there(&root.join(DPKG), &DPKG_HIDDEN),
            links: Vec::new(),
        };
        self.add_tree(root, DPKG, own);
        for keys in KEYS {
            self.add_tree(root, &format!("etc/{keys}"), Own::default());
        }
        self.directories = PACKAGE_PLACES.iter().filter_map(|path| GuestPath::parse("path", path).ok()).collect();
        for setting in PACKAGE_SETTINGS {
            let name = format!("etc/{setting}");
            if root.join(&name).is_dir() {
                for file in names(&root.join(&name), std::fs::FileType::is_file) {
                    self.add_file(root, &format!("{name}/{file}"), &mut bytes_left);
                }
            } else {
                self.add_file(root, &name, &mut bytes_left);
            }
        }
        for (path, text) in [APT_SETTINGS, OWN_FILES] {
            self.files.extend(GuestPath::parse("path", path).ok().map(|path| (path, text.into())));
        }
        let read = |name| std::fs::read_to_string(root.join(name)).unwrap_or_default().replace(":*:", ":x:");
        let [users, groups] = USUAL_ACCOUNTS.map(read);
        self.accounts = (users, groups);
    }

    fn add_tree(&mut self, root: &Path, name: &str, own: Own) {
        let source = root.join(name);
        let is_shown = source.symlink_metadata().is_ok_and(|found| found.is_dir() && is_open(&found));
        if let (true, Ok(target)) = (is_shown, GuestPath::parse("path", &format!("/{name}"))) {
            self.trees.push((source, target, own));
        }
    }

    /// Adds a setting that is world-readable and contains no password.
    fn add_file(&mut self, root: &Path, name: &str, bytes_left: &mut u64) {
        let Ok(path) = GuestPath::parse("path", &format!("/{name}")) else { return };
        let file = root.join(name);
        let Ok(found) = file.metadata() else { return };
        let most = SETTING_BYTES_MAX.min(*bytes_left);
        if !found.is_file() || found.permissions().mode() & 0o004 == 0 || found.len() > most {
            return;
        }
        let Ok(contents) = std::fs::read(file) else { return };
        if !has_password(&contents) {
            *bytes_left = bytes_left.saturating_sub(contents.len() as u64);
            self.files.push((path, contents));
        }
    }
}

/// Adds lines whose name and number are not taken.
fn with_lines(mut accounts: String, more: &str) -> String {
    let key = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.to_owned()))
    };
    for line in more.lines() {
        let Some((name, number)) = key(line) else { continue };
        let is_taken = |(other, its): (String, String)| other == name || its == number;
        if !accounts.lines().filter_map(key).any(is_taken) {
            accounts.push_str(line);
            accounts.push('\n');
        }
    }
    accounts
}

/// Whether a URL in a setting has a user before its host, as `https://user:password@host` does.
fn has_password(contents: &[u8]) -> bool {
    let text = String::from_utf8_lossy(contents);
    let authority =
        |rest: &str| rest.split(|c: char| c.is_whitespace() || "/\"';".contains(c)).next().unwrap_or("").contains('@');
    text.split("://").skip(1).any(authority)
}

/// What a box sees differently in `/usr`, directories aside.
fn changed(usr: &Path) -> Own {
    Own { hidden: managed(usr), links: python(usr), ..Own::default() }
}

/// The PEP 668 markers of all Pythons of the distribution.
pub(super) fn managed(usr: &Path) -> Vec<String> {
    let mut found = names(&usr.join("lib"), std::fs::FileType::is_dir);
    found.retain(|name| name.starts_with("python3"));
    let marks: Vec<String> = found.iter().map(|name| format!("lib/{name}/{MANAGED}")).collect();
    let marks: Vec<&str> = marks.iter().map(String::as_str).collect();
    there(usr, &marks)
}

/// The name `python`, if the host has only `python3`.
fn python(usr: &Path) -> Vec<(String, String)> {
    let is_there = |name: &str| usr.join(name).symlink_metadata().is_ok();
    let is_missing = is_there("bin/python3") && !is_there("bin/python") && !is_there("local/bin/python");
    is_missing.then(|| ("bin/python".to_owned(), "python3".to_owned())).into_iter().collect()
}

fn there(directory: &Path, files: &[&str]) -> Vec<String> {
    let is_there = |name: &&&str| directory.join(name).symlink_metadata().is_ok_and(|found| found.is_file());
    files.iter().filter(is_there).map(|name| (*name).to_owned()).collect()
}

/// Directories into which users and packages install: direct children of `/usr`, some of their children, and several levels
/// below `/usr/local`. Symbolic links are skipped.
fn directories(usr: &Path) -> Vec<String> {
    let mut found = below(usr, "", is_open);
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        let is_local = directory.starts_with("local") && directory.matches('/').count() < LOCAL_LEVELS_MAX;
        if is_local || PACKAGE_DIRECTORIES.contains(&directory.as_str()) {
            found.extend(below(usr, &directory, is_open));
        }
        next += 1;
    }
    found.truncate(DIRECTORIES_MAX);
    found
}

/// All world-accessible directories, parents first.
fn all_directories(usr: &Path) -> Vec<String> {
    let mut found = below(usr, "", is_open);
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        if directory.matches('/').count() + 1 < SHARED_LEVELS_MAX && found.len() < SHARED_DIRECTORIES_MAX {
            found.extend(below(usr, &directory, is_open));
        }
        next += 1;
    }
    found.truncate(SHARED_DIRECTORIES_MAX);
    found
}

/// Whether a directory is world-readable and searchable. Others stay closed.
fn is_open(directory: &Metadata) -> bool {
    directory.permissions().mode() & 0o005 == 0o005
}

fn below(usr: &Path, directory: &str, is_wanted: impl Fn(&Metadata) -> bool) -> Vec<String> {
    let place = usr.join(directory);
    let is_wanted = |name: &String| place.join(name).symlink_metadata().is_ok_and(|found| is_wanted(&found));
    let all = names(&place, std::fs::FileType::is_dir);
    let whole = |name: String| if directory.is_empty() { name } else { format!("{directory}/{name}") };
    all.into_iter().filter(is_wanted).map(whole).collect()
}

/// Sorted names of entries of this kind in a directory.
fn names(directory: &Path, is_wanted: impl Fn(&std::fs::FileType) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let wanted = entries.filter(|entry| entry.file_type().is_ok_and(|kind| is_wanted(&kind)));
    let mut names: Vec<String> = wanted.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str, mode: u32) {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn settings_with_passwords_and_those_of_root_alone_are_not_shown() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "usr/bin/dpkg", "", 0o755);
        write(root, "var/lib/dpkg/status", "Package: a\n", 0o644);
        write(root, "var/lib/dpkg/lock", "", 0o640);
        write(root, "etc/apt/sources.list", "deb https://packages.example/debian stable main\n", 0o644);
        write(
            root,
            "etc/apt/sources.list.d/own.list",
            "deb https://me:secret@packages.example/own stable main\n",
            0o644,
        );
        write(root, "etc/apt/apt.conf.d/80proxy", "Acquire::http::Proxy \"http://me@proxy.example:3128/\";\n", 0o644);
        write(root, "etc/apt/apt.conf.d/90root", "A \"b\";\n", 0o600);
        write(root, "etc/apt/auth.conf", "machine packages.example login me password secret\n", 0o644);
        write(root, "etc/apt/auth.conf.d/own.conf", "machine packages.example login me password secret\n", 0o644);
        let found = Writable::find(root);
        let shown: Vec<&str> = found.files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(shown, ["/etc/apt/sources.list", APT_SETTINGS.0, OWN_FILES.0]);
        let trees: Vec<&str> = found.trees.iter().map(|(_, path, _)| path.as_str()).collect();
        assert_eq!(trees, ["/var/lib/dpkg"]);
        assert_eq!(found.trees[0].2.hidden, ["lock"]);
    }

    #[test]
    fn a_python_has_its_usual_name_and_no_mark_of_the_distribution() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "usr/bin/python3", "", 0o755);
        write(root.path(), "usr/lib/python3.11/EXTERNALLY-MANAGED", "", 0o644);
        let usr = Writable::find(root.path()).usr;
        assert_eq!(usr.hidden, ["lib/python3.11/EXTERNALLY-MANAGED"]);
        assert_eq!(usr.links, [("bin/python".to_owned(), "python3".to_owned())]);
        write(root.path(), "usr/local/bin/python", "", 0o755);
        assert!(Writable::find(root.path()).usr.links.is_empty(), "the host has one");
    }

    #[test]
    fn accounts_of_the_distribution_take_nobodys_name_and_number() {
        let users =
            "root:*:0:0:root:/root:/bin/bash\nman:*:6:12:man:/var/cache/man:/usr/sbin/nologin\nuser:*:7:7::/:/bin/sh\n";
        let found = Writable { accounts: (users.replace(":*:", ":x:"), String::new()), ..Writable::default() };
        let own = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n";
        let (merged, _) = found.with_accounts((own.to_owned(), String::new()));
        assert_eq!(merged, format!("{own}man:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n"));
    }

    #[test]
    fn closed_directories_stay_closed() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "usr/share/open/deep/file", "", 0o644);
        write(root.path(), "usr/share/closed/deep/file", "", 0o644);
        let closed = root.path().join("usr/share/closed");
        std::fs::set_permissions(closed, std::fs::Permissions::from_mode(0o750)).unwrap();
        assert_eq!(all_directories(&root.path().join("usr")), ["share", "share/open", "share/open/deep"]);
    }
}
