//! What the box runtime says of itself when it serves, where standard output is free.

use box_server::LangBotConfig;

use crate::fault::Fault;
use crate::listing;

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
        lines.push(format!("In LangBot:  box.runtime.endpoint: ws{rest}"));
    }
    let token = if langbot.control_token.is_some() {
        "needed; set the same LANGBOT_BOX_CONTROL_TOKEN for LangBot"
    } else {
        "not needed"
    };
    lines.push(format!("Token:       {token}"));
    lines.join("\n") + "\n"
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
}
