//! The dependency arrows of the house: which crate may see which.

use super::Violation;
use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, PackageId};
use std::collections::{BTreeMap, BTreeSet};

/// What a crate of the workspace may see of the others.
enum Sees {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

/// The arrows. Add a row for each new crate, and draw it in ARCHITECTURE.md too.
const ARROWS: &[(&str, Sees)] = &[
    ("box-wire", Sees::Only(&[])),
    ("box-agent", Sees::Only(&["box-wire"])),
    ("box-agent-image", Sees::Only(&[])),
    ("box-core", Sees::Only(&["box-wire"])),
    ("box-e2b-wire", Sees::Only(&[])),
    ("box-http-client", Sees::Only(&[])),
    ("box-host", Sees::Only(&["box-core", "box-images", "box-wire", "box-agent-image"])),
    ("box-images", Sees::Only(&["box-core", "box-http-client", "box-wire"])),
    ("box-native", Sees::Only(&["box-core", "box-host", "box-images", "box-wire"])),
    ("box-docker", Sees::Only(&["box-core", "box-host", "box-http-client", "box-wire", "box-agent-image"])),
    ("box-nsjail", Sees::Only(&["box-core", "box-host", "box-images", "box-wire", "box-agent-image"])),
    (
        "box-e2b",
        Sees::Only(&["box-core", "box-e2b-wire", "box-host", "box-http-client", "box-wire", "box-agent-image"]),
    ),
    ("box-store", Sees::Only(&["box-core", "box-wire"])),
    ("box-skills", Sees::Only(&["box-core"])),
    ("door-http", Sees::Only(&["box-core", "box-wire"])),
    ("door-rest", Sees::Only(&["box-core", "box-http-client", "box-skills", "box-wire", "door-http"])),
    ("door-langbot", Sees::Only(&["box-core", "box-skills", "box-wire", "door-http"])),
    ("door-e2b", Sees::Only(&["box-core", "box-e2b-wire", "box-wire", "door-http"])),
    ("door-mcp", Sees::Only(&["box-core", "box-http-client", "box-wire"])),
    ("box-cli", Sees::AllBut(&["box-agent"])),
    ("box-older", Sees::Only(&["box-core", "box-host", "box-images", "box-native", "box-store", "box-wire"])),
    ("box-tests", Sees::AllBut(&[])),
    ("box-benches", Sees::AllBut(&[])),
    ("xtask", Sees::Only(&[])),
];

/// External crates that a crate of the workspace must not pull in by any path. Dev-dependencies do not count: they are
/// not shipped.
const KEPT_OUT: &[(&str, &[&str])] = &[
    ("box-wire", &["tokio", "rustls", "openssl", "reqwest", "axum"]),
    ("box-e2b-wire", &["tokio", "rustls", "openssl", "reqwest", "axum"]),
    ("box-agent", &["tokio", "rustls", "openssl", "reqwest", "axum"]),
    ("box-core", &["axum", "bollard", "rmcp", "rusqlite"]),
];

/// Banned external crates: C libraries for TLS, unmaintained YAML, and a filter library that the allow-list in
/// `box-host` replaced.
const BANNED: &[&str] = &["openssl-sys", "aws-lc-sys", "serde_yaml", "libseccomp"];

/// Who depends on whom, by name.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    members: BTreeSet<String>,
    /// What each crate pulls in to be built: normal and build dependencies.
    shipped: BTreeMap<String, BTreeSet<String>>,
    /// What each crate pulls in only for its own tests.
    tested: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Reads the resolved graph. Two versions of one crate become one name, which can only add paths, never hide one.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let resolve = metadata.resolve.as_ref().context("cargo metadata gave no resolved graph")?;
        let name = |id: &PackageId| metadata[id].name.to_string();
        let mut graph = Self::default();
        graph.members.extend(metadata.workspace_packages().iter().map(|package| package.name.to_string()));
        for node in &resolve.nodes {
            for dependency in &node.deps {
                for kind in &dependency.dep_kinds {
                    let edges = match kind.kind {
                        DependencyKind::Development => &mut graph.tested,
                        _ => &mut graph.shipped,
                    };
                    edges.entry(name(&node.id)).or_default().insert(name(&dependency.pkg));
                }
            }
        }
        Ok(graph)
    }

    fn direct(&self, from: &str) -> impl Iterator<Item = &String> {
        [&self.shipped, &self.tested].into_iter().filter_map(move |edges| edges.get(from)).flatten()
    }

    /// The path by which a crate pulls in another, if there is one. The shortest, so that the culprit is easy to see.
    fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut paths = std::collections::VecDeque::from([vec![from.to_owned()]]);
        let mut seen = BTreeSet::new();
        while let Some(path) = paths.pop_front() {
            let last = path.last()?;
            if last == to {
                return Some(path);
            }
            if seen.insert(last.clone()) {
                let next = self.shipped.get(last).into_iter().flatten();
                paths.extend(next.map(|name| path.iter().cloned().chain([name.clone()]).collect()));
            }
        }
        None
    }
}

/// The rule: every internal edge is in [`ARROWS`], and nothing forbidden is reachable.
pub(crate) fn check(graph: &Graph) -> Vec<Violation> {
    let mut violations: Vec<Violation> = graph.members.iter().flat_map(|member| check_member(graph, member)).collect();
    for (member, forbidden) in KEPT_OUT {
        for path in forbidden.iter().filter_map(|name| graph.path(member, name)) {
            violations.push(Violation::new(*member, format!("must not depend on this: {}", path.join(" → "))));
        }
    }
    for (user, dependencies) in graph.shipped.iter().chain(&graph.tested) {
        for name in dependencies.iter().filter(|name| BANNED.contains(&name.as_str())) {
            violations.push(Violation::new(user, format!("depends on {name}, which no crate here may use")));
        }
    }
    violations
}

fn check_member(graph: &Graph, member: &str) -> Vec<Violation> {
    let Some((_, sees)) = ARROWS.iter().find(|(name, _)| *name == member) else {
        let message = "is not in the table of arrows; add it to ARROWS in xtask/src/tidy/arrows.rs";
        return vec![Violation::new(member, message)];
    };
    let may_see = |name: &str| match sees {
        Sees::Only(allowed) => allowed.contains(&name),
        Sees::AllBut(forbidden) => !forbidden.contains(&name),
    };
    let refused = graph.direct(member).filter(|name| graph.members.contains(*name) && !may_see(name));
    refused.map(|name| Violation::new(member, format!("must not see {name}; the arrows do not point there"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(members: &[&str], shipped: &[(&str, &str)], tested: &[(&str, &str)]) -> Graph {
        let mut graph = Graph { members: members.iter().map(ToString::to_string).collect(), ..Graph::default() };
        for (from, to) in shipped {
            graph.shipped.entry((*from).into()).or_default().insert((*to).into());
        }
        for (from, to) in tested {
            graph.tested.entry((*from).into()).or_default().insert((*to).into());
        }
        graph
    }

    fn messages(graph: &Graph) -> Vec<String> {
        check(graph).into_iter().map(|violation| format!("{} {}", violation.place, violation.message)).collect()
    }

    const MEMBERS: &[&str] = &["box-wire", "box-agent", "box-core", "box-native", "box-cli"];

    #[test]
    fn the_graph_as_drawn_passes() {
        let drawn = [
            ("box-agent", "box-wire"),
            ("box-core", "box-wire"),
            ("box-native", "box-core"),
            ("box-cli", "box-native"),
            ("box-core", "tokio"),
        ];
        assert_eq!(messages(&graph(MEMBERS, &drawn, &[])), [""; 0]);
    }

    #[test]
    fn an_arrow_that_is_not_drawn_is_refused_also_for_tests() {
        let found = messages(&graph(MEMBERS, &[("box-core", "box-native")], &[("box-wire", "box-core")]));
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("box-core must not see box-native"), "{found:?}");
        assert!(found[1].starts_with("box-wire must not see box-core"), "{found:?}");
    }

    #[test]
    fn the_command_line_may_see_all_but_the_agent() {
        let found = messages(&graph(MEMBERS, &[("box-cli", "box-agent"), ("box-cli", "box-core")], &[]));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("box-cli must not see box-agent"), "{found:?}");
    }

    #[test]
    fn a_crate_without_a_row_is_named() {
        assert!(messages(&graph(&["box-new"], &[], &[]))[0].contains("ARROWS"));
    }

    #[test]
    fn a_forbidden_crate_is_found_at_any_depth_with_the_path_to_it() {
        let edges = [("box-agent", "box-wire"), ("box-wire", "innocent"), ("innocent", "tokio"), ("tokio", "innocent")];
        let found = messages(&graph(MEMBERS, &edges, &[]));
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with("box-wire → innocent → tokio"), "{found:?}");
        assert!(found[1].ends_with("box-agent → box-wire → innocent → tokio"), "{found:?}");
    }

    #[test]
    fn a_forbidden_crate_in_tests_only_is_no_concern_but_a_banned_one_is() {
        let found = messages(&graph(MEMBERS, &[], &[("box-agent", "tokio"), ("box-agent", "serde_yaml")]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("serde_yaml"), "{found:?}");
    }
}
