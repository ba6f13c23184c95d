//! Creates a box: a sandbox, the agent in it, and the agent's setup.

use std::collections::BTreeMap;

use box_core::{BoxSpec, Error, Guarantees, Image, Network, Result};
use box_e2b_wire::process::{Data, Event, ProcessConfig, StartRequest};
use box_wire::frame::{self, HEADER_BYTES};
use box_wire::message::Verified;
use box_wire::{BoxId, ContainerSetup, GuestPath, Header, Kind, Report};
use tokio::time::timeout;

use crate::backend::Inner;
use crate::envd::Envd;
use crate::events::Events;
use crate::failure::Failure;
use crate::guarantee;
use crate::limits::{REPORT_WAIT, SAID_BYTES_MAX};
use crate::parcel::Parcel;
use crate::sandbox::STARTER;
use crate::setup::{self, MACHINE, SandboxFacts};
use crate::sync::Sources;
use crate::words::CreateRequest;

/// Metadata key of a sandbox: the instance that it belongs to.
pub(crate) const INSTANCE: &str = "strongbox_instance";
/// Metadata key of a sandbox: its box id.
pub(crate) const BOX: &str = "strongbox_box";

/// The shell of every template.
const SHELL: &str = "/bin/sh";

/// A sandbox that is a box.
#[derive(Debug)]
pub(crate) struct CreatedSandbox {
    pub(crate) envd: Envd,
    pub(crate) home: GuestPath,
    pub(crate) guarantees: Guarantees,
}

/// Makes a box. On an error the caller removes what had been made, which it finds by the metadata.
pub(crate) async fn create(inner: &Inner, id: &BoxId, spec: &BoxSpec, sources: &Sources) -> Result<CreatedSandbox> {
    let template = template(spec, &inner.settings.template)?;
    let request = CreateRequest {
        template_id: template.clone(),
        timeout: inner.settings.lifetime_sec,
        metadata: metadata(inner, id),
        allow_internet_access: spec.network == Network::On,
        secure: None,
    };
    let once = format!("{}-{}", inner.instance.to_ascii_lowercase().replace(['_', '.'], "-"), random()?);
    let made = inner.api.create(&request, &once).await.map_err(|failure| refused(failure, &template))?;
    let envd = inner.envd(made)?;
    let (found, places) = prepare(&envd, spec, sources).await?;
    for file in &sources.files {
        let sent = envd.upload(STARTER, file.target.as_str(), &file.content).await;
        sent.map_err(|failure| failure.told("a mounted file"))?;
    }
    let told = setup::setup(spec, &found.home, &places);
    let verified = lodge(&envd, &found.home, &told).await?;
    // The box works without details that the provider does not report.
    let detail = inner.api.detail(&envd.sandbox).await.ok();
    let guarantees = guarantee::compute(spec, detail.as_ref(), &verified);
    spec.floors.check(&guarantees)?;
    Ok(CreatedSandbox { envd, home: found.home, guarantees })
}

/// The metadata by which a sandbox is found again.
fn metadata(inner: &Inner, id: &BoxId) -> BTreeMap<String, String> {
    [(INSTANCE, inner.instance.as_str()), (BOX, id.as_str())]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// The template of a box: its image by name, or the usual one.
fn template(spec: &BoxSpec, usual: &str) -> Result<String> {
    let refuse = |path: &std::path::Path| Error::BadImage {
        image: path.display().to_string(),
        reason: "E2B has templates by name; build one of it there, or use another backend".to_owned(),
    };
    match &spec.image {
        Image::Host => Ok(usual.to_owned()),
        Image::Named(name) => Ok(name.clone()),
        Image::Directory(path) | Image::Tar(path) => Err(refuse(path)),
    }
}

/// Why no sandbox was made.
fn refused(failure: Failure, template: &str) -> Error {
    match failure {
        Failure::Refused { status: 400 | 403 | 404, message } => Error::BadImage {
            image: template.to_owned(),
            reason: format!("E2B makes no sandbox of that template: {message}"),
        },
        other => other.told("a sandbox of E2B"),
    }
}

/// Makes places in a sandbox, and brings the agent there if it is not.
async fn prepare(envd: &Envd, spec: &BoxSpec, sources: &Sources) -> Result<(SandboxFacts, Vec<GuestPath>)> {
    let places = setup::places(spec, &sources.targets());
    let request = command(setup::preparation(places.iter()));
    let said = envd.run(STARTER, &request).await.map_err(|failure| failure.told("a first command in a sandbox"))?;
    let found = setup::found(&said.stdout).filter(|_| said.exit_code == 0).ok_or_else(|| {
        let reason: String = said.stderr.trim().chars().take(300).collect();
        setup("prepare", format!("the template of the sandbox needs a shell and root: {reason}"))
    })?;
    if found.machine != MACHINE {
        return Err(setup("prepare", format!("the sandbox is a {} and not a {MACHINE}", found.machine)));
    }
    if !found.has_agent {
        let sent = envd.upload(STARTER, &setup::agent(&found.home), Parcel::agent()).await;
        sent.map_err(|failure| failure.told("our agent in a sandbox"))?;
    }
    Ok((found, places))
}

/// Starts the agent and sends its setup. The agent keeps running when that stream ends.
async fn lodge(envd: &Envd, home: &GuestPath, told: &ContainerSetup) -> Result<Verified> {
    let told = frame::encode_within_build(Kind::ContainerSetup, told)?;
    let lodged = async {
        let request = StartRequest { stdin: Some(true), ..command(setup::launch(home)) };
        let (pid, mut events) = envd.start(STARTER, &request).await?;
        envd.send_input(STARTER, pid, &told).await?;
        report(&mut events).await
    };
    let lodged = timeout(REPORT_WAIT, lodged).await.map_err(|_| setup("agent", "it did not finish in time"))?;
    match lodged.map_err(|failure| failure.told("the agent of a sandbox"))?? {
        Report::Ready(verified) => Ok(verified),
        Report::Failed { step, message } => Err(Error::Setup { step, reason: message }),
    }
}

/// The one thing that an agent says before it serves.
async fn report(events: &mut Events) -> Result<Result<Report>, Failure> {
    let (mut said, mut complaint) = (Vec::new(), Vec::new());
    while let Some(event) = events.next().await? {
        match event {
            Event::Data(Data::Stdout(bytes)) => said.extend(bytes),
            Event::Data(Data::Stderr(bytes)) => complaint.extend(bytes),
            Event::End(end) => {
                let complaint: String = String::from_utf8_lossy(&complaint).trim().chars().take(300).collect();
                return Ok(Err(setup("agent", format!("it ended without a word: {} {complaint}", end.status))));
            }
            _ => {}
        }
        if said.len() + complaint.len() > SAID_BYTES_MAX + HEADER_BYTES {
            break;
        }
        if let Some(report) = whole(&said) {
            return Ok(report);
        }
    }
    Ok(Err(setup("agent", "its output is not a report")))
}

/// The report, once all of it has come.
fn whole(said: &[u8]) -> Option<Result<Report>> {
    let (head, rest) = said.split_first_chunk::<HEADER_BYTES>()?;
    let header = match Header::from_bytes(*head) {
        Ok(header) if header.kind == Kind::Report => header,
        Ok(header) => return Some(Err(box_wire::FrameError::Unexpected(header.kind).into())),
        Err(error) => return Some(Err(error.into())),
    };
    let payload = rest.get(..header.payload_bytes)?;
    Some(frame::decode_within_build(Kind::Report, payload).map_err(Error::from))
}

fn command(args: Vec<String>) -> StartRequest {
    let process = ProcessConfig { cmd: SHELL.to_owned(), args, cwd: Some("/".to_owned()), ..ProcessConfig::default() };
    StartRequest { process, stdin: Some(false), ..StartRequest::default() }
}

fn setup(step: &str, reason: impl Into<String>) -> Error {
    Error::Setup { step: step.to_owned(), reason: reason.into() }
}

fn random() -> Result<String> {
    let bytes = box_core::random::bytes::<12>().map_err(|error| Error::io("asking for random bytes", error))?;
    Ok(box_core::hexadecimal::hexadecimal(&bytes))
}
