//! Engines that share neither files nor kernel with this process: another machine, or a runtime with a kernel of its
//! own.
//!
//! The agent is uploaded once into a volume of the engine. It receives its setup over the container's standard streams,
//! and is dialed by a second copy of its program, which the engine runs beside it.

use std::pin::Pin;
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::errors::Error as EngineError;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, ExecConfig, HostConfig, Mount, MountType, VolumeCreateRequest};
use bollard::query_parameters::{
    AttachContainerOptions, ContainerArchiveInfoOptions, CreateContainerOptions, UploadToContainerOptions,
};
use box_core::{AgentStream, BoxSpec, Error, Persistence, Result, Stats};
use box_host::{record, standard};
use box_wire::frame::{self, HEADER_BYTES};
use box_wire::message::Verified;
use box_wire::{BoxId, Header, Kind, Report};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::io::StreamReader;

use crate::backend::Inner;
use crate::cgroup::Enforced;
use crate::client::{Client, setup, status};
use crate::container::{self, AGENT, AgentTransport, ContainerInputs, HOME, JOURNAL};
use crate::create::{self, CreatedBox, Prepared};
use crate::guarantee::{self, Findings, Source, Wall};
use crate::live::{Lifeline, Link, LiveBox};
use crate::models::ContainerStats;
use crate::record::Record;
use crate::tmpfs::Size;
use crate::{destroy, drift, fault, labels, setup};

/// How long an agent may take to answer. Another machine may be slow to start a container.
const ANSWER_WAIT: Duration = Duration::from_mins(1);

/// Bytes of the engine's stream that are read at a time.
const CHUNK_BYTES: usize = 64 << 10;

type Output = Pin<Box<dyn Stream<Item = std::result::Result<LogOutput, EngineError>> + Send>>;
type Input = Pin<Box<dyn AsyncWrite + Send>>;

/// Standard streams of a process in a container.
pub(crate) struct Attached {
    output: Pin<Box<dyn AsyncRead + Send>>,
    input: Input,
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Attached")
    }
}

impl Attached {
    fn new(output: Output, input: Input) -> Self {
        Self { output: Box::pin(StreamReader::new(bytes_of(output))), input }
    }
}

/// Standard output of a process; its standard error is dropped.
fn bytes_of(output: Output) -> impl Stream<Item = std::io::Result<Bytes>> {
    output.filter_map(async |piece| match piece {
        Ok(LogOutput::StdOut { message } | LogOutput::Console { message }) => Some(Ok(message)),
        Ok(_) => None,
        Err(error) => Some(Err(std::io::Error::other(error))),
    })
}

/// Refuses what cannot be had from far away.
pub(crate) fn check(spec: &BoxSpec) -> Result<()> {
    if let Some(mount) = spec.mounts.first() {
        return Err(Error::MountDenied {
            path: mount.source.display().to_string(),
            reason: "the engine, or its runtime, does not share files with this machine; copy files in instead"
                .to_owned(),
        });
    }
    let unavailable = |what: &str| Error::Unavailable {
        what: what.to_owned(),
        reason: "the engine, or its runtime, does not share files with this machine".to_owned(),
        fix: "use an engine of this machine with its usual runtime".to_owned(),
    };
    if spec.persistence == Persistence::Disk {
        return Err(unavailable("a box on disk"));
    }
    Ok(())
}

/// Makes a box. On an error the caller removes, by the record, whatever had been made.
pub(crate) async fn create(
    inner: &Inner,
    id: &BoxId,
    directory: std::os::fd::OwnedFd,
    prepared: Prepared,
) -> Result<CreatedBox> {
    let spec = &prepared.spec;
    let config_hash = drift::config_hash(inner, &prepared);
    let mut record = Record {
        id: id.clone(),
        container_name: labels::container_name(id),
        container: None,
        agent: None,
        spec: Some(spec.clone()),
        config_hash: config_hash.clone(),
    };
    record::write(&record, &directory)?;
    fault::point("engine_record_written");
    let volume = upload_agent(inner, id, &prepared.image_name).await?;
    let profile = inner.profile(spec.syscalls);
    let facts = ContainerInputs {
        way: AgentTransport::Remote { volume: &volume },
        hostname: id.as_str(),
        labels: inner.identity.labels(id, spec.session.as_deref(), &config_hash),
        ..create::facts(inner, &prepared, profile.as_deref())
    };
    let (container, root_quota) = create::make(inner, &record.container_name, spec, facts).await?;
    fault::point("engine_container_made");
    record.container = Some(container.clone());
    record::write(&record, &directory)?;
    fault::point("engine_container_recorded");
    let mut streams = attach(&inner.client, &container).await?;
    create::start(inner, &container, &prepared.image_name).await?;
    fault::point("engine_container_started");
    // A box with a kernel of its own needs no filter, and its kernel may not understand this one.
    let filters = if inner.facts.has_own_kernel { Vec::new() } else { prepared.programs() };
    let mut told = setup::setup(spec, prepared.workload, &prepared.image.volumes, Vec::new(), filters);
    // It may be a kernel that only looks like Linux.
    told.rlimits = standard::USUAL_LIMITS.to_vec();
    if spec.keeps_journal {
        told.journal_in_box = Some(container::known(JOURNAL));
        // Old output is removed with the rights of the workload.
        told.landlock_writable.push(container::known(JOURNAL));
    }
    let told = frame::encode_within_build(Kind::ContainerSetup, &told)?;
    let verified = tokio::time::timeout(ANSWER_WAIT, lodge(&mut streams, &told)).await;
    let verified = verified.map_err(|_| setup("agent", "it did not finish in time"))??;
    fault::point("engine_lodging_sent");
    let word = |place: container::MemoryMount| {
        let size = Size { bytes_max: place.bytes_max, inodes_max: inner.inodes_by_word(place.inodes_max) };
        (place, Some(size))
    };
    let volumes = &prepared.image.volumes;
    let places = container::places(spec, prepared.workload, volumes, container::journal_mb(spec));
    let findings = Findings {
        enforced: enforced(inner, &container, spec).await?,
        source: Source::Engine,
        verified: &verified,
        ids: inner.facts.ids,
        workload: prepared.workload,
        network: prepared.network.told(),
        places: places.into_iter().map(word).collect(),
        root_quota,
        wall: if inner.facts.has_own_kernel { Wall::OwnKernel } else { Wall::of(profile.as_deref()) },
    };
    let guarantees = guarantee::compute(spec, &findings);
    spec.floors.check(&guarantees)?;
    fault::point("engine_box_ready");
    let lifeline = spec.dies_with_maker.then_some(Lifeline::Stream(streams.into()));
    Ok(CreatedBox { live: LiveBox { container, link: Link::Remote, _lifeline: lifeline }, guarantees })
}

/// The limits that the engine claims to enforce.
async fn enforced(inner: &Inner, container: &str, spec: &BoxSpec) -> Result<Enforced> {
    let host = create::inspect(inner, container).await?.host_config.unwrap_or_default();
    let memory_max = i64::try_from(spec.memory_mb << 20).unwrap_or(i64::MAX);
    let within = |value: Option<i64>, max: i64| value.is_some_and(|value| (1..=max).contains(&value));
    let pids_max = i64::try_from(spec.pids_limit.saturating_add(container::AGENT_PROCESSES)).unwrap_or(i64::MAX);
    Ok(Enforced {
        memory: within(host.memory, memory_max) && inner.facts.limits,
        swap: within(host.memory_swap, memory_max),
        cpu: within(host.cpu_quota, container::cpu_quota_us(spec.cpus)),
        pids: within(host.pids_limit, pids_max) && inner.facts.limits,
    })
}

/// Puts the agent into a volume of the engine, by way of a container that is never started. One that is there is used.
async fn upload_agent(inner: &Inner, id: &BoxId, image: &str) -> Result<String> {
    let client = &inner.client;
    let failed = |error: EngineError| client.explain("upload", &error);
    let volume = format!("{}agent-{}", labels::NAME_PREFIX, labels::digest(box_agent_image::AGENT));
    let marked = std::collections::HashMap::from([(labels::MARK.to_owned(), "1".to_owned())]);
    let request =
        VolumeCreateRequest { name: Some(volume.clone()), labels: Some(marked), ..VolumeCreateRequest::default() };
    client.docker.create_volume(request).await.map_err(failed)?;
    let mount = Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.clone()),
        target: Some(HOME.to_owned()),
        ..Mount::default()
    };
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec![AGENT.to_owned()]),
        labels: Some(inner.identity.labels(id, None, "")),
        network_disabled: Some(true),
        host_config: Some(HostConfig { mounts: Some(vec![mount]), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    let name = format!("{}-upload", labels::container_name(id));
    let options = CreateContainerOptions { name: Some(name.clone()), ..CreateContainerOptions::default() };
    client.docker.create_container(Some(options), body).await.map_err(failed)?;
    let uploaded = upload_into(client, &name).await;
    destroy::remove(client, &name).await?;
    uploaded.map(|()| volume)
}

async fn upload_into(client: &Client, container: &str) -> Result<()> {
    let look = ContainerArchiveInfoOptions { path: AGENT.to_owned() };
    let found = client.docker.get_container_archive_info(container, Some(look)).await;
    let length = i64::try_from(box_agent_image::AGENT.len()).unwrap_or(i64::MAX);
    if found.is_ok_and(|found| found.size == length) {
        return Ok(());
    }
    let mut header = tar::Header::new_gnu();
    header.set_size(box_agent_image::AGENT.len() as u64);
    header.set_mode(0o555);
    header.set_cksum();
    let mut archive = tar::Builder::new(Vec::new());
    let failed = |error: std::io::Error| Error::io("packing the agent", error);
    archive.append_data(&mut header, "agent", box_agent_image::AGENT).map_err(failed)?;
    let body = bollard::body_full(archive.into_inner().map_err(failed)?.into());
    let options = UploadToContainerOptions { path: HOME.to_owned(), ..UploadToContainerOptions::default() };
    let uploaded = client.docker.upload_to_container(container, Some(options), body).await;
    uploaded.map_err(|error| client.explain("upload", &error))
}

async fn attach(client: &Client, container: &str) -> Result<Attached> {
    let options =
        AttachContainerOptions { stream: true, stdin: true, stdout: true, ..AttachContainerOptions::default() };
    let attached = client.docker.attach_container(container, Some(options)).await;
    let attached = attached.map_err(|error| client.explain("attach", &error))?;
    Ok(Attached::new(attached.output, attached.input))
}

/// Tells the agent what to be, over its standard streams.
async fn lodge(streams: &mut Attached, told: &[u8]) -> Result<Verified> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => setup("agent", "it ended without a word"),
        _ => Error::io("talking to the agent", error),
    };
    streams.input.write_all(told).await.map_err(failed)?;
    streams.input.flush().await.map_err(failed)?;
    let mut header = [0; HEADER_BYTES];
    streams.output.read_exact(&mut header).await.map_err(failed)?;
    let header = Header::from_bytes(header)?;
    if header.kind != Kind::Report {
        return Err(box_wire::FrameError::Unexpected(header.kind).into());
    }
    let mut payload = vec![0; header.payload_bytes];
    streams.output.read_exact(&mut payload).await.map_err(failed)?;
    match frame::decode_within_build(Kind::Report, &payload)? {
        Report::Ready(verified) => Ok(verified),
        Report::Failed { step, message } => Err(Error::Setup { step, reason: message }),
    }
}

/// Whether the engine says that a container runs.
pub(crate) async fn is_running(client: &Client, container: &str) -> bool {
    let inspected = client.inspect_container(container).await;
    inspected.is_ok_and(|found| found.state.and_then(|state| state.running).unwrap_or(false))
}

/// A stream to the agent, carried by a second copy of its program.
pub(crate) async fn dial(client: &Client, container: &str) -> Result<AgentStream> {
    let failed = |error: EngineError| match status(&error) {
        Some(404 | 409) => destroy::gone("the engine says that its container does not run"),
        _ => client.explain("dial", &error),
    };
    let config = ExecConfig {
        cmd: Some(vec![AGENT.to_owned(), "dial".to_owned()]),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(false),
        tty: Some(false),
        ..ExecConfig::default()
    };
    let made = client.docker.create_exec(container, config).await.map_err(failed)?;
    let options = StartExecOptions { output_capacity: Some(CHUNK_BYTES), ..StartExecOptions::default() };
    match client.docker.start_exec(&made.id, Some(options)).await.map_err(failed)? {
        StartExecResults::Attached { output, input } => {
            let Attached { output, input } = Attached::new(output, input);
            Ok(AgentStream::new(tokio::io::join(output, input)))
        }
        StartExecResults::Detached => Err(setup("dial", "the engine gave no streams")),
    }
}

/// The usage of a container, as the engine reports it.
pub(crate) async fn stats(client: &Client, container: &str) -> Result<Stats> {
    let told = client.get::<ContainerStats>(&format!("/containers/{container}/stats?stream=false&one-shot=true")).await;
    let told = told.map_err(|error| match status(&error) {
        Some(404) => destroy::gone("its container is gone"),
        _ => client.explain("stats", &error),
    })?;
    let cpu_us = told.cpu_stats.and_then(|cpu| cpu.cpu_usage?.total_usage).map(|nanoseconds| nanoseconds / 1000);
    let memory_bytes = told.memory_stats.and_then(|memory| memory.usage);
    let pids = told.pids_stats.and_then(|pids| pids.current).map(|count| count.saturating_sub(1));
    Ok(Stats { cpu_us, memory_bytes, pids })
}
