//! What an operator can set: defaults, then a file, then the environment, then flags. The later one wins, key by key, and
//! where each value came from can be asked.

mod backends;
mod check;
mod definition;
mod e2b;
mod effective;
mod environment;
mod example;
mod file;
mod flags;
mod host;
mod key;
mod kind;
mod langbot;
mod nearest;
mod schema;
mod show;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::fault::Fault;
use crate::listing;

pub(crate) use self::backends::BackendRequest;
pub(crate) use self::effective::OnStop;
pub(crate) use self::environment::Environment;
pub(crate) use self::flags::{Flag, KeyFlags};
pub(crate) use self::host::HostPlaces;
use self::key::{KEYS, Key};
pub(crate) use self::langbot::TOKEN_RULE;
pub(crate) use self::schema::Config;
use self::value::Value;

/// The socket of a server, in its state directory.
const SOCKET: &str = "strongbox.sock";

/// The skills of a server, in its state directory.
const SKILLS: &str = "skills";

/// `strongbox config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Show every key with its value and where that came from
    Show(show::ShowOptions),
    /// Print a file with every key, what it means and its default, all of it commented out
    #[command(after_help = "\
Examples:
  Begin with a file that changes nothing:
    strongbox config example > /etc/strongbox/config.toml")]
    Example,
    /// Check a file without using it; exits with 125 when something is wrong, and tells all of it
    #[command(after_help = "\
Examples:
  Check a file before the server reads it again:
    strongbox config check /etc/strongbox/config.toml && systemctl reload strongbox")]
    Check {
        /// The file
        file: PathBuf,
    },
}

/// Carries `strongbox config` out.
pub(crate) fn main(verb: &ConfigVerb) -> Result<u8, Fault> {
    match verb {
        ConfigVerb::Show(options) => show::main(options),
        ConfigVerb::Example => listing::write_out(example::file().as_bytes()),
        ConfigVerb::Check { file } => check::main(file),
    }
}

/// Where the configuration is, for every command that needs it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct PlaceOptions {
    /// The file to read, instead of STRONGBOX_CONFIG or the usual place
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where the server keeps its state; also STRONGBOX_STATE_DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<String>,
}

impl PlaceOptions {
    /// What was typed, as flags of the configuration.
    pub(crate) fn flags(&self) -> Vec<Flag> {
        Flag::given(&[("--state-dir", "state_dir", &self.state_dir)])
    }

    /// The configuration that holds for this command.
    pub(crate) fn settings(&self, flags: &[Flag]) -> Result<Settings, Fault> {
        Settings::load(self.config.as_deref(), &Environment::of_process()?, flags)
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Nobody said anything.
    Default,
    /// A file, by line.
    File(PathBuf, usize),
    /// A variable.
    Variable(String),
    /// A flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A value and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    /// The value.
    pub(crate) value: Value,
    /// Where it came from.
    pub(crate) origin: Origin,
}

/// The effective configuration, key by key. Certificates have no entry when nobody gave them.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    by_key: BTreeMap<&'static str, Setting>,
    file: Option<PathBuf>,
}

impl Settings {
    /// Lays one source over the other. Every problem is told, not only the first.
    pub(crate) fn load(file: Option<&Path>, environment: &Environment, flags: &[Flag]) -> Result<Self, Fault> {
        let mut loader = Loader { by_key: BTreeMap::new(), problems: Vec::new() };
        loader.defaults();
        let file = environment.config_file(file)?;
        if let Some(path) = &file {
            loader.file(path);
        }
        loader.environment(environment);
        loader.flags(flags);
        loader.derive();
        if loader.problems.is_empty() {
            return Ok(Self { by_key: loader.by_key, file });
        }
        Err(Fault::new(loader.problems.join("\n")).hint("the keys are described in docs/config.md"))
    }

    /// The same for a server that one client starts and ends: boxes that are not persistent end with it, unless configured
    /// otherwise.
    pub(crate) fn of_one_client(mut self) -> Self {
        let on_stop = self.by_key.get_mut("on_stop").filter(|setting| setting.origin == Origin::Default);
        if let Some(setting) = on_stop {
            setting.value = Value::text("keep-persistent");
        }
        self
    }

    /// One setting, when it has a value.
    pub(crate) fn get(&self, name: &str) -> Option<&Setting> {
        self.by_key.get(name)
    }

    /// All keys in order, with their settings.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, Option<&Setting>)> {
        KEYS.iter().map(|key| (key.name.as_str(), self.get(&key.name)))
    }

    /// The file that was read, if there was one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Keys whose value differs although a running server cannot take it over.
    pub(crate) fn needing_restart(&self, newer: &Self) -> Vec<&'static str> {
        let value = |settings: &Self, key: &Key| settings.get(&key.name).map(|setting| setting.value.clone());
        let differs = |key: &&'static Key| !key.live && value(self, key) != value(newer, key);
        KEYS.iter().filter(differs).map(|key| key.name.as_str()).collect()
    }
}

struct Loader {
    by_key: BTreeMap<&'static str, Setting>,
    problems: Vec<String>,
}

impl Loader {
    fn defaults(&mut self) {
        for key in KEYS.iter() {
            if let Some(value) = key.default.clone() {
                self.by_key.insert(&key.name, Setting { value, origin: Origin::Default });
            }
        }
    }

    fn file(&mut self, path: &Path) {
        match file::read(path) {
            Ok(entries) => {
                let set = |(key, value, line): (&'static Key, _, _)| {
                    (key.name.as_str(), Setting { value, origin: Origin::File(path.to_owned(), line) })
                };
                self.by_key.extend(entries.into_iter().map(set));
            }
            Err(problems) => self.problems.extend(problems),
        }
    }

    fn environment(&mut self, environment: &Environment) {
        for key in KEYS.iter() {
            for variable in key.variable().into_iter().chain(key.shared_variable.map(str::to_owned)) {
                if let Some(text) = environment.get(&variable) {
                    self.text(key, text, Origin::Variable(variable));
                }
            }
        }
    }

    fn flags(&mut self, flags: &[Flag]) {
        for flag in flags {
            if let Some(key) = Key::find(flag.key) {
                self.text(key, &flag.text, Origin::Flag(flag.name));
            }
        }
    }

    fn text(&mut self, key: &'static Key, text: &str, origin: Origin) {
        match key.kind.read_text(text) {
            Ok(value) => drop(self.by_key.insert(&key.name, Setting { value, origin })),
            Err(allowed) => {
                let text = if key.is_secret() { "…" } else { text };
                self.problems.push(format!("{origin}: {} = {text:?} is not allowed; use {allowed}", key.name));
            }
        }
    }

    /// What follows from other keys, and what only makes sense together.
    fn derive(&mut self) {
        if let Some(Setting { value: Value::Text(state_dir), .. }) = self.by_key.get("state_dir") {
            let socket = Value::text(format!("{}/{SOCKET}", state_dir.trim_end_matches('/')));
            let skills = Value::text(format!("{}/{SKILLS}", state_dir.trim_end_matches('/')));
            if !self.by_key.contains_key("unix_socket") {
                if Key::find("unix_socket").is_some_and(|key| key.kind.check(&socket).is_err()) {
                    let max = kind::SOCKET_PATH_BYTES_MAX;
                    self.problems
                        .push(format!("{socket} is too long for a socket (at most {max} bytes); set unix_socket"));
                }
                self.by_key.insert("unix_socket", Setting { value: socket, origin: Origin::Default });
            }
            self.by_key.entry("skills_root").or_insert(Setting { value: skills, origin: Origin::Default });
        }
        self.derive_host_places();
        self.check_names();
        let is = |key: &str, text: &str| self.by_key.get(key).is_some_and(|setting| setting.value == Value::text(text));
        if is("listen", "none") && is("unix_socket", "none") {
            self.problems.push("listen and unix_socket are both \"none\"; the server needs one of them".to_owned());
        }
        for (given, missing) in [("tls.certificate", "tls.key"), ("tls.key", "tls.certificate")] {
            if let Some(setting) = self.by_key.get(given).filter(|_| !self.by_key.contains_key(missing)) {
                self.problems
                    .push(format!("{}: {given} is set without {missing}; set both or neither", setting.origin));
            }
        }
    }
}

#[cfg(test)]
mod tests;
