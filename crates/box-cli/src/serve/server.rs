//! The composition root: every part of a server is made here, and nowhere else does one know of another.

use std::pin::Pin;
use std::sync::Arc;

use box_core::audit::AuditLog;
use box_core::backend::{Pick, Standby};
use box_core::service::StopMode;
use box_core::{Backend, BackendName, Service, ServiceConfig, Store};
use box_server::{Bound, LangBot, LangBotConfig};
use box_skills::SkillStores;
use futures_util::future::maybe_done;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::descriptors;
use super::mcp::Mcp;
use super::notify::Supervisor;
use super::signals::{Order, Orders};
use crate::config::{Config, HostPlaces, OnStop};
use crate::engines::{self, Engines};
use crate::exit::after_signal;
use crate::fault::Fault;
use crate::state::{Lease, StateDir};

/// What becomes of a server that cannot listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listening {
    /// It does not start.
    Required,
    /// It says so in its log and serves who comes by another way.
    IfPossible,
}

/// How much time there is at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Requests end before boxes do.
    Patient,
    /// Whoever asked will not wait: all end at once.
    Quick,
}

/// Runs a server with a thread for each processor.
pub(crate) fn block_on<'a>(work: impl Future<Output = Result<u8, Fault>> + 'a) -> Result<u8, Fault> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = built.map_err(|error| Fault::new(format!("the runtime cannot be started: {error}")))?;
    // Boxed, so that the runtime is compiled once and not once for each kind of server.
    let work: Pin<Box<dyn Future<Output = Result<u8, Fault>> + 'a>> = Box::pin(work);
    let ended = runtime.block_on(work);
    // Whatever still blocks a thread was given its time; a stop that was asked for twice must not wait for it.
    runtime.shutdown_background();
    ended
}

/// Everything that runs.
pub(crate) struct Server {
    service: Service,
    bound: Option<Bound>,
    langbot: LangBot,
    mcp: Option<Mcp>,
    has_tokens: bool,
    orders: Orders,
    stop: CancellationToken,
    _lease: Lease,
}

impl Server {
    /// Starts everything.
    pub(crate) async fn start(config: &Config, langbot: LangBotConfig, listening: Listening) -> Result<Self, Fault> {
        // Taken over first: a signal that comes while boxes are adopted must not tear that apart.
        let orders = Orders::listen().map_err(|error| Fault::new(format!("signals cannot be received: {error}")))?;
        descriptors::make_room(config.service().max_sessions);
        let state = StateDir::open(&config.state_dir)?;
        let lease = state.lease()?;
        let places = config.host_places()?;
        let store = state.store()?;
        check_tokens(config, store.as_ref()).await?;
        let backend = backends(config, &places, &state, store.as_ref()).await?;
        let audit = Arc::new(AuditLog::open(&state.audit(), &config.audit_key(), config.audit())?);
        let skills = open_skills(config)?;
        let settings = ServiceConfig { default_workspace: places.default_workspace, ..config.service() };
        let service = Service::open(backend, Arc::clone(&store), Some(audit), settings).await?;
        let service = service.with_skills(Arc::new(skills.clone()));
        let mcp = Mcp::open(config, &service, &store).await?;
        let mut doors = config.server(langbot.clone());
        doors.skills.stores = Some(skills);
        doors.e2b = config.e2b_door()?;
        if let Some(mcp) = &mcp {
            mcp.join(&mut doors);
        }
        let listens = doors.listen.is_some() || doors.unix_socket.is_some();
        let bound = match box_server::bind(doors, service.clone(), Arc::clone(&store)).await {
            Ok(bound) => Some(bound),
            Err(_) if listening == Listening::IfPossible && !listens => None,
            Err(error) if listening == Listening::IfPossible => {
                tracing::warn!(%error, "nothing is listened on; managed processes cannot be attached to");
                None
            }
            Err(error) => {
                // Nothing was served, so nothing may be lost.
                if let Some(mcp) = &mcp {
                    mcp.close().await;
                }
                drop(service.stop(StopMode::KeepAll).await);
                return Err(cannot_listen(&error.to_string(), config));
            }
        };
        let langbot = bound.as_ref().map_or_else(|| LangBot::new(langbot, service.clone()), Bound::langbot);
        let has_tokens = !store.tokens().await?.is_empty();
        Ok(Self { service, bound, langbot, mcp, has_tokens, orders, stop: CancellationToken::new(), _lease: lease })
    }

    /// Where it listens, as URLs.
    pub(crate) fn addresses(&self) -> &[String] {
        self.bound.as_ref().map(Bound::addresses).unwrap_or_default()
    }

    /// Whether there are tokens.
    pub(crate) fn has_tokens(&self) -> bool {
        self.has_tokens
    }

    /// The LangBot door.
    pub(crate) fn langbot(&self) -> &LangBot {
        &self.langbot
    }

    /// What callers ask.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Waits until the server is asked to stop.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        self.stop.clone().cancelled_owned()
    }

    /// Serves until a signal ends it, or `control` does, which must end when the server is asked to stop. If it ends before,
    /// nobody is left who could want the boxes, and they are removed.
    pub(crate) async fn run(
        self,
        mut on_stop: OnStop,
        mut reload: impl FnMut(&Service) -> Option<OnStop>,
        control: impl Future<Output = ()>,
        haste: Haste,
    ) -> Result<u8, Fault> {
        let Self { service, bound, mcp, mut orders, stop, .. } = self;
        let supervisor = Supervisor::of_process();
        supervisor.ready();
        let mut serving = std::pin::pin!(maybe_done(serve(bound, mcp, stop.clone())));
        let mut control = std::pin::pin!(maybe_done(control));
        while !(stop.is_cancelled() && haste == Haste::Quick) {
            tokio::select! {
                () = &mut serving => break,
                () = &mut control, if !stop.is_cancelled() => {
                    tracing::info!("stopping; the client has left");
                    on_stop = OnStop::DestroyAll;
                    supervisor.stopping();
                    stop.cancel();
                }
                order = orders.next() => match order {
                    Order::Reload => on_stop = reload(&service).unwrap_or(on_stop),
                    Order::Stop(signal) if stop.is_cancelled() => return Ok(at_once(signal)),
                    Order::Stop(signal) => {
                        tracing::info!(signal, "stopping; running requests may end first, a second signal stops at once");
                        supervisor.stopping();
                        stop.cancel();
                    }
                },
            }
        }
        stop.cancel();
        let all = async { tokio::join!(service.stop(on_stop.into()), &mut serving, &mut control).0 };
        let mut stopping = std::pin::pin!(all);
        loop {
            tokio::select! {
                stopped = &mut stopping => break stopped?,
                order = orders.next() => if let Order::Stop(signal) = order {
                    return Ok(at_once(signal));
                },
            }
        }
        engines::put_away().await;
        tracing::info!("stopped");
        Ok(0)
    }
}

/// Serves on what there is to listen on, until the server is asked to stop. MCP servers are left alone before their sessions are stopped.
async fn serve(bound: Option<Bound>, mcp: Option<Mcp>, stop: CancellationToken) {
    let leave_servers = async {
        stop.cancelled().await;
        if let Some(mcp) = mcp {
            mcp.close().await;
        }
    };
    tokio::join!(listen(bound, stop.clone()), leave_servers);
}

async fn listen(bound: Option<Bound>, stop: CancellationToken) {
    match bound {
        Some(bound) => {
            if let Err(error) = bound.run(stop.cancelled_owned()).await {
                tracing::error!(%error, "the listeners failed");
            }
        }
        None => stop.cancelled().await,
    }
}

fn at_once(signal: i32) -> u8 {
    tracing::warn!(signal, "stopped at once; boxes are kept for the next start");
    after_signal(signal)
}

/// The backends, none of them touched yet; one that is not wanted never is.
async fn backends(
    config: &Config,
    places: &HostPlaces,
    state: &StateDir,
    store: &dyn Store,
) -> Result<Arc<dyn Backend>, Fault> {
    let pick = config.pick();
    if !config.enabled {
        tracing::warn!("boxes are disabled by the configuration; every call for one is refused");
        let name = match pick {
            Pick::Forced(name) => name,
            Pick::First(_) => BackendName::Native,
        };
        return Ok(Arc::new(Standby::disabled(name)));
    }
    let engines = Engines::persistent(state.path(), places.mount_policy(), store.instance_id().await?);
    Ok(Arc::new(engines.configured(config).choice(pick)))
}

fn open_skills(config: &Config) -> Result<SkillStores, Fault> {
    let root = &config.skills_root;
    SkillStores::open(root).map_err(|error| {
        Fault::new(format!("the skills in {} cannot be used: {error}", root.display()))
            .hint("set skills_root to a directory that this user can write to")
    })
}

/// A token that is bound to a profile that does not exist opens nothing, which its owner would learn last.
async fn check_tokens(config: &Config, store: &dyn Store) -> Result<(), Fault> {
    let now = Timestamp::now();
    for row in store.tokens().await?.into_iter().filter(|row| row.expires_at.is_none_or(|at| at > now)) {
        let Some(Err(invalid)) = row.profile.as_deref().map(|name| config.profiles.get(name)) else { continue };
        let hint = format!("add the profile to the configuration, or: strongbox token revoke {}", row.id);
        return Err(Fault::new(format!("the token {} ({}) is bound to an {invalid}", row.id, row.name)).hint(hint));
    }
    Ok(())
}

fn cannot_listen(error: &str, config: &Config) -> Fault {
    let fault = Fault::new(error).code("cannot_listen");
    let Some(listen) = config.listen.filter(|_| error.contains("in use")) else { return fault };
    fault.hint(format!("`ss -ltnp 'sport = :{}'` shows who has it", listen.port()))
}
