//! What the server says of itself when it serves: once, plainly, to standard output.

use std::path::Path;

use box_core::BackendName;
use box_core::backend::{Finding, FindingState, Pick};

use super::dialed::{self, Dialed};
use crate::fault::Fault;
use crate::listing;

/// Says where the server listens, who may come in and what to try first.
pub(crate) fn write(addresses: &[String], has_tokens: bool, has_e2b: bool, state_dir: &Path) -> Result<(), Fault> {
    listing::write_out(text(addresses, has_tokens, has_e2b, state_dir).as_bytes())?;
    Ok(())
}

fn text(addresses: &[String], has_tokens: bool, has_e2b: bool, state_dir: &Path) -> String {
    let mut lines = vec![format!("strongbox {} serves at {}", env!("CARGO_PKG_VERSION"), addresses.join(" and "))];
    let web = web(addresses);
    if let Some(web) = &web {
        lines.push(format!("Interface:   {}/openapi.json", web.here));
        let elsewhere = web.elsewhere.as_ref();
        lines.extend(elsewhere.map(|url| format!("Elsewhere:   {url}, where ADDRESS is {}", dialed::ADDRESS)));
    }
    let named = if state_dir == box_host::default_state_dir() {
        String::new()
    } else {
        format!(" --state-dir {}", state_dir.display())
    };
    lines.push(match (&web, has_tokens) {
        (None, _) => "Token:       not needed: only this user's own commands can come in".to_owned(),
        (Some(_), true) => "Token:       needed over TCP (STRONGBOX_TOKEN); not needed over the unix socket".to_owned(),
        (Some(_), false) => format!(
            "Token:       not needed: every user of this machine can come in. To change that:\n             \
             strongbox token create{named} --name NAME"
        ),
    });
    if let Some(Dialed { here, elsewhere }) = web.filter(|_| has_e2b) {
        lines.push(format!("E2B's SDKs:  E2B_API_URL={here} E2B_SANDBOX_URL={here}"));
        lines.extend(ports_line(&here).filter(|_| elsewhere.is_none()));
        lines.push(if has_tokens {
            format!("             E2B_API_KEY from: strongbox token create{named} --name NAME --e2b")
        } else {
            "             E2B_API_KEY=e2b_0000 (any such key while there is no token)".to_owned()
        });
    }
    lines.push(format!("Try:         strongbox exec{named} demo -- echo hello"));
    lines.join("\n") + "\n"
}

/// How clients reach the server by TCP.
fn web(addresses: &[String]) -> Option<Dialed> {
    let address = addresses.iter().find(|address| address.starts_with("http"))?;
    Some(Dialed::of(address.trim_end_matches('/')))
}

/// Examines the machine, and says what it lacks.
pub(super) fn write_missing(pick: &Pick) {
    box_core::fault::hang_at("machine_examined");
    // The server serves by now; that its output is closed must not end it.
    drop(listing::write_out(missing_text(&missing(pick)).as_bytes()));
}

/// What this machine lacks for boxes that this server may make itself.
fn missing(pick: &Pick) -> Vec<Finding> {
    let may_use = |name| match pick {
        Pick::Forced(forced) => *forced == name,
        Pick::First(order) => order.contains(&name),
    };
    let mut findings = if may_use(BackendName::Native) { box_host::doctor::of_boxes() } else { Vec::new() };
    findings.retain(|finding| finding.state == FindingState::Missing);
    if may_use(BackendName::Native) || may_use(BackendName::Nsjail) {
        findings.extend(box_host::network::missing_egress().map(|fix| Finding {
            name: "network".to_owned(),
            state: FindingState::Missing,
            detail: "boxes have no outbound network, which sandboxes of E2B's SDKs ask for".to_owned(),
            fix: Some(fix),
        }));
    }
    findings
}

/// Says where MCP clients go and where to read on.
pub(super) fn write_rest(addresses: &[String], has_mcp: bool) -> Result<(), Fault> {
    listing::write_out(rest(addresses, has_mcp).as_bytes())?;
    Ok(())
}

fn rest(addresses: &[String], has_mcp: bool) -> String {
    let Some(Dialed { here, .. }) = web(addresses) else { return String::new() };
    let docs = format!("Docs:        {here}/ and docs/ of the source\n");
    if !has_mcp {
        return docs;
    }
    format!("MCP:         {here}/mcp/box (tools in a box), {here}/mcp (all servers)\n{docs}")
}

fn missing_text(missing: &[Finding]) -> String {
    let mut lines = Vec::new();
    for Finding { name, detail, fix, .. } in missing {
        let fix = fix.as_ref().map(|fix| format!("; fix: {fix}")).unwrap_or_default();
        lines.push(format!("Missing:     {name}: {detail}{fix}\n"));
    }
    if !missing.is_empty() {
        lines.push("             strongbox doctor says more\n".to_owned());
    }
    lines.concat()
}

/// Where `get_host` leads when no domain is configured: only a server on loopback names sandboxes by itself.
fn ports_line(web: &str) -> Option<String> {
    let address: std::net::SocketAddr = web.split_once("://")?.1.parse().ok()?;
    let on_loopback = address.ip().to_canonical().is_loopback();
    on_loopback.then(|| format!("             get_host(3000) is 3000-SANDBOX.localhost:{}", address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_names_mcp_the_docs_and_what_is_missing() {
        let both = ["http://127.0.0.1:5410".to_owned(), "unix:/srv/state/strongbox.sock".to_owned()];
        let finding = Finding {
            name: "network".to_owned(),
            state: FindingState::Missing,
            detail: "no program that connects boxes".to_owned(),
            fix: Some("install passt".to_owned()),
        };
        insta::assert_snapshot!(rest(&both, true), @r"
        MCP:         http://127.0.0.1:5410/mcp/box (tools in a box), http://127.0.0.1:5410/mcp (all servers)
        Docs:        http://127.0.0.1:5410/ and docs/ of the source
        ");
        insta::assert_snapshot!(missing_text(&[finding]), @r"
        Missing:     network: no program that connects boxes; fix: install passt
                     strongbox doctor says more
        ");
        assert!(!rest(&both, false).contains("MCP"));
        assert_eq!(rest(&both[1..], true) + &missing_text(&[]), "");
    }

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

    #[test]
    fn no_address_of_the_banner_is_one_that_cannot_be_dialed() {
        let all = ["http://0.0.0.0:5410".to_owned()];
        let said = text(&all, true, true, &box_host::default_state_dir()) + &rest(&all, true);
        insta::assert_snapshot!(said.replace(env!("CARGO_PKG_VERSION"), "VERSION"), @r"
        strongbox VERSION serves at http://0.0.0.0:5410
        Interface:   http://127.0.0.1:5410/openapi.json
        Elsewhere:   http://ADDRESS:5410, where ADDRESS is an IP address of this machine, or a name in allowed_hosts
        Token:       needed over TCP (STRONGBOX_TOKEN); not needed over the unix socket
        E2B's SDKs:  E2B_API_URL=http://127.0.0.1:5410 E2B_SANDBOX_URL=http://127.0.0.1:5410
                     E2B_API_KEY from: strongbox token create --name NAME --e2b
        Try:         strongbox exec demo -- echo hello
        MCP:         http://127.0.0.1:5410/mcp/box (tools in a box), http://127.0.0.1:5410/mcp (all servers)
        Docs:        http://127.0.0.1:5410/ and docs/ of the source
        ");
    }
}
