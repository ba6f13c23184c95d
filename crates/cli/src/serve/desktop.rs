//! `strongbox mcp serve --stdio`: a computer in a box for one desktop client.

use std::sync::Arc;

use box_core::{Caller, SessionId};
use clap::Args;
use door_langbot::LangBotConfig;
use door_mcp::own;
use door_mcp::supervisor::ServiceComputer;

use super::server::{Haste, Listening, Server, block_on};
use super::{log, reload};
use crate::config::{Config, PlaceOptions, Settings};
use crate::fault::Fault;

/// Clients that may have one at once, each with a state of its own.
const STATES_MAX: usize = 64;
/// The session of tools where no option and no call names one.
const DEFAULT_SESSION: &str = "mcp";

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  In the configuration of a desktop client:
    {\"mcpServers\": {\"box\": {\"command\": \"strongbox\", \"args\": [\"mcp\", \"serve\", \"--stdio\"]}}}

The client gets exec, run_code, read, write, edit, glob, grep, activate, and control of sessions
and processes. Calls that name no session work in the session mcp, or in that of --session. When it
leaves, everything in its boxes is removed. For boxes that stay, and for several clients, run
`strongbox serve` and give them http://127.0.0.1:5410/mcp/box.

Exit codes: 0 the client has left, 125 could not start or run, 128+N stopped at once by signal N.")]
pub(crate) struct DesktopOptions {
    /// Speak over standard input and output, the only way there is
    #[arg(long, required = true)]
    stdio: bool,
    /// Hold the client to this session: no call names or finds another
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    #[command(flatten)]
    place: PlaceOptions,
}

impl DesktopOptions {
    /// Who the client is, and the session in which its tools work.
    fn client(&self) -> Result<(Caller, SessionId), Fault> {
        match &self.session {
            Some(session) => Ok((Caller::local().bound_to(session)?, session.clone())),
            None => Ok((Caller::local(), DEFAULT_SESSION.parse()?)),
        }
    }

    fn settings(&self) -> Result<Settings, Fault> {
        Ok(self.place.settings(&self.place.flags())?.of_one_client())
    }

    /// The configuration, without anything that others could find, and beside whatever else runs here.
    fn config(&self, settings: &Settings) -> Result<Config, Fault> {
        let mut config = settings.config()?;
        (config.listen, config.unix_socket, config.tls) = (None, None, None);
        config.mcp.enabled = false;
        if self.place.state_dir.is_none() {
            config.state_dir = config.state_dir.join("mcp-stdio");
        }
        Ok(config)
    }
}

/// Serves until the client leaves.
pub(crate) fn main(options: &DesktopOptions) -> Result<u8, Fault> {
    let (caller, session) = options.client()?;
    let mut settings = options.settings()?;
    let config = options.config(&settings)?;
    let log = log::start_dropping(&settings, &config.log)?;
    let ended = block_on(async {
        let server = start(options, config.clone()).await?;
        let client = serve(caller, session, &server);
        let reload = |service: &box_core::Service| reload(service, &mut settings, || options.settings());
        server.run(config.on_stop, reload, client, Haste::Quick).await
    });
    log.flush();
    ended
}

/// Starts on the first state that nobody has.
async fn start(options: &DesktopOptions, mut config: Config) -> Result<Server, Fault> {
    let first = config.state_dir.clone();
    for number in 2..=STATES_MAX {
        match Server::start(&config, LangBotConfig::default(), Listening::IfPossible).await {
            Err(fault) if options.place.state_dir.is_none() && fault.code == "state_in_use" => {
                let mut name = first.as_os_str().to_owned();
                name.push(format!("-{number}"));
                config.state_dir = name.into();
            }
            other => return other,
        }
    }
    Server::start(&config, LangBotConfig::default(), Listening::IfPossible).await
}

/// Serves the client until it leaves, or the server is asked to stop.
fn serve(caller: Caller, session: SessionId, server: &Server) -> impl Future<Output = ()> + use<> {
    let computer = Arc::new(ServiceComputer::new(server.service().clone()));
    let stopped = server.stopped();
    async move {
        let client = own::serve_streams(computer, caller, session, tokio::io::stdin(), tokio::io::stdout());
        tokio::select! {
            outcome = Box::pin(client) => {
                if let Err(error) = outcome {
                    tracing::error!(%error, "the client cannot be served");
                }
            }
            () = stopped => {}
        }
    }
}
