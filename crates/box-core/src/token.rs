//! Tokens: what opens a door. Only a hash is kept, so whoever reads the store can open nothing.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::caller::{Scope, TenantId};

/// What is remembered of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRow {
    /// Our public name for it, by which it is listed and revoked.
    pub id: String,
    /// What its owner called it.
    pub name: String,
    /// SHA-256 of the secret, in hexadecimal.
    pub hash: String,
    /// Whose sessions it opens.
    pub tenant: TenantId,
    /// What it allows.
    pub scopes: BTreeSet<Scope>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends to be good.
    pub expires_at: Option<Timestamp>,
}
