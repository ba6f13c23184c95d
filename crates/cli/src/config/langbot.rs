//! The configuration of the LangBot door.

use std::path::{Path, PathBuf};

use door_langbot::LangBotConfig;

use super::schema::{Config, LangBotTable};
use super::{SOCKET, kind};
use crate::fault::Fault;

/// What makes a good secret, in words.
pub(crate) const TOKEN_RULE: &str = "a token must have at least 32 characters and no whitespace";

/// Largest file with a token.
const TOKEN_FILE_BYTES_MAX: u64 = 4096;

impl Config {
    /// What the LangBot door is given.
    pub(crate) fn langbot(&self) -> Result<LangBotConfig, Fault> {
        let LangBotTable { legacy, control_token_file, allowed_mount_roots, backend_name } = self.langbot.clone();
        Ok(LangBotConfig {
            legacy,
            control_token: control_token_file.as_deref().map(token).transpose()?,
            allowed_mount_roots,
            backend_name,
            data_dir: self.state_dir.join("langbot"),
            ..LangBotConfig::default()
        })
    }

    /// Moves the state elsewhere, and the socket with it. A socket that would have too long a name is left out.
    pub(crate) fn move_state(&mut self, state_dir: PathBuf) {
        let socket = state_dir.join(SOCKET);
        let fits = socket.as_os_str().len() <= kind::SOCKET_PATH_BYTES_MAX;
        self.unix_socket = self.unix_socket.take().and(fits.then_some(socket));
        self.state_dir = state_dir;
    }
}

fn token(path: &Path) -> Result<String, Fault> {
    use std::io::Read;
    let failed = |why: &dyn std::fmt::Display| {
        Fault::new(format!("langbot.control_token_file {} cannot be used: {why}", path.display()))
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    file.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text).map_err(|error| failed(&error))?;
    let token = text.trim_end();
    if LangBotConfig::is_control_token(token) { Ok(token.to_owned()) } else { Err(failed(&TOKEN_RULE)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Settings};

    fn config(table: &[(&str, &str)]) -> Config {
        Settings::load(None, &Environment::of(table), &[]).unwrap().config().unwrap()
    }

    #[test]
    fn the_token_is_the_content_of_a_file_and_must_be_a_good_one() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        let config = config(&[("STRONGBOX_LANGBOT_CONTROL_TOKEN_FILE", path.to_str().unwrap())]);
        assert!(config.langbot().unwrap_err().message.contains("control_token_file"));
        for (text, good) in [("x".repeat(31), false), ("x".repeat(32) + "\n", true), ("x ".repeat(32), false)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(config.langbot().is_ok(), good);
        }
    }

    #[test]
    fn the_keys_reach_the_door() {
        let config = config(&[("STRONGBOX_LANGBOT_LEGACY", "true"), ("STRONGBOX_LANGBOT_BACKEND_NAME", "nsjail")]);
        let langbot = config.langbot().unwrap();
        assert_eq!((langbot.legacy, langbot.backend_name.as_deref()), (true, Some("nsjail")));
        assert_eq!(langbot.allowed_mount_roots, None);
    }

    #[test]
    fn the_socket_moves_with_the_state_if_it_fits_and_is_wanted() {
        let mut moved = config(&[("STRONGBOX_UNIX_SOCKET", "/run/box.sock")]);
        moved.move_state(PathBuf::from("/a"));
        assert_eq!(moved.unix_socket.as_deref(), Some(Path::new("/a/strongbox.sock")));
        moved.move_state(PathBuf::from("/a".repeat(60)));
        assert_eq!(moved.unix_socket, None);
        let mut moved = config(&[("STRONGBOX_UNIX_SOCKET", "none")]);
        moved.move_state(PathBuf::from("/a"));
        assert_eq!(moved.unix_socket, None);
    }
}
