//! Skills from archives: look at them, choose, install.

use std::path::Path;

use jiff::Timestamp;

use crate::archive::{Archive, Node, Tree, join};
use crate::checkout::HostDirectory;
use crate::error::{Error, Result, shown};
use crate::limits::{LIST_TEXT_BYTES_MAX, SCAN_DEPTH_MAX};
use crate::name::{self, TargetNames};
use crate::package::{PackageFacts, check_text_size};
use crate::skill::{NewSkill, PYTHON_DIRECTORY, PYTHON_FILES, Preview, Selection, Skill, ZipRequest};
use crate::staging::{FILE_MODE, PROGRAM_MODE, Stage};
use crate::store::{SkillStore, restated, write_all};

/// A package in an archive.
struct Candidate {
    /// Where in the archive it is, from its very top.
    directory: String,
    /// Name of its directory in the store.
    target: String,
    preview: Preview,
}

impl SkillStore {
    /// The skills in an archive, as they would be installed. Nothing is written.
    pub fn preview_zip(&self, archive: &[u8], request: &ZipRequest) -> Result<Vec<Preview>> {
        let candidates = self.candidates(&mut Archive::read(archive)?, request)?;
        Ok(candidates.into_iter().map(|candidate| candidate.preview).collect())
    }

    /// Installs skills of an archive: all that were chosen, or none.
    pub fn install_zip(&self, archive: &[u8], request: &ZipRequest, selection: &Selection) -> Result<Vec<Skill>> {
        check_digest(archive, selection)?;
        let mut archive = Archive::read(archive)?;
        let chosen = choose(self.candidates(&mut archive, request)?, selection)?;
        let lock = self.lock()?;
        let mut targets: Vec<String> = Vec::new();
        for candidate in &chosen {
            if targets.contains(&candidate.target) {
                return Err(Error::TargetTwice { path: candidate.target.clone() });
            }
            self.check_target(&candidate.target)?;
            targets.push(candidate.target.clone());
        }
        self.check_new_names(chosen.iter().map(|candidate| candidate.preview.skill.name.as_str()))?;
        let stage = lock.stage()?;
        let mut skills = Vec::new();
        for (number, candidate) in chosen.iter().enumerate() {
            unpack(&mut archive, &candidate.directory, &stage, number, None)?;
            skills.push(self.staged(&stage, number, &candidate.target)?);
        }
        stage.publish(&targets)?;
        Ok(skills)
    }

    /// Makes a skill from a copy of the package in a host directory. The rules for archives apply.
    pub fn import(&self, new: &NewSkill, directory: &HostDirectory) -> Result<Skill> {
        let name = name::check(&new.name)?;
        let package = directory.package()?;
        let bytes = directory.archive(&package)?;
        let mut archive = Archive::read(&bytes)?;
        let text = restated(&archive.text(package.entry)?, package.entry, name.clone(), new)?;
        check_text_size(Path::new(package.entry), text.len())?;
        let lock = self.lock()?;
        self.check_new_names([name.as_str()])?;
        self.check_target(&name)?;
        let stage = lock.stage()?;
        unpack(&mut archive, "", &stage, 0, Some((package.entry, &text)))?;
        let skill = self.staged(&stage, 0, &name)?;
        stage.publish(&[name])?;
        Ok(skill)
    }

    fn candidates(&self, archive: &mut Archive<'_>, request: &ZipRequest) -> Result<Vec<Candidate>> {
        let names = TargetNames::new(&request.filename, &request.target_suffix)?;
        let base = base(archive.tree(), &request.source_subdir)?;
        let packages = archive.tree().packages(&base, SCAN_DEPTH_MAX);
        if packages.is_empty() {
            return Err(Error::NoSkill { place: "the uploaded archive".into() });
        }
        let mut candidates = Vec::new();
        let mut text_bytes = 0;
        for (directory, entry) in packages {
            let source_path = directory[base.len()..].trim_start_matches('/').to_owned();
            let target = names.target(&source_path)?;
            let skill = self.skill_in(archive, &directory, entry, &target)?;
            text_bytes += skill.instructions.len() + skill.description.len();
            if text_bytes > LIST_TEXT_BYTES_MAX {
                let what = "All skills in the archive".to_owned();
                return Err(Error::TooMuch { what, limit: LIST_TEXT_BYTES_MAX as u64, unit: " bytes of text" });
            }
            candidates.push(Candidate { directory, target, preview: Preview { skill, source_path } });
        }
        candidates.sort_by(|one, other| one.preview.source_path.cmp(&other.preview.source_path));
        Ok(candidates)
    }

    fn skill_in(&self, archive: &mut Archive<'_>, directory: &str, entry: &'static str, target: &str) -> Result<Skill> {
        let text = archive.text(&join(directory, entry))?;
        let has_file = |name: &&str| matches!(archive.tree().get(&join(directory, name)), Some(Node::File { .. }));
        let facts = PackageFacts {
            place: &self.path.join(target),
            entry,
            python_project: PYTHON_FILES.iter().any(has_file)
                || archive.tree().has_directory(&join(directory, PYTHON_DIRECTORY)),
            created_at: Timestamp::now(),
            updated_at: Timestamp::now(),
        };
        facts.skill(&text)
    }
}

/// Names an archive by its content.
pub fn digest(archive: &[u8]) -> String {
    format!("sha256:{}", box_core::hexadecimal::sha256(archive))
}

fn check_digest(archive: &[u8], selection: &Selection) -> Result<()> {
    let asked = selection.digest.as_deref().map(str::trim).filter(|asked| !asked.is_empty());
    let Some(asked) = asked else { return Ok(()) };
    let found = digest(archive);
    if asked == found { Ok(()) } else { Err(Error::DigestDiffers { found, asked: shown(asked) }) }
}

/// Where in an archive to look: in the one directory that everything is in, and there where the caller says.
fn base(tree: &Tree, source_subdir: &str) -> Result<String> {
    let top = tree.single_top().unwrap_or_default();
    let wanted = source_subdir.trim().replace('\\', "/");
    let parts: Vec<&str> = wanted.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(Error::SubdirectoryOutside { path: shown(source_subdir) });
    }
    let base = join(top, &parts.join("/"));
    if tree.has_directory(&base) { Ok(base) } else { Err(Error::SubdirectoryNotFound { path: shown(source_subdir) }) }
}

fn choose(mut candidates: Vec<Candidate>, selection: &Selection) -> Result<Vec<Candidate>> {
    let wanted = wanted_paths(selection);
    if wanted.is_empty() && candidates.len() == 1 {
        return Ok(candidates);
    }
    let told = |candidate: &Candidate| match candidate.preview.source_path.as_str() {
        "" => ".".to_owned(),
        path => path.to_owned(),
    };
    let known: Vec<String> = candidates.iter().map(told).collect();
    if wanted.is_empty() {
        return Err(Error::SeveralInArchive { candidates: known });
    }
    let mut chosen = Vec::new();
    for path in wanted {
        let Some(at) = candidates.iter().position(|candidate| candidate.preview.source_path == path) else {
            return Err(Error::SourcePath { path: shown(&path), candidates: known });
        };
        chosen.push(candidates.remove(at));
    }
    Ok(chosen)
}

/// The source paths that were asked for, each once.
fn wanted_paths(selection: &Selection) -> Vec<String> {
    let normal = |path: &String| match path.trim().replace('\\', "/").trim_matches('/') {
        "." => String::new(),
        path => path.to_owned(),
    };
    let mut wanted: Vec<String> = Vec::new();
    let older = Some(&selection.source_path).filter(|path| !path.trim().is_empty());
    for path in selection.source_paths.iter().chain(older).map(normal) {
        if !wanted.contains(&path) {
            wanted.push(path);
        }
    }
    wanted
}

/// Writes one package of an archive into a stage, replacing the text of one file if given.
fn unpack(
    archive: &mut Archive<'_>,
    directory: &str,
    stage: &Stage<'_>,
    number: usize,
    other_text: Option<(&str, &str)>,
) -> Result<()> {
    let package = stage.package(number);
    stage.make_directory(&package)?;
    let nodes: Vec<(String, Node)> =
        archive.tree().below(directory).map(|(path, node)| (path.to_owned(), node)).collect();
    for (name, node) in nodes {
        let path = package.join(&name);
        match node {
            Node::Directory { .. } => stage.make_directory(&path)?,
            Node::File { index, is_program, .. } => {
                let mode = if is_program { PROGRAM_MODE } else { FILE_MODE };
                stage.write_file(&path, mode, |file| match other_text.filter(|(other, _)| *other == name) {
                    Some((_, text)) => write_all(file, text),
                    None => archive.inflate(index, file).map(drop),
                })?;
            }
        }
    }
    Ok(())
}
