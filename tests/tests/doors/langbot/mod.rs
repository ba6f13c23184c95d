//! The LangBot door, as its clients of all versions speak to it: sessions, commands and managed processes in real boxes.

pub(crate) mod client;
mod commands;
mod mounts;
mod processes;
mod relay;
mod sessions;

use crate::DoorCase;

pub(crate) fn cases() -> Vec<DoorCase> {
    [commands::cases(), sessions::cases(), processes::cases(), relay::cases(), mounts::cases()]
        .into_iter()
        .flatten()
        .collect()
}
