//! Skill packages of a workspace.

mod elsewhere;

use std::path::{Path, PathBuf};

use box_skills::{Error, FileQuery, NewSkill, Selection, Skill, SkillChange, SkillStore, ZipRequest};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::{Answer, Call, told};
use crate::LangBot;
use crate::fault::{Class, Fault};
use crate::standing::blocking;
use crate::tenancy::TenancyScope;
use elsewhere::Elsewhere;

/// Archives that are unpacked at the same time, of all clients: each takes memory.
static ARCHIVES: Semaphore = Semaphore::const_new(4);
/// The directory for skills of workspaces, below that of legacy clients.
const TENANTS: &str = "tenants";

/// All skills.
pub(super) async fn list(call: &Call<'_>) -> Answer {
    in_store(call, |store| Ok(told("skills", value(store.list()?)?))).await
}

/// One skill, if there is one of that name.
pub(super) async fn get(call: &Call<'_>) -> Answer {
    let name = call.text("name")?.to_owned();
    in_store(call, move |store| Ok(told("skill", value(store.get(&name)?)?))).await
}

/// Makes a skill.
pub(super) async fn create(call: &Call<'_>) -> Answer {
    let new: NewSkill = read(skill_of(call)?)?;
    let elsewhere = Elsewhere::of(call, new.package_root.as_deref().unwrap_or_default());
    let _turn = ARCHIVES.acquire().await;
    in_store(call, move |store| {
        store.check_new(&new.name)?;
        let created = match (store.inner.create(&new), elsewhere) {
            (Err(Error::OutsideStore { field, .. }), Some(elsewhere)) => {
                store.inner.import(&new, &elsewhere.open(field)?)
            }
            (created, _) => created,
        };
        Ok(told("skill", value(created.map_err(store.fault())?)?))
    })
    .await
}

/// Changes what a skill says.
pub(super) async fn update(call: &Call<'_>) -> Answer {
    let (name, change): (_, SkillChange) = (call.text("name")?.to_owned(), read(skill_of(call)?)?);
    in_store(call, move |store| Ok(told("skill", value(store.of(&name)?.update(&name, &change)?)?))).await
}

/// Removes a skill.
pub(super) async fn delete(call: &Call<'_>) -> Answer {
    let name = call.text("name")?.to_owned();
    in_store(call, move |store| {
        store.of(&name)?.delete(&name)?;
        Ok(told("deleted", name))
    })
    .await
}

/// The skill in a directory.
pub(super) async fn scan(call: &Call<'_>) -> Answer {
    let path = call.text("path")?.to_owned();
    let elsewhere = Elsewhere::of(call, &path);
    in_store(call, move |store| match (store.scan(&path), elsewhere) {
        (Err(Error::OutsideStore { field, .. }), Some(elsewhere)) => object(elsewhere.open(field)?.scan()?),
        (scanned, _) => object(scanned?),
    })
    .await
}

/// Files of a skill.
pub(super) async fn list_files(call: &Call<'_>) -> Answer {
    if call.data.get("max_entries").is_some_and(|number| !number.is_null() && number.as_u64().is_none()) {
        return Err(Error::EntriesZero.into());
    }
    let (name, query): (_, FileQuery) = (call.text("name")?.to_owned(), read(&call.data)?);
    in_store(call, move |store| object(store.of(&name)?.list_files(&name, &query)?)).await
}

/// A file of a skill.
pub(super) async fn read_file(call: &Call<'_>) -> Answer {
    let (name, path) = (call.text("name")?.to_owned(), call.text("path")?.to_owned());
    in_store(call, move |store| {
        let content = store.of(&name)?.read_file(&name, &path).map_err(store.fault())?;
        object(json!({ "skill": { "name": name }, "path": SkillStore::normal_path(&path)?, "content": content }))
    })
    .await
}

/// Writes a file of a skill.
pub(super) async fn write_file(call: &Call<'_>) -> Answer {
    let (name, path) = (call.text("name")?.to_owned(), call.text("path")?.to_owned());
    let content = if call.data.contains_key("content") { call.text("content")?.to_owned() } else { String::new() };
    in_store(call, move |store| {
        let written = store.of(&name)?.write_file(&name, &path, &content)?;
        object(json!({ "skill": { "name": name }, "path": SkillStore::normal_path(&path)?, "bytes_written": written }))
    })
    .await
}

/// Lists the skills of an archive.
pub(super) async fn preview_zip(call: &Call<'_>) -> Answer {
    let request: ZipRequest = read(&call.data)?;
    let archive = call.connection.uploads.take(call.text("file_key")?)?;
    let _turn = ARCHIVES.acquire().await;
    in_store(call, move |store| {
        let previews = store.inner.preview_zip(&archive, &request).map_err(store.fault())?;
        Ok(told("skills", value(previews)?))
    })
    .await
}

/// Makes skills of an archive.
pub(super) async fn install_zip(call: &Call<'_>) -> Answer {
    let (request, selection): (ZipRequest, Selection) = (read(&call.data)?, read(&call.data)?);
    let archive = call.connection.uploads.take(call.text("file_key")?)?;
    let _turn = ARCHIVES.acquire().await;
    in_store(call, move |store| {
        let installed = store.inner.install_zip(&archive, &request, &selection).map_err(store.fault())?;
        Ok(told("skills", value(installed)?))
    })
    .await
}

impl LangBot {
    /// The package of a skill on the host.
    pub(crate) async fn skill_package(&self, place: &TenancyScope, name: &str) -> Result<String, Fault> {
        let (root, name) = (self.skills_of(place), name.to_owned());
        blocking(move || {
            let found = Store::open(root)?.get(&name)?;
            let missing = || refused(format!("Skill {} not found", name.chars().take(64).collect::<String>()));
            found.map(|skill| skill.package_root).ok_or_else(missing)
        })
        .await?
    }

    fn skills_of(&self, place: &TenancyScope) -> Root {
        let root = self.settings().skills_root().to_owned();
        match place {
            TenancyScope::Legacy => Root { path: root, hides_tenants: true },
            TenancyScope::Workspace { namespace, .. } => {
                Root { path: root.join(TENANTS).join(namespace), hides_tenants: false }
            }
        }
    }
}

/// The directory of a place's skills.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    hides_tenants: bool,
}

/// The skills that a client can see. The workspaces' own are below the root of clients that name nothing, and are not theirs.
struct Store {
    inner: SkillStore,
    root: PathBuf,
    tenants: Option<PathBuf>,
}

impl Store {
    fn open(root: Root) -> Result<Self, Fault> {
        let inner = SkillStore::open(&root.path).map_err(Fault::from)?;
        let real = root.path.canonicalize().unwrap_or(root.path);
        Ok(Self { inner, tenants: root.hides_tenants.then(|| real.join(TENANTS)), root: real })
    }

    /// Words an error that depends on where the store is, or on the age of the client.
    fn fault(&self) -> impl Fn(Error) -> Fault {
        let absolute = |path: String| self.root.join(path).display().to_string();
        move |error| match error {
            // Clients know these directories: they are the `package_root` of their skills.
            Error::DirectoryTaken { path } => Error::DirectoryTaken { path: absolute(path) }.into(),
            Error::TargetTwice { path } => Error::TargetTwice { path: absolute(path) }.into(),
            // Clients without tenancy are of 0.4, which words it so.
            Error::NotText { path } if self.tenants.is_some() => {
                refused(format!("Skill file is not valid UTF-8 text: {path}"))
            }
            error => error.into(),
        }
    }

    fn sees(&self, skill: &Skill) -> bool {
        self.tenants.as_ref().is_none_or(|tenants| !Path::new(&skill.package_root).starts_with(tenants))
    }

    fn list(&self) -> Result<Vec<Skill>, Fault> {
        let mut skills = self.inner.list().map_err(Fault::from)?;
        skills.retain(|skill| self.sees(skill));
        Ok(skills)
    }

    fn get(&self, name: &str) -> Result<Option<Skill>, Fault> {
        Ok(self.inner.get(name).map_err(Fault::from)?.filter(|skill| self.sees(skill)))
    }

    fn scan(&self, path: &str) -> Result<Skill, Error> {
        let skill = self.inner.scan(path)?;
        if self.sees(&skill) { Ok(skill) } else { Err(Error::NoSkill { place: path.to_owned() }) }
    }

    /// The store, for something that is done to a skill of this name.
    fn of(&self, name: &str) -> Result<&SkillStore, Fault> {
        let hidden = self.inner.get(name).ok().flatten().is_some_and(|skill| !self.sees(&skill));
        if hidden {
            Err(refused(format!("Skill \"{name}\" not found")))
        } else {
            self.check_new(name).map(|()| &self.inner)
        }
    }

    fn check_new(&self, name: &str) -> Result<(), Fault> {
        if self.tenants.is_some() && name.trim() == TENANTS {
            return Err(refused(format!("Skill name {TENANTS} is reserved")));
        }
        Ok(())
    }
}

/// Works on the caller's skill store, on a thread that may block.
async fn in_store(call: &Call<'_>, work: impl FnOnce(&Store) -> Answer + Send + 'static) -> Answer {
    let root = call.door.skills_of(&call.place);
    blocking(move || work(&Store::open(root)?)).await?
}

fn skill_of<'a>(call: &'a Call<'_>) -> Result<&'a Map<String, Value>, Fault> {
    let skill = call.data.get("skill").ok_or_else(|| Fault::missing("skill"))?;
    skill.as_object().ok_or_else(|| refused("skill must be an object"))
}

/// Reads what is known of an object; `null` is as good as nothing.
fn read<T: DeserializeOwned>(data: &Map<String, Value>) -> Result<T, Fault> {
    let given = data.iter().filter(|(_, value)| !value.is_null());
    let given = given.map(|(name, value)| (name.clone(), value.clone())).collect();
    serde_json::from_value(Value::Object(given)).map_err(|error| refused(error.to_string()))
}

fn value(told: impl serde::Serialize) -> Result<Value, Fault> {
    serde_json::to_value(told).map_err(|error| refused(error.to_string()))
}

fn object(told: impl serde::Serialize) -> Answer {
    match value(told)? {
        Value::Object(object) => Ok(object),
        _ => Err(refused("there is nothing to tell")),
    }
}

fn refused(text: impl Into<String>) -> Fault {
    Fault::new(Class::Validation, text)
}
