//! Skill packages: directories with a `SKILL.md` that explains a task to an agent, and the files for it.
//!
//! A [`SkillStore`] is one tenant's directory of them. Packages come from strangers and boxes can write into them, so every
//! tree is touched through [`box_core::SafeRoot`] only, everything has a limit, and nothing in a package is ever run here.

mod archive;
mod checkout;
mod error;
pub mod fault;
mod files;
mod front_matter;
#[cfg(fuzzing)]
pub mod fuzzing;
mod install;
pub mod limits;
mod name;
mod package;
mod package_path;
mod skill;
mod staging;
mod store;
mod stores;

pub use checkout::{HostDirectory, archive_of};
pub use error::{Error, Result, archive_entry, listed};
pub use install::digest;
pub use skill::{
    FileEntry, FileList, FileQuery, NewSkill, Preview, Selection, Skill, SkillChange, SkillReference, ZipRequest,
};
pub use store::SkillStore;
pub use stores::SkillStores;
