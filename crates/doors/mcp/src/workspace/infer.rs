//! The directory that a server needs to see, found by looking at its command.

use std::path::{Path, PathBuf};

use super::{Look, MANIFESTS, PlaceKind, clean, parts, runner, venv};
use crate::definition::Stdio;

/// Places that every box has of its own. A path into them says nothing about a project.
const OF_THE_SYSTEM: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sys", "/dev"];
/// Places that every box has too, and that no box sees of the host. A certificate in `env` is usually below `/etc`.
const OF_EACH_BOX: [&str; 3] = ["/etc", "/run", "/var/run"];
/// Directories in which people have theirs.
const HOMES: [&str; 2] = ["/home", "/Users"];
/// Endings of files that are a program of a project, as opposed to its data.
const SOURCES: [&str; 10] = ["py", "js", "mjs", "cjs", "ts", "mts", "cts", "jsx", "tsx", "sh"];
/// Directories above a source in which the root of its project is looked for.
const LEVELS_MAX: usize = 4;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inferred {
    /// The command names no place of the host. It needs none.
    Nothing,
    /// The directory that holds everything that the command names.
    Directory(PathBuf),
    /// That directory would hold far more than that. Nothing is shown until somebody says `host_path`.
    TooWide(PathBuf),
}

/// A directory that a word of the command leads to.
struct Candidate {
    path: PathBuf,
    /// Whether it is what the operator wrote, and not only around it.
    is_named: bool,
}

/// The directory of the host that a server needs to see: what its absolute paths have in common. An interpreter of a virtual
/// environment stands for the project around it, and other programs that only run a project for nothing. What does not exist
/// does not count. It is never `/`.
pub fn infer(stdio: &Stdio, look: Look<'_>) -> Inferred {
    let command = of_command(&stdio.command, look);
    let paths = stdio.args.iter().map(|argument| parts(argument).1).chain(stdio.cwd.as_deref());
    let candidates: Vec<_> = command.into_iter().chain(paths.filter_map(|path| of_path(path, look))).collect();
    decide(&candidates)
}

/// The directory that the variables of `env` have in common. Only for a command that names none: variables such as `HOME`
/// would widen what is shown without need. For the same reason it is never a home or a top-level directory.
pub fn infer_from_env(stdio: &Stdio, look: Look<'_>) -> Inferred {
    let candidates: Vec<_> = stdio.env.values().filter_map(|value| of_variable(value.expose(), look)).collect();
    match decide(&candidates) {
        Inferred::Directory(path) if is_top_level(&path) => Inferred::TooWide(path),
        inferred => inferred,
    }
}

/// The variables of `env` that name a path of the host outside of the directory that the box shows.
pub fn unseen_variables<'s>(stdio: &'s Stdio, shown: Option<&Path>, look: Look<'_>) -> Vec<&'s str> {
    let is_shown = |real: &Path| shown.is_some_and(|shown| real.starts_with(shown));
    let is_unseen =
        |value: &str| of_variable(value, look).is_some() && !real_of(value, look).is_some_and(|real| is_shown(&real));
    stdio.env.iter().filter(|(_, value)| is_unseen(value.expose())).map(|(name, _)| name.as_str()).collect()
}

fn real_of(path: &str, look: Look<'_>) -> Option<PathBuf> {
    Some(look(&clean(path)?)?.real)
}

fn of_variable(value: &str, look: Look<'_>) -> Option<Candidate> {
    let path = clean(value).filter(|path| !is_top_level(path))?;
    if OF_EACH_BOX.iter().any(|place| path.starts_with(place)) || look(&path)?.kind == PlaceKind::Special {
        return None;
    }
    of_path(value, look).map(|candidate| Candidate { is_named: false, ..candidate })
}

fn of_command(command: &str, look: Look<'_>) -> Option<Candidate> {
    let path = clean(command)?;
    if let Some(program) = venv::Program::at(&path) {
        // The interpreter is a link to one of the system, or broken. The project is what counts, and it is there.
        let project = look(program.project)?;
        return (project.kind == PlaceKind::Directory).then_some(Candidate { path: project.real, is_named: false });
    }
    let name = path.file_name()?.to_str()?;
    if runner(name).is_some() { None } else { of_path(command, look) }
}

fn of_path(path: &str, look: Look<'_>) -> Option<Candidate> {
    let path = clean(path)?;
    let place = look(&path)?;
    // An argument `/` is the root of whoever reads it.
    let is_root = place.real == Path::new("/");
    if is_root || is_of_the_system(&path) || is_of_the_system(&place.real) {
        return None;
    }
    if place.kind == PlaceKind::Directory {
        let path = venv::project_of(&place.real).map_or_else(|| place.real.clone(), Path::to_path_buf);
        return Some(Candidate { path, is_named: true });
    }
    let directory = place.real.parent()?;
    let is_source = place.real.extension().is_some_and(|ending| SOURCES.iter().any(|source| ending == *source));
    let project =
        venv::project_of(directory).or_else(|| if is_source { project_around(directory, look) } else { None });
    Some(Candidate { path: project.unwrap_or(directory).to_path_buf(), is_named: false })
}

/// The nearest directory with a manifest, from a source upwards. `dist/index.js` is of no use without what is around it.
fn project_around<'d>(directory: &'d Path, look: Look<'_>) -> Option<&'d Path> {
    let above = directory.ancestors().take(LEVELS_MAX).take_while(|path| !is_home(path) && !is_top_level(path));
    let has_manifest = |path: &&Path| {
        MANIFESTS.iter().any(|name| look(&path.join(name)).is_some_and(|it| it.kind != PlaceKind::Directory))
    };
    above.into_iter().find(has_manifest)
}

fn decide(candidates: &[Candidate]) -> Inferred {
    let Some((first, others)) = candidates.split_first() else { return Inferred::Nothing };
    let common = others.iter().fold(first.path.as_path(), |common, other| common_of(common, &other.path));
    let common = common.to_path_buf();
    let is_named = candidates.iter().any(|candidate| candidate.is_named && candidate.path == common);
    let is_widened = candidates.iter().all(|candidate| candidate.path != common);
    let is_wide = is_home(&common) || (is_widened && is_top_level(&common));
    if common == Path::new("/") || (is_wide && !is_named) {
        return Inferred::TooWide(common);
    }
    Inferred::Directory(common)
}

fn common_of<'a>(one: &'a Path, other: &Path) -> &'a Path {
    one.ancestors().find(|above| other.starts_with(above)).unwrap_or(Path::new("/"))
}

fn is_of_the_system(path: &Path) -> bool {
    OF_THE_SYSTEM.iter().any(|place| path.starts_with(place))
}

fn is_home(path: &Path) -> bool {
    path == Path::new("/root") || HOMES.iter().any(|homes| path.parent() == Some(Path::new(homes)))
}

fn is_top_level(path: &Path) -> bool {
    path.components().count() <= 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::HostEntry;
    use super::*;
    use crate::definition::Secret;

    /// A host on which these exist: directories end with `/`, and `a -> b` is a link.
    fn look_in(entries: &'static [&'static str]) -> impl Fn(&Path) -> Option<HostEntry> {
        move |path| {
            let path = path.to_str()?;
            if let Some((_, real)) =
                entries.iter().filter_map(|entry| entry.split_once(" -> ")).find(|link| link.0 == path)
            {
                return Some(HostEntry { real: real.into(), kind: PlaceKind::File });
            }
            let is_directory = entries.iter().any(|entry| *entry == format!("{path}/")) || path == "/";
            let is_there = is_directory || entries.contains(&path);
            let kind = match is_directory {
                true => PlaceKind::Directory,
                false if path.contains("/agent.") => PlaceKind::Special,
                false => PlaceKind::File,
            };
            is_there.then(|| HostEntry { real: path.into(), kind })
        }
    }

    const HOST: &[&str] = &[
        "/home/u/",
        "/home/u/mcp/",
        "/home/u/mcp/server.py",
        "/home/u/mcp/config.json",
        "/home/u/mcp/src/deep/main.py",
        "/home/u/mcp/src/deep/",
        "/home/u/mcp/.venv/bin/",
        "/home/u/mcp/.venv/bin/python -> /usr/bin/python3",
        "/home/u/mcp/venv/bin/run",
        "/home/u/data/",
        "/home/u/data/x.db",
        "/home/u/alone.py",
        "/home/u/link -> /home/u/mcp/server.py",
        "/home/u/.local/bin/uvx",
        "/home/v/other/x.py",
        "/home/u/node/package.json",
        "/home/u/node/dist/index.js",
        "/home/u/node/dist/data.json",
        "/srv/a/x.py",
        "/srv/b/y.py",
        "/tmp/x.py",
        "/usr/bin/python3",
        "/usr/share/doc/",
        "/opt/tool/bin/server",
        "/opt/tool/etc/conf",
        "/venv/bin/python",
        "/etc/x.json",
        "/etc/ssl/certs/ca.pem",
        "/home/u/memory.json",
        "/home/u/data/agent.sock",
        "/run/agent/socket",
        "/tmp/",
    ];

    fn infer_from(command: &str, args: &[&str], cwd: Option<&str>) -> Inferred {
        let args = args.iter().map(ToString::to_string).collect();
        let stdio = Stdio { command: command.into(), args, cwd: cwd.map(Into::into), ..Stdio::default() };
        infer(&stdio, &look_in(HOST))
    }

    fn with_env(args: &[&str], env: &[(&str, &str)]) -> Stdio {
        let args = args.iter().map(ToString::to_string).collect();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new((*value).to_owned()))).collect();
        Stdio { command: "npx".into(), args, env, ..Stdio::default() }
    }

    fn found(path: &str) -> Inferred {
        Inferred::Directory(path.into())
    }

    #[test]
    fn a_command_without_places_of_the_host_needs_none() {
        assert_eq!(infer_from("python", &["server.py"], None), Inferred::Nothing);
        assert_eq!(infer_from("uvx", &["mcp-server-time", "--tz", "UTC"], None), Inferred::Nothing);
        assert_eq!(infer_from("/nonexistent/path/to/program", &["/not/there"], None), Inferred::Nothing);
        assert_eq!(infer_from("/usr/bin/python3", &["/usr/share/doc", "-x"], None), Inferred::Nothing);
        assert_eq!(infer_from("/home/u/.local/bin/uvx", &["mcp-server-time"], None), Inferred::Nothing, "a runner");
    }

    #[test]
    fn a_file_stands_for_its_directory_and_a_directory_for_itself() {
        assert_eq!(infer_from("python", &["/tmp/x.py"], None), found("/tmp"));
        assert_eq!(infer_from("python", &["/home/u/mcp/server.py"], None), found("/home/u/mcp"));
        assert_eq!(infer_from("npx", &["-y", "server-filesystem", "/home/u/data"], None), found("/home/u/data"));
        assert_eq!(infer_from("/opt/tool/bin/server", &[], None), found("/opt/tool/bin"));
        assert_eq!(infer_from("x", &["--config=/home/u/mcp/config.json"], None), found("/home/u/mcp"));
        assert_eq!(infer_from("python", &["server.py"], Some("/home/u/mcp")), found("/home/u/mcp"));
        assert_eq!(infer_from("python", &["/home/u/link"], None), found("/home/u/mcp"), "where it really is");
    }

    #[test]
    fn an_environment_stands_for_the_project_around_it() {
        assert_eq!(infer_from("/home/u/mcp/.venv/bin/python", &[], None), found("/home/u/mcp"));
        assert_eq!(
            infer_from("/home/u/mcp/env/Scripts/python.exe", &[], None),
            found("/home/u/mcp"),
            "it need not exist"
        );
        assert_eq!(infer_from("/home/u/mcp/venv/bin/run", &["/home/u/mcp/server.py"], None), found("/home/u/mcp"));
        assert_eq!(infer_from("sh", &["/home/u/mcp/venv/bin/run"], None), found("/home/u/mcp"));
        assert_eq!(infer_from("/gone/.venv/bin/python", &[], None), Inferred::Nothing);
        assert_eq!(infer_from("/venv/bin/python", &[], None), Inferred::TooWide("/".into()));
    }

    #[test]
    fn several_places_have_a_directory_in_common() {
        let mcp = infer_from("/home/u/mcp/.venv/bin/python", &["/home/u/mcp/src/deep/main.py"], None);
        assert_eq!(mcp, found("/home/u/mcp"));
        assert_eq!(infer_from("/opt/tool/bin/server", &["--conf", "/opt/tool/etc/conf"], None), found("/opt/tool"));
        assert_eq!(infer_from("/usr/bin/python3", &["/home/u/mcp/server.py"], None), found("/home/u/mcp"));
    }

    #[test]
    fn what_merely_contains_several_places_is_not_shown() {
        let wide = |path: &str| Inferred::TooWide(path.into());
        assert_eq!(infer_from("python", &["/home/u/mcp/server.py", "/srv/a/x.py"], None), wide("/"));
        assert_eq!(infer_from("python", &["/home/u/mcp/server.py", "/etc/x.json"], None), wide("/"));
        assert_eq!(infer_from("python", &["/home/u/mcp/server.py", "/home/v/other/x.py"], None), wide("/home"));
        assert_eq!(infer_from("python", &["/home/u/mcp/server.py", "/home/u/data/x.db"], None), wide("/home/u"));
        assert_eq!(infer_from("python", &["/home/u/alone.py"], None), wide("/home/u"));
        assert_eq!(infer_from("python", &["/srv/a/x.py", "/srv/b/y.py"], None), wide("/srv"));
        assert_eq!(infer_from("python", &["/home/u/alone.py"], Some("/home/u")), found("/home/u"), "it was said");
        assert_eq!(infer_from("x", &["/", "/tmp/x.py"], None), found("/tmp"), "the root is the box's own");
        assert_eq!(infer_from("ls", &["/"], Some("/")), Inferred::Nothing, "even so");
    }

    #[test]
    fn a_source_brings_its_project_and_data_does_not() {
        assert_eq!(infer_from("node", &["/home/u/node/dist/index.js"], None), found("/home/u/node"));
        assert_eq!(infer_from("node", &["/home/u/node/dist/data.json"], None), found("/home/u/node/dist"));
    }

    #[test]
    fn paths_in_the_environment_have_a_directory_in_common() {
        let infer_from = |env: &[(&str, &str)]| infer_from_env(&with_env(&[], env), &look_in(HOST));
        let wide = |path: &str| Inferred::TooWide(path.into());
        assert_eq!(infer_from(&[("DATA", "/home/u/data/x.db")]), found("/home/u/data"));
        assert_eq!(infer_from(&[("DATA", "/home/u/data")]), found("/home/u/data"));
        let of_both = [("A", "/home/u/node/dist/data.json"), ("B", "/home/u/node/package.json")];
        assert_eq!(infer_from(&of_both), found("/home/u/node"));
        assert_eq!(infer_from(&[("MEMORY", "/home/u/memory.json")]), wide("/home/u"));
        assert_eq!(infer_from(&[("HOME", "/home/u")]), wide("/home/u"), "unlike `cwd`, it may be meant otherwise");
        assert_eq!(infer_from(&[("DATA", "/tmp/x.py")]), wide("/tmp"));
        let ca = "/etc/ssl/certs/ca.pem";
        for nothing in
            ["/tmp", "/gone/x", "/usr/bin/python3", "/run/agent/socket", "/home/u/data/agent.sock", ca, "x", ""]
        {
            assert_eq!(infer_from(&[("A", nothing)]), Inferred::Nothing, "{nothing}");
        }
    }

    #[test]
    fn variables_that_name_what_is_not_shown_are_known() {
        let env = [("DATA", "/home/u/data/x.db"), ("HOME", "/home/u"), ("CONF", "/home/u/mcp/config.json")];
        let stdio = with_env(&["/home/u/mcp/server.py"], &env);
        assert_eq!(infer(&stdio, &look_in(HOST)), found("/home/u/mcp"), "they do not widen it");
        assert_eq!(unseen_variables(&stdio, Some(Path::new("/home/u/mcp")), &look_in(HOST)), ["DATA", "HOME"]);
        assert_eq!(unseen_variables(&stdio, None, &look_in(HOST)), ["CONF", "DATA", "HOME"]);
    }

    proptest! {
        #[test]
        fn the_root_is_never_inferred(command in "(/|[a-c]|\\.|\\.venv/|bin/|python){0,8}", args in proptest::collection::vec("(--x=)?(/|[a-c]|\\.){0,8}", 0..4)) {
            let stdio = Stdio { command, args, ..Stdio::default() };
            let everything_exists = |path: &Path| {
                let is_directory = path.as_os_str().len().is_multiple_of(2) || path == Path::new("/");
                let kind = if is_directory { PlaceKind::Directory } else { PlaceKind::File };
                Some(HostEntry { real: path.to_path_buf(), kind })
            };
            if let Inferred::Directory(path) = infer(&stdio, &everything_exists) {
                prop_assert!(path.is_absolute() && path != Path::new("/"), "{path:?}");
            }
        }

        #[test]
        fn what_is_inferred_holds_every_named_file(names in proptest::collection::vec("/(a|b)/(a|b)/(a|b)(/(a|b))?", 1..4)) {
            let stdio = Stdio { command: "x".into(), args: names.clone(), ..Stdio::default() };
            let only_files = |path: &Path| {
                Some(HostEntry { real: path.to_path_buf(), kind: PlaceKind::File }).filter(|_| !path.ends_with("package.json"))
            };
            if let Inferred::Directory(path) = infer(&stdio, &only_files) {
                prop_assert!(names.iter().all(|name| Path::new(name).starts_with(&path)), "{path:?}");
            }
        }
    }
}
