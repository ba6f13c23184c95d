//! A backend, the provider of paper that it asks, and what a case does with both.

use box_core::{Backend, BoxSpec, ExecIo, Handle, MountPolicy, Profile, Result, link};
use box_e2b::{E2b, E2bConfig, E2bSettings, Secret};
use box_host::InstanceKind;
use box_wire::{ExecOutcome, ExecRequest, Program};

use crate::double::Double;

pub(crate) struct Scene {
    pub(crate) double: Double,
    pub(crate) backend: E2b,
    state: tempfile::TempDir,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let (double, state) = (Double::start().await, tempfile::tempdir().unwrap());
        let backend = open(&double, &state, InstanceKind::Ephemeral).await;
        Self { double, backend, state }
    }

    /// Another backend on the same provider.
    pub(crate) async fn another(&self, instance: InstanceKind) -> E2b {
        open(&self.double, &self.state, instance).await
    }

    pub(crate) async fn make(&self, id: &str) -> Result<Handle> {
        self.backend.create(&id.parse().unwrap(), &Profile::default().spec()).await
    }

    pub(crate) async fn make_with(&self, id: &str, spec: &BoxSpec) -> Result<Handle> {
        self.backend.create(&id.parse().unwrap(), spec).await
    }

    /// Runs a command, which says something and returns 3.
    pub(crate) async fn run(&self, handle: &Handle) -> Result<(ExecOutcome, String)> {
        run(&self.backend, handle).await
    }
}

pub(crate) async fn run(backend: &E2b, handle: &Handle) -> Result<(ExecOutcome, String)> {
    let mut stdout = Vec::new();
    let request = ExecRequest::new("x".parse().unwrap(), Program::Shell("true".to_owned()));
    let io = ExecIo { stdin: tokio::io::empty(), stdout: &mut stdout, stderr: Vec::new(), resizes: None };
    let outcome = link::exec(backend.dial(handle).await?, &request, io).await?;
    Ok((outcome, String::from_utf8(stdout).unwrap()))
}

async fn open(double: &Double, state: &tempfile::TempDir, instance: InstanceKind) -> E2b {
    let settings = E2bSettings {
        api_key: Some(Secret::new("e2b_00")),
        api_url: Some(format!("http://{}", double.address)),
        ..E2bSettings::default()
    };
    let state_dir = state.path().to_owned();
    E2b::open(E2bConfig { state_dir, mount_policy: MountPolicy::default(), instance, settings }).await.unwrap()
}
