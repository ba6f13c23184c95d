//! `strongbox serve`: sessions over HTTP and a unix socket.

mod announce;
mod descriptors;
pub(crate) mod desktop;
pub(crate) mod dialed;
pub(crate) mod doors;
mod dropping;
pub(crate) mod log;
mod mcp;
mod notify;
pub(crate) mod server;
mod signals;

use box_core::{Service, tasks};
use clap::Args;

use self::log::LogFormat;
use self::server::{Haste, Listening, Server};
use crate::config::{KeyFlags, OnStop, PlaceOptions, Settings};
use crate::fault::Fault;

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

Signals: SIGTERM or SIGINT stops it when running requests have ended; the second stops it at once.
Boxes and what runs in them stay for the next start, unless --on-stop says otherwise. If no server
comes back, one that is not persistent ends by itself: after its idle time when nothing runs in it,
else within 24 hours. SIGHUP reads the file again.
Exit codes: 0 stopped as asked, 125 could not start or run, 128+N stopped at once by signal N.")]
pub(crate) struct ServeOptions {
    #[command(flatten)]
    keys: KeyFlags,
    /// How the log on standard error is written
    #[arg(long, value_name = "text|json", default_value = "text", hide_possible_values = true)]
    log_format: LogFormat,
    #[command(flatten)]
    place: PlaceOptions,
}

impl ServeOptions {
    fn settings(&self) -> Result<Settings, Fault> {
        let mut flags = self.place.flags();
        flags.extend_from_slice(&self.keys.0);
        self.place.settings(&flags)
    }
}

/// Serves until a signal ends it.
pub(crate) fn main(options: &ServeOptions) -> Result<u8, Fault> {
    let mut settings = options.settings()?;
    let config = settings.config()?;
    log::start(&settings, &config.log, options.log_format)?;
    server::block_on(async {
        let server = Server::start(&config, config.langbot()?, Listening::Required).await?;
        let has_e2b = config.e2b_door()?.enabled;
        announce::write(server.addresses(), server.has_tokens(), has_e2b, &config.state_dir)?;
        announce::write_rest(server.addresses(), config.mcp.enabled)?;
        let pick = config.pick();
        // Clients must not wait until the machine was examined.
        drop(tasks::blocking(move || announce::write_missing(&pick)));
        let until_stopped = server.stopped();
        let reload = |service: &Service| reload(service, &mut settings, || options.settings());
        server.run(config.on_stop, reload, until_stopped, Haste::Patient).await
    })
}

/// Reads the configuration again. One that is not good is told of, and the old one stays.
pub(crate) fn reload(
    service: &Service,
    settings: &mut Settings,
    read: impl FnOnce() -> Result<Settings, Fault>,
) -> Option<OnStop> {
    let read = read().and_then(|newer| newer.config().map(|config| (newer, config)));
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
