//! `strongbox config check`: whether a file is good, without using it.

use std::path::Path;

use super::{Environment, Settings};
use crate::fault::Fault;
use crate::listing;

/// Reads a file as a server would, with nothing but the defaults below it.
pub(crate) fn main(file: &Path) -> Result<u8, Fault> {
    let settings = Settings::load(Some(file), &Environment::default(), &[])?;
    settings.config()?;
    let is_set =
        |setting: Option<&super::Setting>| setting.is_some_and(|setting| setting.origin != super::Origin::Default);
    let count = settings.iter().filter(|(_, setting)| is_set(*setting)).count();
    listing::write_out(format!("{}: good, {count} keys set\n", file.display()).as_bytes())
}
