//! What a session shall be, on every command that can make one.

use std::path::Path;

use box_core::Network;
use box_wire::Invalid;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::fault::Fault;
use crate::values::{self, MountText, VolumeText};

/// What a session shall be. What is not said comes from its profile; a session that exists already must not differ in what is
/// said, except for the idle time, which is taken over.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Session, when it is made")]
pub(crate) struct SessionOptions {
    /// Start from a preset; `strongbox profiles` lists them
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// What the box can reach: its own loopback (off), or everything but the server's loopback (on)
    #[arg(long, value_name = "on|off", value_parser = values::network)]
    network: Option<Network>,
    /// Memory, without swap; in MiB, or with m, g or t
    #[arg(long, value_name = "SIZE", value_parser = values::size_mb, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// Processors; fractions count
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    cpus: Option<f64>,
    /// Processes at once
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pids: Option<u64>,
    /// What the box can store outside of mounts; in MiB, or with m, g or t
    #[arg(long, value_name = "SIZE", value_parser = values::size_mb, allow_hyphen_values = true)]
    disk: Option<u64>,
    /// Show a directory or file of the server's machine in the box, read-only unless rw is added. Repeatable
    #[arg(long, value_name = "SRC:DST[:ro|rw]", value_parser = values::mount)]
    mount: Vec<MountText>,
    /// Mount a volume, writable unless ro is added; `strongbox volume create` makes one. Repeatable
    #[arg(long, value_name = "NAME:PATH[:ro|rw]", value_parser = values::volume)]
    volume: Vec<VolumeText>,
    /// Let commands work on this directory of the server's machine, seen as /workspace
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// Root file system: host, or a name that the configuration of the server gives to one
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Begin with the files of a snapshot or template, NAME[:TAG] or its id; `strongbox snapshot ls` lists them
    #[arg(long, value_name = "NAME", conflicts_with = "image")]
    snapshot: Option<String>,
    /// Let commands change their whole root; the changes go with the session
    #[arg(long, conflicts_with = "read_only")]
    writable_root: bool,
    /// Let commands write only to /workspace, /tmp, their home and mounts
    #[arg(long)]
    read_only: bool,
    /// Keep the session until it is removed: it outlives idleness and a stop of the server
    #[arg(long)]
    persistent: bool,
    /// Remove the session after this time without use, such as 90, 5m, 2h or 7d
    #[arg(long, value_name = "TIME", value_parser = values::duration_sec)]
    ttl: Option<u64>,
}

impl SessionOptions {
    /// The fields of a request. Only what was typed is in it, because only that can conflict with a session that exists.
    pub(crate) fn fields(&self) -> Result<Map<String, Value>, Fault> {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        put("profile", self.profile.as_ref().map(|name| json!(name)));
        put("network", self.network.map(|network| json!(network)));
        put("memory_mb", self.memory.map(|mb| json!(mb)));
        put("cpus", self.cpus.map(checked_number).transpose()?);
        put("pids_limit", self.pids.map(|number| json!(number)));
        put("workspace_quota_mb", self.disk.map(|mb| json!(mb)));
        put("host_path", self.workspace.as_deref().map(|path| absolute("workspace", path)).transpose()?);
        put("image", self.image.as_ref().map(|image| json!(image)));
        put("snapshot", self.snapshot.as_ref().map(|name| json!(name)));
        put("read_only_rootfs", (self.read_only || self.writable_root).then(|| json!(self.read_only)));
        put("persistent", self.persistent.then_some(json!(true)));
        put("ttl_sec", self.ttl.map(|seconds| json!(seconds)));
        let mounts = self.mount.iter().map(mount).collect::<Result<Vec<_>, _>>()?;
        put("extra_mounts", (!mounts.is_empty()).then(|| json!(mounts)));
        let volumes: Vec<_> = self.volume.iter().map(volume).collect();
        put("volumes", (!volumes.is_empty()).then(|| json!(volumes)));
        Ok(fields)
    }
}

fn mount(mount: &MountText) -> Result<Value, Fault> {
    let source = absolute("mount", &mount.source)?;
    Ok(json!({ "host_path": source, "mount_path": mount.target, "mode": mount.mode }))
}

fn volume(volume: &VolumeText) -> Value {
    json!({ "name": volume.name, "path": volume.path, "mode": volume.mode })
}

/// JSON has no word for a number that is none.
pub(crate) fn checked_number(number: f64) -> Result<Value, Fault> {
    let refused = || Invalid::new("cpus", number, "a number above 0");
    if number.is_finite() { Ok(json!(number)) } else { Err(refused().into()) }
}

/// A path as the server must read it: it does not know where we are.
pub(crate) fn absolute(field: &'static str, typed: &str) -> Result<Value, Fault> {
    let refused = |error| Fault::from(Invalid::new(field, typed, format!("a path; {error}")));
    let path = std::path::absolute(Path::new(typed)).map_err(refused)?;
    Ok(json!(path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        session: SessionOptions,
    }

    fn fields(typed: &[&str]) -> Result<Value, String> {
        let typed = Typed::try_parse_from([&["test"], typed].concat()).map_err(|error| error.to_string())?;
        typed.session.fields().map(Value::Object).map_err(|fault| fault.message)
    }

    #[test]
    fn only_what_was_typed_is_asked() {
        assert_eq!(fields(&[]).unwrap(), json!({}));
        let table: [(&[&str], Value); 14] = [
            (&["--profile=debug"], json!({ "profile": "debug" })),
            (&["--network=on"], json!({ "network": "on" })),
            (&["--memory=2g", "--pids=5"], json!({ "memory_mb": 2048, "pids_limit": 5 })),
            (&["--cpus=0.5"], json!({ "cpus": 0.5 })),
            (&["--disk=100"], json!({ "workspace_quota_mb": 100 })),
            (&["--workspace=/srv/w"], json!({ "host_path": "/srv/w" })),
            (&["--image=python:3.11-slim"], json!({ "image": "python:3.11-slim" })),
            (&["--snapshot=deps:v1"], json!({ "snapshot": "deps:v1" })),
            (&["--writable-root"], json!({ "read_only_rootfs": false })),
            (&["--read-only"], json!({ "read_only_rootfs": true })),
            (&["--persistent", "--ttl=2h"], json!({ "persistent": true, "ttl_sec": 7200 })),
            (
                &["--mount=/a:/mnt/a", "--mount=/b:/mnt/b:rw"],
                json!({ "extra_mounts": [
                    { "host_path": "/a", "mount_path": "/mnt/a", "mode": "ro" },
                    { "host_path": "/b", "mount_path": "/mnt/b", "mode": "rw" },
                ] }),
            ),
            (
                &["--volume=data:/mnt/a", "--volume=x:/mnt/b:ro"],
                json!({ "volumes": [
                    { "name": "data", "path": "/mnt/a", "mode": "rw" },
                    { "name": "x", "path": "/mnt/b", "mode": "ro" },
                ] }),
            ),
            (&["--ttl=90"], json!({ "ttl_sec": 90 })),
        ];
        for (typed, expected) in table {
            assert_eq!(fields(typed).unwrap(), expected, "{typed:?}");
        }
    }

    #[test]
    fn a_relative_workspace_is_ours() {
        let here = std::env::current_dir().unwrap().join("w");
        assert_eq!(fields(&["--workspace=w"]).unwrap(), json!({ "host_path": here.to_str().unwrap() }));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_before_anybody_is_asked() {
        for bad in [
            "--cpus=nan",
            "--cpus=inf",
            "--memory=lots",
            "--ttl=soon",
            "--mount=/a",
            "--network=maybe",
            "--volume=a",
            "--volume=/srv/a:/b",
            "--volume=a:b",
        ] {
            assert!(fields(&[bad]).is_err(), "{bad}");
        }
        assert!(fields(&["--read-only", "--writable-root"]).is_err());
    }
}
