//! `examples`: pastes the examples of README.md and docs/, line by line, into a shell on a terminal and checks them.
//!
//! Each page has its own shell, directory and home, in namespaces where port 5410 is free and the network is
//! unreachable. Blocks that need a registry or engines are run apart.

mod page;
mod reader;
mod terminal;

use self::page::{Block, Surroundings};
use self::reader::{Reader, Scene};
use super::rootless::TestUser;
use super::{Proof, Verdict, e2b_clients, mcp_clients};
use crate::engines::{Engine, Engines};
use crate::machine;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Added to the pages in `docs`.
const FIRST_PAGE: &str = "README.md";

/// As root, and what needs a registry.
pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    let programs = match Programs::find(proof)? {
        Ok(programs) => programs,
        Err(verdict) => return Ok(verdict),
    };
    try_pages(proof, &programs, Surroundings::Alone, &Scene::Root)?;
    try_pages(proof, &programs, Surroundings::Registry, &Scene::Registry(mcp_clients::registries::environment()))?;
    Ok(verdict(proof))
}

/// As an ordinary user.
pub(super) fn rootless(proof: &mut Proof) -> Result<Verdict> {
    let programs = match Programs::find(proof)? {
        Ok(programs) => programs,
        Err(verdict) => return Ok(verdict),
    };
    try_pages(proof, &programs, Surroundings::Alone, &Scene::User(TestUser::ensure()?))?;
    Ok(verdict(proof))
}

/// What needs engines.
pub(super) fn among_engines(proof: &mut Proof) -> Result<Verdict> {
    let programs = match Programs::find(proof)? {
        Ok(programs) => programs,
        Err(verdict) => return Ok(verdict),
    };
    let engines = match Engines::start(&proof.target, &Engine::ALL) {
        Ok(engines) => engines,
        Err(error) => return Ok(Verdict::Skipped(format!("no engines: {error:#}"))),
    };
    if !Engine::ALL.into_iter().all(|engine| engines.has(engine)) {
        return Ok(Verdict::Skipped(engines.missing().join("; ")));
    }
    let scene = Scene::Engines(engines);
    try_pages(proof, &programs, Surroundings::Engines, &scene)?;
    scene.end()?;
    Ok(verdict(proof))
}

/// What readers run.
struct Programs {
    strongbox: PathBuf,
    /// Where the Python of the E2B packages is.
    python: PathBuf,
}

impl Programs {
    /// Finds them, or says how the stage ends without them.
    fn find(proof: &mut Proof) -> Result<Result<Self, Verdict>> {
        if !machine::is_root() {
            return Ok(Err(Verdict::Skipped("not root; namespaces of our own need it".into())));
        }
        let python = e2b_clients::interpreter();
        if let Err(error) = python.ensure() {
            return Ok(Err(Verdict::not_installed("the E2B packages", &error)));
        }
        Ok(Ok(Self { strongbox: proof.artefacts()?.strongbox, python: python.place().join("bin") }))
    }
}

/// Tries the blocks of all pages that are run in this place.
fn try_pages(proof: &mut Proof, programs: &Programs, place: Surroundings, scene: &Scene) -> Result<()> {
    for page in pages(&proof.root)? {
        let text = fs::read_to_string(proof.root.join(&page)).with_context(|| page.clone())?;
        let mut blocks = page::blocks(&text).with_context(|| page.clone())?;
        blocks.retain(|block| block.place == place);
        if !blocks.is_empty() {
            Reader::new(programs, scene)?.try_all(proof, &page, &for_scene(blocks, scene))?;
        }
    }
    Ok(())
}

/// An ordinary user skips what is for root.
fn for_scene(mut blocks: Vec<Block>, scene: &Scene) -> Vec<Block> {
    if let Scene::User(_) = scene {
        for block in &mut blocks {
            block.skip = block.skip.take().or_else(|| block.root.take());
            block.steps.iter_mut().for_each(|step| step.skip = step.skip.take().or_else(|| step.root.take()));
        }
    }
    blocks
}

fn verdict(proof: &Proof) -> Verdict {
    match (proof.tally.failed, proof.tally.passed) {
        (0, 0) => Verdict::Failed("not one example ran".into()),
        (0, _) => Verdict::Passed,
        (failed, _) => Verdict::Failed(format!("{failed} examples do not work")),
    }
}

fn pages(root: &Path) -> Result<Vec<String>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(root.join("docs"))? {
        let name = entry?.file_name().into_string().ok().context("a page name is not UTF-8")?;
        if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages.sort();
    pages.insert(0, FIRST_PAGE.to_owned());
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_understood() {
        let root = crate::cargo::root();
        for page in pages(&root).expect("pages") {
            let text = fs::read_to_string(root.join(&page)).expect("a page");
            page::blocks(&text).unwrap_or_else(|error| panic!("{page}: {error:#}"));
        }
    }

    #[test]
    fn an_ordinary_user_skips_what_is_for_root() {
        let page = "<!-- test: root `two`: needs a cgroup -->\n```console\n$ one\n$ two\n```\n\
                    <!-- test: root: needs root -->\n```console\n$ three\n```\n";
        let user = TestUser { uid: 1, gid: 1, home: "/home/someone".into() };
        let skips = |scene: &Scene| -> Vec<Option<String>> {
            let blocks = for_scene(page::blocks(page).expect("a page"), scene);
            blocks
                .into_iter()
                .flat_map(|it| it.steps.into_iter().map(move |step| step.skip.or(it.skip.clone())))
                .collect()
        };
        assert_eq!(skips(&Scene::Root), [None, None, None]);
        let reason = |text: &str| Some(text.to_owned());
        assert_eq!(skips(&Scene::User(user)), [None, reason("needs a cgroup"), reason("needs root")]);
    }
}
