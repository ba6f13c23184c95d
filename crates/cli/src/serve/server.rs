//! The composition root: every part of a server is made here, and nowhere else does one know of another.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use box_core::audit::AuditLog;
use box_core::backend::{LazyBackend, Pick};
use box_core::service::{StopMode, Stopped};
use box_core::{Backend, BackendName, Service, ServiceConfig, Store};
use box_skills::SkillStores;
use door_http::{Listeners, ServerState};
use door_langbot::{LangBot, LangBotConfig};
use futures_util::future::maybe_done;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::descriptors;
use super::doors::routes;
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

/// What is listened on, and what is served there.
struct Bound {
    listeners: Listeners,
    state: ServerState,
    routes: Router,
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
    state_dir: PathBuf,
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
        let mut doors = config.doors(langbot.clone());
        doors.skills.stores = Some(skills);
        doors.e2b = config.e2b_door()?;
        service.serve_snapshots(doors.e2b.snapshot_config());
        if let Some(mcp) = &mcp {
            mcp.join(&mut doors);
        }
        let listens = doors.listen.listen.is_some() || doors.listen.unix_socket.is_some();
        let listeners = match doors.bind(store.as_ref()).await {
            Ok(listeners) => Some(listeners),
            Err(_) if listening == Listening::IfPossible && !listens => None,
            Err(error) if listening == Listening::IfPossible => {
                tracing::warn!(%error, "failed to listen; managed processes cannot be attached to");
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
        let shared = doors.state(service.clone(), Arc::clone(&store)).map_err(|error| Fault::new(error.to_string()))?;
        let langbot = LangBot::new(langbot, shared.clone());
        let bound = match listeners {
            Some(listeners) => {
                let routes = routes(doors, &shared, &langbot);
                Some(Bound { routes, listeners, state: shared })
            }
            None => None,
        };
        let has_tokens = !store.tokens().await?.is_empty();
        let (state_dir, stop) = (state.path().to_owned(), CancellationToken::new());
        Ok(Self { service, bound, langbot, mcp, has_tokens, orders, stop, state_dir, _lease: lease })
    }

    /// Where it listens, as URLs.
    pub(crate) fn addresses(&self) -> &[String] {
        self.bound.as_ref().map(|bound| bound.listeners.addresses()).unwrap_or_default()
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
        let Self { service, bound, mcp, mut orders, stop, state_dir, .. } = self;
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
                    Order::Stop(signal) if stop.is_cancelled() => return Ok(at_once(signal, on_stop)),
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
        let (stopped, removed) = loop {
            tokio::select! {
                ended = &mut stopping => break ended,
                order = orders.next() => if let Order::Stop(signal) = order {
                    return Ok(at_once(signal, on_stop));
                },
            }
        };
        engines::put_away().await;
        tracing::info!("{}", told(&stopped, &state_dir));
        removed?;
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
        Some(Bound { listeners, state, routes }) => listeners.serve(state, routes, stop.cancelled_owned()).await,
        None => stop.cancelled().await,
    }
}

/// Reports what happened to the boxes, and how to reach those that remain.
fn told(stopped: &Stopped, state_dir: &Path) -> String {
    let Stopped { kept, kept_persistent, running, removed, not_removed } = *stopped;
    let counted = |count: usize, what: &str| if count == 0 { String::new() } else { format!("; {what}: {count}") };
    let removed = counted(removed, "sessions removed") + &counted(not_removed, "sessions that could not be removed");
    if kept == 0 {
        return format!("stopped; no session was kept{removed}");
    }
    let lifetime = match kept - kept_persistent {
        0 => "they stay until they are removed",
        _ => {
            "without a server, a box that is not persistent ends by itself: after its idle time when nothing runs in it, else within \
             24 hours, and a sandbox at its end"
        }
    };
    format!(
        "stopped; sessions kept: {kept} (persistent: {kept_persistent}), with {running} running commands and processes{removed}; \
         {lifetime}; start the server on {} again to go on with them, and `strongbox session rm --all` then removes those of \
         its caller's tenant, but not those of MCP servers",
        state_dir.display()
    )
}

fn at_once(signal: i32, on_stop: OnStop) -> u8 {
    tracing::warn!(signal, "{}", told_at_once(on_stop));
    after_signal(signal)
}

/// A removal that had begun is taken up by the next start.
fn told_at_once(on_stop: OnStop) -> &'static str {
    match on_stop {
        OnStop::KeepAll => "stopped at once; boxes are kept for the next start",
        OnStop::KeepPersistent | OnStop::DestroyAll => {
            "stopped at once; sessions that were not removed yet are kept for the next start"
        }
    }
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
        return Ok(Arc::new(LazyBackend::disabled(name)));
    }
    let engines = Engines::persistent(state.path(), places.mount_policy(), store.instance_id().await?);
    Ok(Arc::new(engines.configured(config).set(pick)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_says_what_is_left_and_how_to_get_at_it() {
        let told = |stopped: Stopped| super::told(&stopped, Path::new("/srv/state"));
        assert_eq!(told(Stopped::default()), "stopped; no session was kept");
        assert_eq!(
            told(Stopped { removed: 2, ..Stopped::default() }),
            "stopped; no session was kept; sessions removed: 2"
        );
        let failed = told(Stopped { removed: 2, not_removed: 1, ..Stopped::default() });
        assert_eq!(failed, "stopped; no session was kept; sessions removed: 2; sessions that could not be removed: 1");
        let kept = told(Stopped { kept: 3, kept_persistent: 1, running: 2, ..Stopped::default() });
        for part in
            ["kept: 3 (persistent: 1)", "2 running", "ends by itself", "/srv/state", "session rm --all", "tenant"]
        {
            assert!(kept.contains(part), "{part}: {kept}");
        }
        assert!(!kept.contains("removed:"), "{kept}");
        let persistent = told(Stopped { kept: 1, kept_persistent: 1, removed: 4, ..Stopped::default() });
        assert!(
            persistent.contains("stay until they are removed") && persistent.contains("removed: 4"),
            "{persistent}"
        );
    }

    #[test]
    fn a_stop_at_once_does_not_claim_that_what_it_was_removing_is_kept() {
        assert!(told_at_once(OnStop::KeepAll).contains("boxes are kept"));
        for on_stop in [OnStop::KeepPersistent, OnStop::DestroyAll] {
            assert!(told_at_once(on_stop).contains("not removed yet"), "{on_stop:?}");
        }
    }
}
