//! `docker run IMAGE …`: boxes have no engine, but they have images. The image becomes that of the box, and options become box options.

use std::collections::BTreeMap;

use box_core::limits::WORKSPACE;
use box_wire::Invalid;
use serde_json::{Map, Value, json};

use crate::limits::{IGNORED_FIELDS_SHOWN_MAX, QUOTED_CHARS_MAX};

/// Container engines that are recognized.
const ENGINES: [&str; 4] = ["docker", "docker.exe", "podman", "podman.exe"];
/// Options before the verb that take no value; all others take one.
const GLOBAL_SWITCHES: [&str; 11] = [
    "--debug",
    "--help",
    "--remote",
    "--syslog",
    "--tls",
    "--tlsverify",
    "--trace",
    "--transient-store",
    "--version",
    "-D",
    "-r",
];
/// Long options of `run` that take no value, of Docker and Podman; all others take one.
const SWITCHES: [&str; 26] = [
    "detach",
    "disable-content-trust",
    "env-host",
    "help",
    "http-proxy",
    "init",
    "interactive",
    "no-healthcheck",
    "no-hostname",
    "no-hosts",
    "oom-kill-disable",
    "passwd",
    "privileged",
    "publish-all",
    "quiet",
    "read-only",
    "read-only-tmpfs",
    "replace",
    "rm",
    "rmi",
    "rootfs",
    "sig-proxy",
    "tls-verify",
    "tty",
    "unsetenv-all",
    "use-api-socket",
];
/// Options that ask for what a box does anyway, or that do not apply to one.
const NEEDLESS: [&str; 11] =
    ["init", "interactive", "name", "no-healthcheck", "pull", "quiet", "replace", "rm", "rmi", "sig-proxy", "tty"];
/// Short options and their long names. Other letters take a value and are ignored.
const SHORT: [(char, &str); 13] = [
    ('P', "publish-all"),
    ('c', "cpu-shares"),
    ('d', "detach"),
    ('e', "env"),
    ('i', "interactive"),
    ('m', "memory"),
    ('p', "publish"),
    ('q', "quiet"),
    ('t', "tty"),
    ('u', "user"),
    ('v', "volume"),
    ('w', "workdir"),
    ('h', "hostname"),
];
const MIB: u64 = 1 << 20;

/// A parsed `docker run` command line.
#[derive(Debug, Default)]
struct Run {
    image: String,
    args: Vec<String>,
    entrypoint: Option<String>,
    cwd: Option<String>,
    env: Vec<(String, Option<String>)>,
    mounts: Vec<Mount>,
    options: Map<String, Value>,
    /// Unsupported options.
    ignored: Vec<String>,
}

/// What a definition calls.
enum Called {
    /// `run`, with these arguments.
    Run(Vec<String>),
    /// Another verb of this engine.
    Engine(&'static str),
    /// No engine.
    Other,
}

/// A host directory mounted in a container.
#[derive(Debug)]
struct Mount {
    source: String,
    target: String,
    mode: &'static str,
}

/// Turns a definition that calls an engine into one with an image. Returns remarks on what differs.
pub(super) fn unwrap(ours: &mut BTreeMap<&str, Value>) -> Result<Vec<String>, Invalid> {
    let words = match called(ours) {
        Called::Run(words) => words,
        Called::Engine(program) => return Ok(vec![no_engine(program)]),
        Called::Other => return Ok(Vec::new()),
    };
    let run = Run::parse(&words)?;
    let mut remarks = vec![format!("docker run is taken as box.image = {:?}; no engine is called", shown(&run.image))];
    let env = environment(&run, ours.get("env"), &mut remarks)?;
    remarks.extend(run.remarks());
    let mut options = run.options;
    options.insert("image".to_owned(), json!(run.image));
    let mount = run.mounts.first();
    if let Some(mount) = mount {
        options.insert("host_path".to_owned(), json!(mount.source));
        options.insert("host_path_mode".to_owned(), json!(mount.mode));
    }
    // Box options of the entry itself win.
    if let Some(Value::Object(written)) = ours.get("box") {
        options.extend(written.clone());
    }
    // What the command names is in the image, even where this machine has a directory of that name.
    let is_unset = |field: &str| options.get(field).is_none_or(Value::is_null);
    if is_unset("host_path") && is_unset("host_path_mode") {
        options.insert("host_path_mode".to_owned(), json!("none"));
    }
    let translate = |text: &String| mount.map_or_else(|| text.clone(), |mount| mount.on_host(text));
    ours.insert("args", run.args.iter().map(translate).collect());
    let env = env.into_iter().map(|(name, value)| match value {
        Value::String(value) => (name, json!(translate(&value))),
        // Rejected when the definition is parsed.
        other => (name, other),
    });
    ours.insert("env", Value::Object(env.collect()));
    ours.insert("box", Value::Object(options));
    ours.remove("command");
    ours.remove("cwd");
    ours.extend(run.entrypoint.map(|entrypoint| ("command", json!(entrypoint))));
    ours.extend(run.cwd.as_ref().map(|cwd| ("cwd", json!(translate(cwd)))));
    Ok(remarks)
}

/// Reads what a definition calls.
fn called(ours: &BTreeMap<&str, Value>) -> Called {
    let command = ours.get("command").and_then(Value::as_str).unwrap_or_default();
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    let Some(program) = ENGINES.into_iter().find(|engine| *engine == name) else { return Called::Other };
    let args = ours.get("args").and_then(Value::as_array);
    let args: Option<Vec<&str>> = args.into_iter().flatten().map(Value::as_str).collect();
    // Rejected when the definition is parsed.
    let Some(args) = args else { return Called::Other };
    match without_global_options(&args) {
        ["container", "run", words @ ..] | ["run", words @ ..] => {
            Called::Run(words.iter().map(|word| (*word).to_owned()).collect())
        }
        _ => Called::Engine(program),
    }
}

/// The verb and what follows it. No engine is called, so it does not matter which one was meant.
fn without_global_options<'a>(mut args: &'a [&'a str]) -> &'a [&'a str] {
    while let [option, rest @ ..] = args
        && option.starts_with('-')
    {
        let has_value = !option.contains('=') && !GLOBAL_SWITCHES.contains(option);
        args = if has_value { rest.get(1..).unwrap_or_default() } else { rest };
    }
    args
}

fn no_engine(program: &str) -> String {
    format!("boxes have no container engine, so {program} fails there; only {program} run IMAGE is translated")
}

impl Run {
    fn parse(words: &[String]) -> Result<Self, Invalid> {
        let mut run = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--" {
                run.image = words.next().cloned().unwrap_or_default();
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, value.to_owned()),
                    None if SWITCHES.contains(&long) => (long, "true".to_owned()),
                    None => (long, value_of(word, words.next())?),
                };
                run.option(name, &value, word)?;
            } else if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                run.letters(letters, word, &mut words)?;
            } else {
                run.image.clone_from(word);
                break;
            }
        }
        run.args = words.cloned().collect();
        if run.image.is_empty() {
            return Err(Invalid::new("args", "run", "docker run [OPTION…] IMAGE [ARGUMENT…]"));
        }
        Ok(run)
    }

    /// Short options, which may be combined: `-it`, `-eNAME`.
    fn letters<'w>(
        &mut self,
        letters: &str,
        word: &str,
        words: &mut impl Iterator<Item = &'w String>,
    ) -> Result<(), Invalid> {
        for (at, letter) in letters.char_indices() {
            let name = SHORT.iter().find(|(short, _)| *short == letter).map(|(_, name)| *name);
            if name.is_some_and(|name| SWITCHES.contains(&name)) {
                self.option(name.unwrap_or_default(), "true", word)?;
                continue;
            }
            let behind = &letters[at + letter.len_utf8()..];
            let behind = behind.strip_prefix('=').unwrap_or(behind);
            let value = if behind.is_empty() { value_of(word, words.next())? } else { behind.to_owned() };
            return self.option(name.unwrap_or(word), &value, &format!("-{letter}"));
        }
        Ok(())
    }

    fn option(&mut self, name: &str, value: &str, written: &str) -> Result<(), Invalid> {
        let is_on = value != "false";
        match name {
            "env" => {
                let (name, value) = value.split_once('=').map_or((value, None), |(name, value)| (name, Some(value)));
                self.env.push((name.to_owned(), value.map(str::to_owned)));
            }
            "volume" | "mount" => match Mount::parse(name, value) {
                Some(mount) => self.mounts.push(mount),
                None => self.ignored.push(format!("--{name} without a directory of this machine")),
            },
            // What is called an image is then a directory of this machine.
            "rootfs" if is_on => return Err(Invalid::new("args", "--rootfs", "an image: boxes run no directory")),
            "entrypoint" => self.entrypoint = Some(value.to_owned()),
            "workdir" => self.cwd = Some(value.to_owned()),
            "read-only" => self.set("read_only_rootfs", json!(is_on)),
            "network" | "net" if value == "none" => self.set("network", json!("off")),
            "network" | "net" if ["bridge", "default"].contains(&value) => {}
            "memory" => {
                let refused = || Invalid::new("args", shown(value), "a size for --memory, such as 512m");
                self.set("memory_mb", json!(mebibytes(value).ok_or_else(refused)?));
            }
            "cpus" | "pids-limit" => {
                let refused = |_| Invalid::new("args", shown(value), format!("a number for --{name}"));
                let number: serde_json::Number = value.parse().map_err(refused)?;
                self.set(if name == "cpus" { "cpus" } else { "pids_limit" }, Value::Number(number));
            }
            _ if NEEDLESS.contains(&name) || !is_on => {}
            // Only the name: the value may be a secret.
            _ => self.ignored.push(shown(written.split('=').next().unwrap_or_default())),
        }
        Ok(())
    }

    fn set(&mut self, field: &str, value: Value) {
        self.options.insert(field.to_owned(), value);
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.ignored.is_empty() {
            let names: Vec<_> = self.ignored.iter().take(IGNORED_FIELDS_SHOWN_MAX).map(String::as_str).collect();
            remarks.push(format!("{} of docker run means nothing here and is ignored", names.join(", ")));
        }
        if let Some(Mount { source, target, .. }) = self.mounts.first() {
            let (source, target) = (shown(source), shown(target));
            remarks.push(format!("{source} is at {WORKSPACE} instead of {target}; arguments are changed accordingly"));
        }
        if self.mounts.len() > 1 {
            let others: Vec<_> = self.mounts[1..].iter().take(IGNORED_FIELDS_SHOWN_MAX).collect();
            let others: Vec<_> = others.iter().map(|mount| shown(&mount.source)).collect();
            let others = others.join(", ");
            remarks
                .push(format!("a server sees one directory; {others} is left out, or set box.host_path to one above"));
        }
        remarks
    }
}

impl Mount {
    fn parse(option: &str, value: &str) -> Option<Self> {
        let mount = if option == "volume" { Self::of_volume(value)? } else { Self::of_mount(value)? };
        // A name without a slash is a volume of the engine, which boxes do not have.
        (mount.source.starts_with('/') && mount.target.starts_with('/')).then_some(mount)
    }

    /// `/host:/container[:ro]`
    fn of_volume(value: &str) -> Option<Self> {
        let mut parts = value.split(':');
        let (source, target) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let is_read_only = parts.next().is_some_and(|options| options.split(',').any(|option| option == "ro"));
        Some(Self { source, target, mode: mode(is_read_only) })
    }

    /// `type=bind,src=/host,dst=/container[,readonly]`
    fn of_mount(value: &str) -> Option<Self> {
        let fields: BTreeMap<&str, &str> =
            value.split(',').map(|field| field.split_once('=').unwrap_or((field, "true"))).collect();
        let field = |names: &[&str]| names.iter().find_map(|name| fields.get(name).copied());
        if field(&["type"]).is_some_and(|of| of != "bind") {
            return None;
        }
        let source = field(&["src", "source"])?.to_owned();
        let target = field(&["dst", "target", "destination"])?.to_owned();
        let is_read_only = field(&["ro", "readonly"]).is_some_and(|value| ["true", "1"].contains(&value));
        Some(Self { source, target, mode: mode(is_read_only) })
    }

    /// Maps a path in the container to a path on this machine, as the rest of a definition uses.
    fn on_host(&self, text: &str) -> String {
        let target = self.target.trim_end_matches('/');
        match text.strip_prefix(target) {
            Some(below) if !target.is_empty() && (below.is_empty() || below.starts_with('/')) => {
                format!("{}{below}", self.source.trim_end_matches('/'))
            }
            _ => text.to_owned(),
        }
    }
}

fn mode(is_read_only: bool) -> &'static str {
    if is_read_only { "ro" } else { "rw" }
}

/// The environment of the container: variables named by `-e`, with values from the entry if `-e` has none.
fn environment(run: &Run, written: Option<&Value>, remarks: &mut Vec<String>) -> Result<Map<String, Value>, Invalid> {
    let empty = Map::new();
    let written = match written {
        None => &empty,
        Some(Value::Object(written)) => written,
        Some(_) => return Err(Invalid::new("env", "", "an object of texts, such as {\"NAME\": \"value\"}")),
    };
    let mut env = Map::new();
    let mut missing = Vec::new();
    for (name, value) in &run.env {
        match value.as_ref().map(|value| json!(value)).or_else(|| written.get(name).cloned()) {
            Some(value) => drop(env.insert(name.clone(), value)),
            None => missing.push(shown(name)),
        }
    }
    let unpassed: Vec<_> = written.keys().filter(|name| !env.contains_key(*name)).map(|name| shown(name)).collect();
    let mut tell = |names: &[String], what: &str| {
        if !names.is_empty() {
            let names: Vec<_> = names.iter().take(IGNORED_FIELDS_SHOWN_MAX).map(String::as_str).collect();
            remarks.push(format!("{} {what}", names.join(", ")));
        }
    };
    tell(&missing, "is passed with -e and has no value in env; define it there");
    tell(&unpassed, "in env is not passed with -e and is left out");
    Ok(env)
}

fn value_of(option: &str, value: Option<&String>) -> Result<String, Invalid> {
    value.cloned().ok_or_else(|| Invalid::new("args", shown(option), "a value after this option, and then an image"))
}

/// Parses an engine's size, in whole MiB.
fn mebibytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let text = text.strip_suffix('b').unwrap_or(&text);
    let (number, unit) = match text.chars().last()? {
        'k' => (&text[..text.len() - 1], 1 << 10),
        'm' => (&text[..text.len() - 1], MIB),
        'g' => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    Some(number.parse::<u64>().ok()?.checked_mul(unit)? / MIB)
}

fn shown(text: &str) -> String {
    text.chars().take(QUOTED_CHARS_MAX).collect()
}
