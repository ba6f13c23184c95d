//! Sandboxes that need a grant: who may have one, for how long, and what is fixed in it whatever clients ask.
//!
//! It is off unless the settings require it. Once on it stays on: invalid settings, or settings that turn it off, make
//! the door refuse everyone.

mod grants;
mod policy;
mod readiness;
mod rewrite;

pub(crate) use grants::{Admitted, Change, Grant, Grants, Revocation};
pub(crate) use policy::{Policy, Rules};
pub(crate) use readiness::{Readiness, ReadinessFacts};
pub(crate) use rewrite::{check_session_id, rewrite};

use super::fault::{Class, Fault};

/// The only session that a workspace has when it needs a grant.
pub(crate) const SESSION: &str = "global";

fn denied(text: impl Into<String>) -> Fault {
    Fault::new(Class::Admission, text)
}
