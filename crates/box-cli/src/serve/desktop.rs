//! `strongbox mcp serve --stdio`: a computer in a box for one desktop client.

use std::sync::Arc;

use box_core::{Caller, SessionId};
use box_mcp::keeper::ServiceComputer;
use box_mcp::own;
use box_server::LangBotConfig;
use clap::Args;

use super::server::{Haste, Listening, Server, block_on};
use super::{log, reload};
use crate::config::{Config, PlaceOptions, Settings};
use crate::fault::Fault;

/// Clients that may have one at once, each with a state of its own.
const STATES_MAX: usize = 64;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  In the configuration of a desktop client:
    {\"mcpServers\": {\"box\": {\"command\": \"strongbox\", \"args\": [\"mcp\", \"serve\", \"--stdio\"]}}}

The client gets exec, read, write, edit, glob, grep, activate, and control of sessions and
processes. When it leaves, everything in its boxes is removed. For boxes that stay, and for several
clients, run `strongbox serve` and give them http://127.0.0.1:5410/mcp/box.

Exit codes: 0 the client has left, 125 could not start or run, 128+N stopped at once by signal N.")]
pub(crate) struct DesktopOptions {
    /// Speak over standard input and output, the only way there is
    #[arg(long, required = true)]
    stdio: bool,
    /// The session in which tools work, unless a call names another
    #[arg(long, value_name = "ID", default_value = "mcp")]
    session: SessionId,
    #[command(flatten)]
    place: PlaceOptions,
}

impl DesktopOptions {
    fn settings(&self) -> Result<Settings, Fault> {
        self.place.settings(&self.place.flags())
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
    let mut settings = options.settings()?;
    let config = options.config(&settings)?;
    let log = log::start_dropping(&config.log)?;
    let ended = block_on(async {
        let server = start(options, config.clone()).await?;
        let client = serve(options, &server);
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
fn serve(options: &DesktopOptions, server: &Server) -> impl Future<Output = ()> + use<> {
    let computer = Arc::new(ServiceComputer::new(server.service().clone()));
    let (session, stopped) = (options.session.clone(), server.stopped());
    async move {
        let client = own::serve_streams(computer, Caller::local(), session, tokio::io::stdin(), tokio::io::stdout());
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
