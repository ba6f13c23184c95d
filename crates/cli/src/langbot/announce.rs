//! What the box runtime says of itself when it serves, where standard output is free.

use door_langbot::LangBotConfig;

use crate::fault::Fault;
use crate::listing;
use crate::serve::dialed::{self, Dialed};

/// Says where it listens and what to set in LangBot.
pub(super) fn write(addresses: &[String], langbot: &LangBotConfig) -> Result<(), Fault> {
    listing::write_out(text(addresses, langbot).as_bytes())?;
    Ok(())
}

fn text(addresses: &[String], langbot: &LangBotConfig) -> String {
    let mut lines =
        vec![format!("strongbox {} serves LangBot at {}", env!("CARGO_PKG_VERSION"), addresses.join(" and "))];
    // `http` becomes `ws`, and `https` becomes `wss`.
    if let Some(rest) = addresses.iter().find_map(|address| address.strip_prefix("http")) {
        lines.extend(endpoints(&format!("ws{rest}")));
    }
    let token = if langbot.control_token.is_some() {
        "needed; set the same LANGBOT_BOX_CONTROL_TOKEN for LangBot"
    } else {
        "not needed"
    };
    lines.push(format!("Token:       {token}"));
    lines.join("\n") + "\n"
}

/// The lines with the endpoint for LangBot.
fn endpoints(endpoint: &str) -> Vec<String> {
    let Dialed { here, elsewhere } = Dialed::of(endpoint);
    let Some(elsewhere) = elsewhere else { return vec![format!("In LangBot:  box.runtime.endpoint: {here}")] };
    vec![
        format!("In LangBot:  box.runtime.endpoint: {here} (on this machine)"),
        format!("             box.runtime.endpoint: {elsewhere} (elsewhere)"),
        format!("ADDRESS:     {}", dialed::ADDRESS),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_to_set_in_langbot() {
        let both = ["https://127.0.0.1:5410".to_owned(), "unix:/srv/state/strongbox.sock".to_owned()];
        let said = text(&both, &LangBotConfig::default());
        insta::assert_snapshot!(said.replace(env!("CARGO_PKG_VERSION"), "VERSION"), @r"
        strongbox VERSION serves LangBot at https://127.0.0.1:5410 and unix:/srv/state/strongbox.sock
        In LangBot:  box.runtime.endpoint: wss://127.0.0.1:5410
        Token:       not needed
        ");
        let with = LangBotConfig { control_token: Some("x".repeat(32)), ..LangBotConfig::default() };
        assert!(text(&both, &with).contains("LANGBOT_BOX_CONTROL_TOKEN"));
    }

    #[test]
    fn an_address_that_stands_for_all_becomes_one_that_can_be_dialed() {
        let said = text(&["http://0.0.0.0:5410".to_owned()], &LangBotConfig::default());
        insta::assert_snapshot!(said.replace(env!("CARGO_PKG_VERSION"), "VERSION"), @r"
        strongbox VERSION serves LangBot at http://0.0.0.0:5410
        In LangBot:  box.runtime.endpoint: ws://127.0.0.1:5410 (on this machine)
                     box.runtime.endpoint: ws://ADDRESS:5410 (elsewhere)
        ADDRESS:     an IP address of this machine, or a name in allowed_hosts
        Token:       not needed
        ");
        let said = text(&["https://[::]:1".to_owned()], &LangBotConfig::default());
        assert!(said.contains("wss://[::1]:1 (on this machine)"), "{said}");
    }
}
