//! What the server says of itself when it serves: once, plainly, to standard output.

use std::path::Path;

use box_core::BackendName;
use box_core::backend::Pick;

use crate::fault::Fault;
use crate::listing;

/// Says where the server listens, who may come in and what to try first.
pub(crate) fn write(addresses: &[String], has_tokens: bool, has_e2b: bool, state_dir: &Path) -> Result<(), Fault> {
    listing::write_out(text(addresses, has_tokens, has_e2b, state_dir).as_bytes())?;
    Ok(())
}

fn text(addresses: &[String], has_tokens: bool, has_e2b: bool, state_dir: &Path) -> String {
    let mut lines = vec![format!("strongbox {} serves at {}", env!("CARGO_PKG_VERSION"), addresses.join(" and "))];
    let web = addresses.iter().find(|address| address.starts_with("http"));
    if let Some(web) = web {
        lines.push(format!("Interface:   {}/openapi.json", web.trim_end_matches('/')));
    }
    let named = if state_dir == box_host::default_state_dir() {
        String::new()
    } else {
        format!(" --state-dir {}", state_dir.display())
    };
    lines.push(match (web, has_tokens) {
        (None, _) => "Token:       not needed: only this user's own commands can come in".to_owned(),
        (Some(_), true) => "Token:       needed over TCP (STRONGBOX_TOKEN); not needed over the unix socket".to_owned(),
        (Some(_), false) => format!(
            "Token:       not needed: every user of this machine can come in. To change that:\n             \
             strongbox token create{named} --name NAME"
        ),
    });
    if let Some(web) = web.map(|web| web.trim_end_matches('/')).filter(|_| has_e2b) {
        lines.push(format!("E2B's SDKs:  E2B_API_URL={web} E2B_SANDBOX_URL={web}"));
        lines.extend(ports_line(web));
        lines.push(if has_tokens {
            format!("             E2B_API_KEY from: strongbox token create{named} --name NAME --e2b")
        } else {
            "             E2B_API_KEY=e2b_0000 (any such key while there is no token)".to_owned()
        });
    }
    lines.push(format!("Try:         strongbox exec{named} demo -- echo hello"));
    lines.join("\n") + "\n"
}

/// Where `get_host` leads when no domain is configured: only a server on loopback names sandboxes by itself.
fn ports_line(web: &str) -> Option<String> {
    let address: std::net::SocketAddr = web.split_once("://")?.1.parse().ok()?;
    let on_loopback = address.ip().to_canonical().is_loopback();
    on_loopback.then(|| format!("             get_host(3000) is 3000-SANDBOX.localhost:{}", address.port()))
}

/// Says what sandboxes with a network lack on this machine, if anything, before a client finds out.
pub(crate) fn warn_of_missing_network(pick: &Pick) {
    let makes_networks = matches!(pick, Pick::First(_) | Pick::Forced(BackendName::Native | BackendName::Nsjail));
    if let Some(missing) = box_host::network::missing_programs().filter(|_| makes_networks) {
        tracing::warn!("boxes have no outbound network, which sandboxes of E2B's SDKs ask for: {missing}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_where_it_is_and_what_to_try() {
        let both = ["http://127.0.0.1:5410".to_owned(), "unix:/srv/state/strongbox.sock".to_owned()];
        let said = text(&both, false, true, Path::new("/srv/state"));
        insta::assert_snapshot!(said.replace(env!("CARGO_PKG_VERSION"), "VERSION"), @r"
        strongbox VERSION serves at http://127.0.0.1:5410 and unix:/srv/state/strongbox.sock
        Interface:   http://127.0.0.1:5410/openapi.json
        Token:       not needed: every user of this machine can come in. To change that:
                     strongbox token create --state-dir /srv/state --name NAME
        E2B's SDKs:  E2B_API_URL=http://127.0.0.1:5410 E2B_SANDBOX_URL=http://127.0.0.1:5410
                     get_host(3000) is 3000-SANDBOX.localhost:5410
                     E2B_API_KEY=e2b_0000 (any such key while there is no token)
        Try:         strongbox exec --state-dir /srv/state demo -- echo hello
        ");
        let guarded = text(&both, true, true, Path::new("/srv/state"));
        assert!(
            guarded.contains("needed over TCP (STRONGBOX_TOKEN)") && guarded.contains("--name NAME --e2b"),
            "{guarded}"
        );
        assert!(!text(&both[1..], true, true, Path::new("/srv/state")).contains("openapi"));
        assert!(!text(&both, true, false, Path::new("/srv/state")).contains("E2B"));
    }
}
