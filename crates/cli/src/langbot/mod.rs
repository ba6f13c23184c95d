//! `strongbox box`: a server in the place of LangBot's own box runtime, started by the words that LangBot uses.

mod announce;
mod variables;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use box_core::Service;
use clap::Args;
use door_langbot::LangBotConfig;

use self::variables::Variables;
use crate::config::{Config, Flag, PlaceOptions, Settings};
use crate::fault::Fault;
use crate::serve::server::{Haste, Listening, Server, block_on};
use crate::serve::{log, reload};

/// Names by which LangBot's containers know their box runtime.
const HOSTS: [&str; 2] = ["langbot_box", "langbot_box_runtime"];
/// Servers for one port that may run at once, each with a state of its own. All but one have no listener.
const STATES_MAX: usize = 16;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  A box runtime for a LangBot on this machine, which needs box.runtime.endpoint: ws://127.0.0.1:5410
    strongbox box
  One that containers and other machines can reach; LangBot needs the same token:
    export LANGBOT_BOX_CONTROL_TOKEN=$(head -c 32 /dev/urandom | base64)
    strongbox box --host 0.0.0.0
  As a child of LangBot, which talks over standard input and output:
    strongbox box -s --ws-control-port 5410

Environment:
  LANGBOT_BOX_CONTROL_TOKEN          what clients must show: at least 32 characters, no whitespace
  LANGBOT_BOX_TRUSTED_INSTANCE_UUID  the only instance of LangBot that is served;
                                     required for -s with a token
  LANGBOT_BOX_CONFIG                 settings as LangBot sends them, JSON
  LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS
                                     1: storage need not be hard-limited for managed sandboxes
Everything else is set as for `strongbox serve`, the table [langbot] included.

Signals: as `strongbox serve`. With -s the end of standard input stops it, too, and removes all boxes.
Exit codes: 0 stopped as asked, 125 could not start or run, 128+N stopped at once by signal N.")]
pub(crate) struct BoxOptions {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = host)]
    host: IpAddr,
    /// Serve one client over standard input and output as well; standard output then has nothing else
    #[arg(short, long)]
    stdio_control: bool,
    /// Port to listen on
    #[arg(long, value_name = "PORT", default_value_t = 5410)]
    ws_control_port: u16,
    /// What becomes of boxes when a signal stops it: keep-all, keep-persistent or destroy-all; else keep-all, and with -s
    /// keep-persistent
    #[arg(long, value_name = "WHAT")]
    on_stop: Option<String>,
    #[command(flatten)]
    place: PlaceOptions,
}

fn host(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    text.parse().map_err(|_| "it must be an address such as 127.0.0.1, 0.0.0.0 or ::, or localhost".to_owned())
}

impl BoxOptions {
    fn settings(&self) -> Result<Settings, Fault> {
        let listen = Some(SocketAddr::new(self.host, self.ws_control_port).to_string());
        let mut flags = self.place.flags();
        flags.extend(Flag::given(&[("--host", "listen", &listen), ("--on-stop", "on_stop", &self.on_stop)]));
        let settings = self.place.settings(&flags)?;
        Ok(if self.stdio_control { settings.of_one_client() } else { settings })
    }

    /// The configuration, with a state directory of its own, so that it can run beside `strongbox serve`.
    fn config(&self, settings: &Settings) -> Result<Config, Fault> {
        let mut config = settings.config()?;
        // LangBot looks after its MCP servers itself; those of the operator belong to `strongbox serve`.
        config.mcp.enabled = false;
        config.allowed_hosts.extend(HOSTS.map(str::to_owned));
        if self.place.state_dir.is_none() {
            config.move_state(config.state_dir.join(format!("langbot-{}", self.ws_control_port)));
        }
        Ok(config)
    }

    fn listening(&self) -> Listening {
        if self.stdio_control { Listening::IfPossible } else { Listening::Required }
    }

    /// Strangers are not served by accident.
    fn refuse_open_door(&self, langbot: &LangBotConfig) -> Result<(), Fault> {
        if self.host.to_canonical().is_loopback() || langbot.control_token.is_some() || langbot.legacy {
            return Ok(());
        }
        let message = format!(
            "{} can be reached from other machines and there is no control token, so anybody could run commands here",
            self.host
        );
        Err(Fault::new(message).code("no_control_token").hint(
            "set LANGBOT_BOX_CONTROL_TOKEN here and in LangBot (4.10.7 and later); for an older LangBot, which has no token, set \
             legacy = true in [langbot] of the configuration and keep strangers off the port by other means",
        ))
    }
}

/// A client that shows a token is one of an instance, and standard input has no headers that could name it. Without the name,
/// workspaces of that client would share one place.
fn refuse_unnamed_instance(options: &BoxOptions, langbot: &LangBotConfig) -> Result<(), Fault> {
    if !options.stdio_control || langbot.control_token.is_none() || langbot.trusted_instance.is_some() {
        return Ok(());
    }
    let message = "LANGBOT_BOX_TRUSTED_INSTANCE_UUID is required for -s where a control token is set";
    Err(Fault::new(message).code("no_trusted_instance").hint(
        "set it to the instance id of the LangBot that starts this; LangBot 4.10.6 and older have neither, so leave the token out",
    ))
}

/// Serves until a signal or the end of standard input ends it.
pub(crate) fn main(options: &BoxOptions) -> Result<u8, Fault> {
    let settings = options.settings()?;
    let config = options.config(&settings)?;
    let log = log::start_dropping(&settings, &config.log)?;
    let langbot = Variables::of_process()?.into_config(config.langbot()?);
    options.refuse_open_door(&langbot)?;
    refuse_unnamed_instance(options, &langbot)?;
    let ended = block_on(async {
        let server = start(options, config.clone(), langbot.clone()).await?;
        Ok(run(options, server, &config, &langbot, settings).await.unwrap_or_else(|fault| {
            // Nobody may read standard error by now, so it is not written to directly.
            tracing::error!(reason = fault.message, hint = fault.hint, "the server failed");
            fault.exit_code
        }))
    });
    log.flush();
    ended
}

async fn run(
    options: &BoxOptions,
    server: Server,
    config: &Config,
    langbot: &LangBotConfig,
    mut settings: Settings,
) -> Result<u8, Fault> {
    let reload = |service: &Service| reload(service, &mut settings, || options.settings());
    let stopped = server.stopped();
    if !options.stdio_control {
        announce::write(server.addresses(), langbot)?;
        return server.run(config.on_stop, reload, stopped, Haste::Patient).await;
    }
    let door = server.langbot().clone();
    let control = door.serve_stdio(tokio::io::stdin(), tokio::io::stdout(), stopped);
    server.run(config.on_stop, reload, control, Haste::Quick).await
}

/// Starts the server. A child of LangBot whose state is in use, by that of another LangBot or by one that has yet to end, takes
/// another: it would get no port either, and must work without.
async fn start(options: &BoxOptions, mut config: Config, langbot: LangBotConfig) -> Result<Server, Fault> {
    let may_move = options.stdio_control && options.place.state_dir.is_none();
    let first = config.state_dir.clone();
    for number in 2..=STATES_MAX {
        match Server::start(&config, langbot.clone(), options.listening()).await {
            Err(fault) if may_move && fault.code == "state_in_use" => {
                let mut name = first.as_os_str().to_owned();
                name.push(format!("-{number}"));
                config.move_state(name.into());
            }
            other => return other,
        }
    }
    Server::start(&config, langbot, options.listening()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(host: &str) -> BoxOptions {
        BoxOptions {
            host: self::host(host).unwrap(),
            stdio_control: false,
            ws_control_port: 5410,
            on_stop: None,
            place: PlaceOptions::default(),
        }
    }

    #[test]
    fn strangers_need_a_token_or_the_operators_word() {
        let none = LangBotConfig::default();
        let token = LangBotConfig { control_token: Some("x".repeat(32)), ..LangBotConfig::default() };
        let legacy = LangBotConfig { legacy: true, ..LangBotConfig::default() };
        for (host, langbot, good) in [
            ("127.0.0.1", &none, true),
            ("localhost", &none, true),
            ("::1", &none, true),
            ("::ffff:127.0.0.1", &none, true),
            ("0.0.0.0", &none, false),
            ("::", &none, false),
            ("0.0.0.0", &token, true),
            ("0.0.0.0", &legacy, true),
        ] {
            assert_eq!(options(host).refuse_open_door(langbot).is_ok(), good, "{host} {langbot:?}");
        }
    }

    #[test]
    fn names_are_no_addresses() {
        assert!(host("langbot_box").unwrap_err().contains("127.0.0.1"));
    }
}
