//! One tenant's store: list, get, create, update, delete, scan.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use box_core::SafeRoot;
use box_core::quota::{self, Quota, Usage};
use rustix::fs::FileType;

use crate::error::{Error, Result, shown};
use crate::front_matter::{Document, Header, compose};
use crate::limits::{LIST_TEXT_BYTES_MAX, PACKAGES_MAX, SCAN_DEPTH_MAX};
use crate::name;
use crate::package::{Package, check_text_size, kind, read_text};
use crate::skill::{ENTRY_FILES, NewSkill, Skill, SkillChange};
use crate::staging::{FILE_MODE, Lock, Stage};

/// A directory of skill packages. Cheap to open; any number of processes may have it open.
#[derive(Debug)]
pub struct SkillStore {
    pub(crate) root: SafeRoot,
    /// Where the root really is.
    pub(crate) path: PathBuf,
    /// Where the operator says that it is, which callers may say too.
    given: PathBuf,
}

impl SkillStore {
    /// Opens a store, made if it is missing. What an installation that was killed left behind is finished or removed.
    pub fn open(root: &Path) -> Result<Self> {
        let told = |error| box_core::Error::io(format!("making the skill store {}", root.display()), error);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(told)?;
        let given = std::path::absolute(root).map_err(told)?;
        let root = SafeRoot::open_path(root)?;
        let path = root.real_path()?;
        let store = Self { root, path, given };
        drop(Lock::take_if_free(&store.root)?);
        Ok(store)
    }

    /// All skills, the one that changed last first. Packages that cannot be read are left out.
    pub fn list(&self) -> Result<Vec<Skill>> {
        let mut skills = Vec::new();
        let mut text_bytes = 0;
        for skill in self.loaded()? {
            text_bytes += skill.instructions.len() + skill.description.len() + skill.display_name.len();
            if text_bytes > LIST_TEXT_BYTES_MAX {
                let what = "All skills together".to_owned();
                return Err(Error::TooMuch { what, limit: LIST_TEXT_BYTES_MAX as u64, unit: " bytes of text" });
            }
            skills.push(skill);
        }
        skills.sort_by(|one, other| other.updated_at.cmp(&one.updated_at).then_with(|| one.name.cmp(&other.name)));
        Ok(skills)
    }

    /// What all packages take, counted until it is more than a quota.
    pub fn usage(&self, quota: Quota) -> Result<Usage> {
        Ok(quota::measure(self.root.directory(), quota)?)
    }

    /// A skill by its name. Of two that have one name, the one that changed last.
    pub fn get(&self, name: &str) -> Result<Option<Skill>> {
        Ok(self.find(name)?.map(|(_, skill)| skill))
    }

    /// Makes a skill: a new package, or one that lies in the store and gets this name.
    pub fn create(&self, new: &NewSkill) -> Result<Skill> {
        let name = name::check(&new.name)?;
        let lock = self.lock()?;
        self.check_new_names([name.as_str()])?;
        match new.package_root.as_deref().map(str::trim).filter(|path| !path.is_empty()) {
            Some(package_root) => self.adopt(&lock, name, new, package_root),
            None => self.make(&lock, name, new),
        }
    }

    /// Changes what a skill says. Its name and its place stay.
    pub fn update(&self, name: &str, change: &SkillChange) -> Result<Skill> {
        let lock = self.lock()?;
        let (package, skill) = self.required(name)?;
        if change.name.as_deref().map(str::trim).is_some_and(|asked| !asked.is_empty() && asked != skill.name) {
            return Err(Error::Rename);
        }
        if let Some(asked) = change.package_root.as_deref().map(str::trim).filter(|path| !path.is_empty())
            && self.relative("package_root", asked).ok().as_ref() != Some(&package.path)
        {
            return Err(Error::PackageRootFixed);
        }
        let (text, _) = read_text(&self.root, &package.entry_path())?;
        let document = Document::split(&text);
        let old = document.header(package.entry)?;
        let header = Header {
            name: Some(skill.name),
            display_name: change.display_name.clone().or(old.display_name),
            description: change.description.clone().or(old.description),
        };
        let instructions = change.instructions.as_deref().unwrap_or(document.instructions);
        self.write_entry(&lock, &package, &document.rewritten(&header, instructions)?)
    }

    /// Removes a skill, with the directory of the store that it is in. A directory in which no skill can be read is
    /// removed by its own name.
    pub fn delete(&self, name: &str) -> Result<()> {
        let lock = self.lock()?;
        let directory = match self.find(name)? {
            Some((package, _)) => top(&package.path),
            None => self.broken_directory(name)?.ok_or_else(|| Error::NotFound { name: shown(name) })?,
        };
        lock.stage()?.remove(&directory)
    }

    /// The one skill at or below a directory of the store.
    pub fn scan(&self, path: &str) -> Result<Skill> {
        let start = self.existing_directory("scan path", path)?;
        let found = if start.as_os_str().is_empty() {
            let is_near = |package: &Package| package.path.components().count() <= SCAN_DEPTH_MAX;
            Package::all(&self.root)?.into_iter().filter(is_near).collect()
        } else {
            Package::below(&self.root, &start, SCAN_DEPTH_MAX)?
        };
        self.load(&Package::only(found, path, &self.path)?)
    }

    pub(crate) fn lock(&self) -> Result<Lock<'_>> {
        Lock::take(&self.root)
    }

    /// A package by the name of its skill.
    pub(crate) fn required(&self, name: &str) -> Result<(Package, Skill)> {
        self.find(name)?.ok_or_else(|| Error::NotFound { name: shown(name) })
    }

    /// Refuses names that skills of the store have, or each other, and more skills than a store may have.
    pub(crate) fn check_new_names<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Result<()> {
        let mut taken: Vec<String> = self.loaded()?.map(|skill| skill.name).collect();
        for name in names {
            if taken.iter().any(|it| it == name) {
                return Err(Error::NameTaken { name: name.to_owned() });
            }
            taken.push(name.to_owned());
        }
        if taken.len() > PACKAGES_MAX {
            let what = "The number of skills".to_owned();
            return Err(Error::TooMuch { what, limit: PACKAGES_MAX as u64, unit: "; delete one first" });
        }
        Ok(())
    }

    /// Refuses a directory at the top of the store that is taken.
    pub(crate) fn check_target(&self, target: &str) -> Result<()> {
        if name::RESERVED.contains(&target) || self.root.look(target)?.is_some() {
            return Err(Error::DirectoryTaken { path: target.to_owned() });
        }
        Ok(())
    }

    fn loaded(&self) -> Result<impl Iterator<Item = Skill>> {
        Ok(Package::all(&self.root)?.into_iter().filter_map(|package| self.load(&package).ok()))
    }

    fn load(&self, package: &Package) -> Result<Skill> {
        package.load(&self.root, &self.path.join(&package.path))
    }

    fn find(&self, name: &str) -> Result<Option<(Package, Skill)>> {
        let packages = Package::all(&self.root)?.into_iter();
        let named = packages
            .filter_map(|package| self.load(&package).ok().map(|skill| (package, skill)))
            .filter(|(_, skill)| skill.name == name.trim());
        Ok(named.max_by_key(|(_, skill)| skill.updated_at))
    }

    fn make(&self, lock: &Lock<'_>, name: String, new: &NewSkill) -> Result<Skill> {
        self.check_target(&name)?;
        let header = Header {
            name: Some(name.clone()),
            display_name: new.display_name.clone(),
            description: new.description.clone(),
        };
        let text = compose(&header, new.instructions.as_deref().unwrap_or_default())?;
        check_text_size(Path::new(ENTRY_FILES[0]), text.len())?;
        let stage = lock.stage()?;
        stage.make_directory(&stage.package(0))?;
        write_text(&stage, &stage.package(0).join(ENTRY_FILES[0]), &text)?;
        let skill = self.staged(&stage, 0, &name)?;
        stage.publish(&[name])?;
        Ok(skill)
    }

    /// Turns a package of the store into a skill of this name.
    fn adopt(&self, lock: &Lock<'_>, name: String, new: &NewSkill, package_root: &str) -> Result<Skill> {
        let path = self.existing_directory("package_root", package_root)?;
        let package = Package::at(&self.root, &path).filter(|_| !path.as_os_str().is_empty());
        let package = package.ok_or_else(|| Error::NoSkill { place: shown(package_root) })?;
        let (text, _) = read_text(&self.root, &package.entry_path())?;
        self.write_entry(lock, &package, &restated(&text, package.entry, name, new)?)
    }

    fn write_entry(&self, lock: &Lock<'_>, package: &Package, text: &str) -> Result<Skill> {
        let path = package.entry_path();
        check_text_size(&path, text.len())?;
        lock.stage()?.replace_file(&path, FILE_MODE, text.as_bytes())?;
        self.load(package)
    }

    /// The skill of a staged package, as it will be at its target.
    pub(crate) fn staged(&self, stage: &Stage<'_>, number: usize, target: &str) -> Result<Skill> {
        let package = Package::at(&self.root, &stage.package(number));
        let package = package.ok_or_else(|| Error::NoSkill { place: target.to_owned() })?;
        package.load(&self.root, &self.path.join(target))
    }

    /// A directory at the top of the store that has a name, and nothing readable in it.
    fn broken_directory(&self, name: &str) -> Result<Option<PathBuf>> {
        let Ok(name) = name::check(name) else { return Ok(None) };
        let path = PathBuf::from(&name);
        if name::RESERVED.contains(&name.as_str()) || kind(&self.root, &path) != Some(FileType::Directory) {
            return Ok(None);
        }
        let holds_skill = |package: Package| top(&package.path) == path && self.load(&package).is_ok();
        Ok((!Package::all(&self.root)?.into_iter().any(holds_skill)).then_some(path))
    }

    /// A host path as a path from the root of the store, which must be a directory.
    fn existing_directory(&self, field: &'static str, path: &str) -> Result<PathBuf> {
        let relative = self.relative(field, path)?;
        match self.root.below(&relative) {
            Ok(_) => Ok(relative),
            Err(error) if Error::is_absence(&error) => Err(Error::DirectoryNotFound { path: shown(path) }),
            Err(error) if Error::is_link(&error) => Err(Error::OutsideStore { field, path: shown(path) }),
            Err(error) => Err(error.into()),
        }
    }

    /// A host path as a path from the root of the store. Nothing is resolved: no link of the store may be in it.
    fn relative(&self, field: &'static str, path: &str) -> Result<PathBuf> {
        let outside = || Error::OutsideStore { field, path: shown(path) };
        let path = Path::new(path.trim());
        let Ok(relative) = path.strip_prefix(&self.path).or_else(|_| path.strip_prefix(&self.given)) else {
            return Err(outside());
        };
        let relative: PathBuf = relative.components().filter(|part| *part != Component::CurDir).collect();
        let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
        let is_reserved = name::RESERVED.iter().any(|name| relative.starts_with(name));
        if is_plain && !is_reserved { Ok(relative) } else { Err(outside()) }
    }
}

fn top(path: &Path) -> PathBuf {
    path.components().take(1).collect()
}

/// The entry file for a package of this name. Fields that the caller leaves empty stay unchanged.
pub(crate) fn restated(text: &str, entry: &'static str, name: String, new: &NewSkill) -> Result<String> {
    let document = Document::split(text);
    let old = document.header(entry)?;
    let stated = |value: &Option<String>| value.clone().filter(|value| !value.trim().is_empty());
    let header = Header {
        name: Some(name),
        display_name: stated(&new.display_name).or(old.display_name),
        description: stated(&new.description).or(old.description),
    };
    let instructions = stated(&new.instructions);
    document.rewritten(&header, instructions.as_deref().unwrap_or(document.instructions))
}

fn write_text(stage: &Stage<'_>, path: &Path, text: &str) -> Result<()> {
    stage.write_file(path, FILE_MODE, |file| write_all(file, text))
}

pub(crate) fn write_all(mut file: &std::fs::File, text: &str) -> Result<()> {
    use std::io::Write;
    Ok(file.write_all(text.as_bytes()).map_err(|error| box_core::Error::io("writing a skill", error))?)
}
