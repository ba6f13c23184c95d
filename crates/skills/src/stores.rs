//! The stores of all tenants, side by side below one root.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use box_core::TenantId;
use box_core::skills::{SkillInfo, Skills};

use crate::error::{Error, Result};
use crate::skill::Skill;
use crate::store::SkillStore;

/// Where the stores of tenants are, below the root.
const TENANTS: &str = "tenants";

/// The stores of all tenants. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SkillStores {
    /// Real path of the root.
    root: PathBuf,
}

impl SkillStores {
    /// Opens the root, made if it is missing.
    pub fn open(root: &Path) -> Result<Self> {
        let told = |error| box_core::Error::io(format!("making the skill store {}", root.display()), error);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(told)?;
        Ok(Self { root: root.canonicalize().map_err(told)? })
    }

    /// The store of a tenant, made if it is missing.
    pub fn of(&self, tenant: &TenantId) -> Result<SkillStore> {
        SkillStore::open(&self.place(tenant))
    }

    fn place(&self, tenant: &TenantId) -> PathBuf {
        // Tenant names have no percent signs, so this name is unique; a lone dot would lead elsewhere.
        let name = match tenant.as_str().strip_prefix('.') {
            Some(rest) => format!("%2E{rest}"),
            None => tenant.to_string(),
        };
        self.root.join(TENANTS).join(name)
    }

    /// Works on a tenant's store on a thread that may block. A tenant without a store has no skills.
    async fn look<T: Default + Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl FnOnce(&SkillStore) -> Result<T> + Send + 'static,
    ) -> box_core::Result<T> {
        let place = self.place(tenant);
        let look = move || if place.is_dir() { work(&SkillStore::open(&place)?) } else { Ok(T::default()) };
        let done = box_core::tasks::blocking(look).await;
        done.map_err(|error| box_core::Error::io("reading skills", std::io::Error::other(error)))?.map_err(told)
    }
}

#[async_trait]
impl Skills for SkillStores {
    async fn list(&self, tenant: &TenantId) -> box_core::Result<Vec<SkillInfo>> {
        self.look(tenant, |store| Ok(store.list()?.into_iter().map(info).collect())).await
    }

    async fn get(&self, tenant: &TenantId, name: &str) -> box_core::Result<Option<SkillInfo>> {
        let name = name.to_owned();
        self.look(tenant, move |store| Ok(store.get(&name)?.map(info))).await
    }

    async fn root(&self, tenant: &TenantId) -> box_core::Result<PathBuf> {
        Ok(self.place(tenant))
    }
}

fn info(skill: Skill) -> SkillInfo {
    SkillInfo {
        name: skill.name,
        display_name: skill.display_name,
        description: skill.description,
        instructions: skill.instructions,
        package_root: skill.package_root,
        entry_file: skill.entry_file,
        python_project: skill.python_project,
    }
}

fn told(error: Error) -> box_core::Error {
    match error {
        Error::System(error) => error,
        error => box_core::Error::Unavailable {
            what: "the skill store".to_owned(),
            reason: error.to_string(),
            fix: "look at what is in it".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skill::NewSkill;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn tenants_see_their_own_skills() {
        let directory = tempfile::tempdir().unwrap();
        let stores = SkillStores::open(&directory.path().join("skills")).unwrap();
        let new = NewSkill { name: "mine".into(), instructions: Some("do it".into()), ..NewSkill::default() };
        stores.of(&tenant("a")).unwrap().create(&new).unwrap();
        let mine = stores.list(&tenant("a")).await.unwrap();
        assert_eq!(mine.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(), ["mine"]);
        let root = stores.root(&tenant("a")).await.unwrap();
        assert_eq!(mine[0].package_root, root.join("mine").to_str().unwrap());
        assert_eq!(stores.get(&tenant("a"), "mine").await.unwrap().unwrap().instructions.trim(), "do it");
        assert!(stores.list(&tenant("b")).await.unwrap().is_empty());
        assert!(stores.get(&tenant("b"), "mine").await.unwrap().is_none());
        assert!(!directory.path().join("skills/tenants/b").exists(), "looking makes nothing");
    }

    #[tokio::test]
    async fn a_name_of_dots_stays_among_the_tenants() {
        let directory = tempfile::tempdir().unwrap();
        let stores = SkillStores::open(directory.path()).unwrap();
        let tenants = directory.path().canonicalize().unwrap().join(TENANTS);
        for name in [".", "..", "..."] {
            let root = stores.root(&tenant(name)).await.unwrap();
            assert_eq!(root.parent(), Some(tenants.as_path()), "{name}");
        }
    }
}
