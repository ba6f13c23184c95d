//! What is read of an engine's answers. The models of the API have hundreds of fields; these are the ones that matter here.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde::de::IgnoredAny;

/// `GET /info`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct SystemInfo {
    pub(crate) server_version: Option<String>,
    pub(crate) driver: Option<String>,
    pub(crate) driver_status: Option<Vec<Vec<String>>>,
    #[expect(clippy::zero_sized_map_values, reason = "only the names are read")]
    pub(crate) runtimes: Option<HashMap<String, IgnoredAny>>,
    pub(crate) default_runtime: Option<String>,
    pub(crate) security_options: Option<Vec<String>>,
    pub(crate) memory_limit: Option<bool>,
    pub(crate) pids_limit: Option<bool>,
}

/// `GET /containers/{id}/json`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ContainerInspect {
    pub(crate) id: Option<String>,
    pub(crate) state: Option<ContainerState>,
    pub(crate) config: Option<ContainerConfig>,
    pub(crate) host_config: Option<Limits>,
}

/// The part of `HostConfig` that is compared with what was asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Limits {
    pub(crate) memory: Option<i64>,
    pub(crate) memory_swap: Option<i64>,
    pub(crate) cpu_quota: Option<i64>,
    pub(crate) pids_limit: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ContainerState {
    pub(crate) running: Option<bool>,
    pub(crate) paused: Option<bool>,
    pub(crate) pid: Option<i64>,
    pub(crate) exit_code: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ContainerConfig {
    pub(crate) labels: Option<HashMap<String, String>>,
}

/// `GET /containers/json`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ContainerSummary {
    pub(crate) id: Option<String>,
    pub(crate) names: Option<Vec<String>>,
    pub(crate) labels: Option<HashMap<String, String>>,
}

/// `GET /containers/{id}/stats`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
pub(crate) struct ContainerStats {
    pub(crate) cpu_stats: Option<CpuStats>,
    pub(crate) memory_stats: Option<MemoryStats>,
    pub(crate) pids_stats: Option<PidsStats>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CpuStats {
    pub(crate) cpu_usage: Option<CpuUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CpuUsage {
    pub(crate) total_usage: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MemoryStats {
    pub(crate) usage: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PidsStats {
    pub(crate) current: Option<u64>,
}

/// `GET /images/{name}/json`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ImageInspect {
    pub(crate) id: Option<String>,
    pub(crate) size: Option<i64>,
    pub(crate) config: Option<ImageConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ImageConfig {
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) cmd: Option<Vec<String>>,
    pub(crate) env: Option<Vec<String>>,
    pub(crate) working_dir: Option<String>,
    #[expect(clippy::zero_sized_map_values, reason = "only the paths are read")]
    pub(crate) volumes: Option<BTreeMap<String, IgnoredAny>>,
    pub(crate) healthcheck: Option<IgnoredAny>,
}

/// `GET /images/json`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ImageSummary {
    pub(crate) id: String,
    pub(crate) repo_tags: Option<Vec<String>>,
    pub(crate) size: i64,
}

/// `GET /networks/{name}`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct NetworkInspect {
    pub(crate) id: Option<String>,
    pub(crate) options: Option<HashMap<String, String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_engines_are_read() {
        let container: ContainerInspect = serde_json::from_str(
            r#"{"Id":"c1","Created":"2026-01-01","State":{"Status":"running","Running":true,"Paused":false,"OOMKilled":false,"Pid":42,
               "ExitCode":0,"Error":""},"Config":{"Labels":{"a":"b"},"Env":null},"HostConfig":{"Memory":1,"CpuQuota":2,"PidsLimit":null}}"#,
        )
        .unwrap();
        let state = container.state.unwrap();
        assert_eq!((state.running, state.paused, state.pid), (Some(true), Some(false), Some(42)));
        let limits = container.host_config.unwrap();
        assert_eq!((limits.memory, limits.cpu_quota, limits.pids_limit), (Some(1), Some(2), None));
        assert_eq!(container.config.unwrap().labels.unwrap()["a"], "b");
        let image: ImageInspect = serde_json::from_str(
            r#"{"Id":"sha256:1","Size":5,"Config":{"Entrypoint":null,"Cmd":["sh"],"Volumes":{"/data":{}},"Healthcheck":null}}"#,
        )
        .unwrap();
        let config = image.config.unwrap();
        assert_eq!(config.volumes.unwrap().into_keys().collect::<Vec<_>>(), ["/data"]);
        assert!(config.healthcheck.is_none() && config.entrypoint.is_none());
        let info: SystemInfo = serde_json::from_str(
            r#"{"ServerVersion":"27.1","Driver":"overlay2","DriverStatus":[["Backing Filesystem","extfs"]],"MemoryLimit":true,
               "Runtimes":{"runc":{"path":"runc"}},"DefaultRuntime":"runc","SecurityOptions":["name=seccomp,profile=builtin"],
               "PidsLimit":true}"#,
        )
        .unwrap();
        assert_eq!(
            (info.memory_limit, info.pids_limit, info.driver.as_deref()),
            (Some(true), Some(true), Some("overlay2"))
        );
        let listed: Vec<ContainerSummary> =
            serde_json::from_str(r#"[{"Id":"c1","Names":["/strongbox-b"],"Labels":null}]"#).unwrap();
        assert_eq!(listed[0].names.as_deref(), Some(&["/strongbox-b".to_owned()][..]));
        let used: ContainerStats = serde_json::from_str(
            r#"{"cpu_stats":{"cpu_usage":{"total_usage":7000}},"memory_stats":{"usage":5},"pids_stats":{"current":2}}"#,
        )
        .unwrap();
        assert_eq!(used.cpu_stats.unwrap().cpu_usage.unwrap().total_usage, Some(7000));
    }
}
