//! `strongbox serve`: the composition root. Every part of the server is made here, and nowhere else does one know of another.

mod announce;
mod descriptors;
mod log;
mod notify;
mod signals;

use std::path::Path;
use std::sync::Arc;

use box_core::audit::AuditLog;
use box_core::{Backend, Service, Store};
use box_native::{InstanceKind, Native, NativeConfig};
use box_server::Bound;
use clap::Args;
use tokio_util::sync::CancellationToken;

use self::log::LogFormat;
use self::notify::Supervisor;
use self::signals::{Order, Orders};
use crate::config::{Config, Flag, OnStop, PlaceOptions, Settings};
use crate::exit::after_signal;
use crate::fault::Fault;
use crate::state::StateDir;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  A server for this machine alone:
    strongbox serve
  One that others can reach; it needs a token and should have a certificate:
    strongbox token create --name me
    strongbox serve --listen 0.0.0.0:5410 --tls-certificate box.crt --tls-key box.key

Everything else is set in a file: `strongbox config show` lists it. Flags win over the environment,
and the environment over the file.

Signals: SIGTERM or SIGINT stops it when running requests have ended; the second stops it at once
and keeps all boxes. SIGHUP reads the file again.
Exit codes: 0 stopped as asked, 125 could not start or run, 128+N stopped at once by signal N.")]
pub(crate) struct ServeOptions {
    /// Address and port, or none; else 127.0.0.1:5410
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Socket for this user's own commands, or none; else strongbox.sock in the state directory
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<String>,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<String>,
    /// Private key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<String>,
    /// What becomes of boxes when the server stops: keep-persistent, keep-all or destroy-all
    #[arg(long, value_name = "WHAT")]
    on_stop: Option<String>,
    /// How the log on standard error is written
    #[arg(long, value_name = "text|json", default_value = "text", hide_possible_values = true)]
    log_format: LogFormat,
    #[command(flatten)]
    place: PlaceOptions,
}

impl ServeOptions {
    fn settings(&self) -> Result<Settings, Fault> {
        let mut flags = self.place.flags();
        flags.extend(Flag::given(&[
            ("--listen", "listen", &self.listen),
            ("--unix-socket", "unix_socket", &self.unix_socket),
            ("--tls-certificate", "tls.certificate", &self.tls_certificate),
            ("--tls-key", "tls.key", &self.tls_key),
            ("--on-stop", "on_stop", &self.on_stop),
        ]));
        self.place.settings(&flags)
    }
}

/// Serves until a signal ends it.
pub(crate) fn main(options: &ServeOptions) -> Result<u8, Fault> {
    let settings = options.settings()?;
    let config = settings.config()?;
    log::start(&config.log, options.log_format)?;
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = built.map_err(|error| Fault::new(format!("the runtime cannot be started: {error}")))?;
    let ended = runtime.block_on(async {
        let server = Server::start(&config).await?;
        server.run(options, settings, config.on_stop).await
    });
    // Whatever still blocks a thread was given its time; a stop that was asked for twice must not wait for it.
    runtime.shutdown_background();
    ended
}

/// Everything that runs.
struct Server {
    service: Service,
    bound: Bound,
    orders: Orders,
    supervisor: Supervisor,
}

impl Server {
    async fn start(config: &Config) -> Result<Self, Fault> {
        // Taken over first: a signal that comes while boxes are adopted must not tear that apart.
        let orders = Orders::listen().map_err(|error| Fault::new(format!("signals cannot be received: {error}")))?;
        descriptors::make_room(config.service().max_sessions);
        let state = StateDir::open(&config.state_dir)?;
        let store = state.store()?;
        let backend = open_backend(config, &state, store.as_ref()).await?;
        let audit = Arc::new(AuditLog::open(&state.audit(), config.audit())?);
        let service = Service::open(backend, Arc::clone(&store), Some(audit), config.service()).await?;
        let bound = match box_server::bind(config.server(), service.clone(), Arc::clone(&store)).await {
            Ok(bound) => bound,
            Err(error) => {
                // Nothing was served, so nothing may be lost.
                drop(service.stop(box_core::service::StopMode::KeepAll).await);
                return Err(cannot_listen(&error.to_string(), config));
            }
        };
        let has_tokens = !store.tokens().await?.is_empty();
        announce::write(bound.addresses(), has_tokens, state.path())?;
        let supervisor = Supervisor::of_process();
        supervisor.ready();
        Ok(Self { service, bound, orders, supervisor })
    }

    async fn run(self, options: &ServeOptions, mut settings: Settings, mut on_stop: OnStop) -> Result<u8, Fault> {
        let Self { service, bound, mut orders, supervisor } = self;
        let stop = CancellationToken::new();
        let mut serving = std::pin::pin!(bound.run(stop.clone().cancelled_owned()));
        loop {
            tokio::select! {
                served = &mut serving => {
                    served.map_err(|error| Fault::new(format!("the server failed: {error}")))?;
                    break;
                }
                order = orders.next() => match order {
                    Order::Reload => on_stop = reload(&service, options, &mut settings).unwrap_or(on_stop),
                    Order::Stop(signal) if stop.is_cancelled() => return Ok(at_once(signal)),
                    Order::Stop(signal) => {
                        tracing::info!(signal, "stopping; running requests may end first, a second signal stops at once");
                        supervisor.stopping();
                        stop.cancel();
                    }
                },
            }
        }
        let mut stopping = std::pin::pin!(service.stop(on_stop.into()));
        loop {
            tokio::select! {
                stopped = &mut stopping => break stopped?,
                order = orders.next() => if let Order::Stop(signal) = order {
                    return Ok(at_once(signal));
                },
            }
        }
        tracing::info!("stopped");
        Ok(0)
    }
}

fn at_once(signal: i32) -> u8 {
    tracing::warn!(signal, "stopped at once; boxes are kept for the next start");
    after_signal(signal)
}

async fn open_backend(config: &Config, state: &StateDir, store: &dyn Store) -> Result<Arc<dyn Backend>, Fault> {
    let instance = InstanceKind::Persistent(store.instance_id().await?);
    let native = NativeConfig {
        state_dir: state.path().to_owned(),
        mount_policy: config.mount_policy(),
        instance,
        network_method: None,
    };
    Ok(Arc::new(Native::open(native).await.map_err(|error| cannot_open(&error, state.path()))?))
}

/// The lease of an instance is held by one process only: who cannot have it is told who else wants it.
fn cannot_open(error: &box_core::Error, state_dir: &Path) -> Fault {
    match error {
        box_core::Error::Unavailable { what, .. } if what.starts_with("the instance ") => {
            Fault::new(format!("another server runs on the state directory {}", state_dir.display()))
                .code("state_in_use")
                .hint("stop it first, or give this one a state of its own with --state-dir")
        }
        other => Fault::from(other),
    }
}

fn cannot_listen(error: &str, config: &Config) -> Fault {
    let fault = Fault::new(error).code("cannot_listen");
    let Some(listen) = config.listen.filter(|_| error.contains("in use")) else { return fault };
    fault.hint(format!("`ss -ltnp 'sport = :{}'` shows who has it", listen.port()))
}

/// Reads the configuration again. One that is not good is told of, and the old one stays.
fn reload(service: &Service, options: &ServeOptions, settings: &mut Settings) -> Option<OnStop> {
    let read = options.settings().and_then(|newer| newer.config().map(|config| (newer, config)));
    let (newer, config) = match read {
        Ok(read) => read,
        Err(fault) => {
            tracing::error!(reason = %fault.message, "the configuration is not good; the old one stays");
            return None;
        }
    };
    let keys = settings.needing_restart(&newer);
    if !keys.is_empty() {
        tracing::warn!(keys = keys.join(", "), "these keys changed and take effect at the next start");
    }
    service.reload(config.service());
    *settings = newer;
    tracing::info!("the configuration was read again");
    Some(config.on_stop)
}
