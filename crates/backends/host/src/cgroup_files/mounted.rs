//! Which cgroup hierarchies are mounted, and where. Found by type and option, never by a path that is usual.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where it is mounted.
    pub point: PathBuf,
    /// What part of the hierarchy is mounted.
    pub root: String,
    /// Controllers of a v1 hierarchy, among its other options; nothing for v2.
    pub v1_controllers: Option<Vec<String>>,
}

impl Hierarchy {
    /// Whether this is a v1 hierarchy with that controller.
    pub fn carries(&self, controller: &str) -> bool {
        self.v1_controllers.iter().flatten().any(|carried| carried == controller)
    }

    /// The directory of a cgroup, by its path in `/proc/<pid>/cgroup`; nothing where that lies outside of what is mounted.
    pub fn directory(&self, cgroup: &str) -> Option<PathBuf> {
        let root = self.root.trim_end_matches('/');
        let below = cgroup.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        let below = below.trim_start_matches('/');
        if below.split('/').any(|part| part == "..") {
            return None;
        }
        Some(if below.is_empty() { self.point.clone() } else { self.point.join(below) })
    }
}

/// Cgroup hierarchies in the format of `/proc/self/mountinfo`.
pub fn parse_hierarchies(mountinfo: &[u8]) -> Vec<Hierarchy> {
    mountinfo.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Hierarchy> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let kind = *fields.get(separator + 1)?;
    let options = String::from_utf8_lossy(fields.get(separator + 3)?).into_owned();
    let v1_controllers = match kind {
        b"cgroup" => Some(options.split(',').map(str::to_owned).collect()),
        b"cgroup2" => None,
        _ => return None,
    };
    let point = PathBuf::from(OsString::from_vec(unescape(fields.get(4)?)));
    let root = String::from_utf8_lossy(&unescape(fields.get(3)?)).into_owned();
    Some(Hierarchy { point, root, v1_controllers })
}

/// Undoes the octal escapes in which the kernel writes white space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            plain.push(byte);
            rest = &after[3..];
        } else {
            plain.push(first);
            rest = after;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const HYBRID: &[u8] = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 /a /sys/fs/cgroup/my\\040memory rw - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn hierarchies_are_found_by_type_and_option_not_by_path() {
        let mounts = parse_hierarchies(HYBRID);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].v1_controllers, Some(vec!["rw".into(), "cpu".into(), "cpuacct".into()]));
        assert_eq!(mounts[1].point, Path::new("/sys/fs/cgroup/my memory"));
        assert_eq!(mounts[1].root, "/a");
        assert_eq!(mounts[2].v1_controllers, None);
        assert!(mounts[0].carries("cpu") && !mounts[0].carries("memory") && !mounts[2].carries("cpu"));
    }

    #[test]
    fn a_directory_never_leaves_the_mount() {
        let of = |root: &str, cgroup: &str| {
            Hierarchy { point: "/cg".into(), root: root.into(), v1_controllers: None }.directory(cgroup)
        };
        assert_eq!(of("/", "/user.slice/a.scope"), Some("/cg/user.slice/a.scope".into()));
        assert_eq!(of("/", "/"), Some("/cg".into()));
        assert_eq!(of("/a", "/a/b"), Some("/cg/b".into()));
        assert_eq!(of("/a", "/a"), Some("/cg".into()));
        assert_eq!(of("/a", "/ab"), None);
        assert_eq!(of("/", "/../b"), None);
        assert_eq!(of("/other", "/a"), None);
    }
}
