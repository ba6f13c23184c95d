//! `strongbox e2b`: prepares a server for E2B clients.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::http::{Client, encoded};
use crate::client::{ServerOptions, ask};
use crate::fault::{Fault, say};
use crate::listing;
use crate::table::visible;

/// The template that code interpreter packages ask for.
const TEMPLATE: &str = "code-interpreter-v1";

/// Packages that code interpreters usually need.
const PACKAGES: [&str; 5] = ["numpy", "pandas", "matplotlib", "pillow", "ipython"];

/// How often the client polls the build.
const PAUSE: Duration = Duration::from_millis(500);

/// Settings for where pip finds packages, by pip's names.
const PIP_SETTINGS: [&str; 5] = ["index-url", "extra-index-url", "trusted-host", "proxy", "cert"];

/// Variables that name proxies for pip. Programs read either case, and some read only one.
const PROXY_VARIABLES: [&str; 8] =
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"];

/// Certificates visible in a box.
const SHOWN_CERTIFICATES: &str = "/etc/ssl/certs/";

/// What can be done for clients of E2B.
#[derive(Debug, Subcommand)]
pub(crate) enum E2bVerb {
    /// Build the template code-interpreter-v1 with numpy, pandas, matplotlib, Pillow and IPython
    ///
    /// The packages are installed by pip in a box with outbound network, which is saved; from then on the sandboxes of this
    /// tenant that begin with code-interpreter-v1 have them. pip uses the addresses and the proxy of `pip config list` on this
    /// machine, and the proxies of HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY; sandboxes do not get them. Run it again for
    /// newer packages.
    Prepare(PrepareOptions),
}

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox e2b prepare
  strongbox e2b prepare --with scipy --with 'scikit-learn<2'")]
pub(crate) struct PrepareOptions {
    /// One more package, as pip takes it; can be repeated
    #[arg(long = "with", value_name = "PACKAGE")]
    more: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Carries one out.
pub(crate) fn main(verb: &E2bVerb) -> Result<u8, Fault> {
    let E2bVerb::Prepare(options) = verb;
    let packages = options.packages()?;
    let (proxies, unreachable) = proxies(|name| std::env::var(name).ok());
    for name in unreachable {
        say(&format!("{name} is not used: it names a proxy on this machine, which boxes do not reach"));
    }
    let settings: BTreeMap<_, _> = pip_settings().into_iter().chain(proxies).collect();
    ask(&options.server, async |client| {
        let build = begin(client, &packages, &settings).await?;
        build.follow(client).await?;
        listing::write_out(format!("{TEMPLATE} is ready\n").as_bytes())?;
        Ok(0)
    })
}

impl PrepareOptions {
    fn packages(&self) -> Result<Vec<String>, Fault> {
        let wrong =
            |name: &&String| name.trim().is_empty() || name.starts_with('-') || name.chars().any(char::is_control);
        if let Some(name) = self.more.iter().find(wrong) {
            return Err(Fault::new(format!(
                "--with: {name:?}: expected a package as pip takes it, such as 'scipy>=1.11'"
            )));
        }
        Ok(PACKAGES.map(str::to_owned).into_iter().chain(self.more.iter().cloned()).collect())
    }
}

/// A build that was requested.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Build {
    #[serde(rename = "templateID")]
    template: String,
    #[serde(rename = "buildID")]
    build: String,
}

#[derive(Debug, Deserialize)]
struct Progress {
    status: String,
    logs: Vec<String>,
    reason: Option<Reason>,
}

#[derive(Debug, Deserialize)]
struct Reason {
    message: String,
}

async fn begin(client: &Client, packages: &[String], settings: &BTreeMap<String, String>) -> Result<Build, Fault> {
    let build: Build = client.post("/v3/templates", &json!({ "name": TEMPLATE })).await?.read()?;
    let steps = steps(packages, settings);
    let path = format!("/v2/templates/{}/builds/{}", encoded(&build.template), encoded(&build.build));
    client.post(&path, &json!({ "fromTemplate": "base", "steps": steps })).await?;
    Ok(build)
}

/// The settings are for the steps alone: sandboxes do not have them.
fn steps(packages: &[String], settings: &BTreeMap<String, String>) -> Vec<Value> {
    let settings: Vec<&String> = settings.iter().flat_map(|(name, value)| [name, value]).collect();
    let arguments = (!settings.is_empty()).then(|| json!({ "type": "ARG", "args": settings }));
    let run = json!({ "type": "RUN", "args": [install_line(packages), "root"] });
    arguments.into_iter().chain([run]).collect()
}

impl Build {
    /// Prints the build log until the build ends.
    async fn follow(&self, client: &Client) -> Result<(), Fault> {
        let path = format!("/templates/{}/builds/{}/status", encoded(&self.template), encoded(&self.build));
        let mut known = 0;
        loop {
            let progress: Progress = client.get(&format!("{path}?logsOffset={known}")).await?.read()?;
            known += progress.logs.len();
            for line in &progress.logs {
                listing::write_out(format!("{}\n", visible(line)).as_bytes())?;
            }
            match progress.status.as_str() {
                _ if !progress.logs.is_empty() => {}
                "waiting" | "building" => tokio::time::sleep(PAUSE).await,
                "ready" => return Ok(()),
                _ => {
                    let why = progress.reason.map_or_else(|| progress.status.clone(), |reason| reason.message);
                    return Err(Fault::new(format!("building {TEMPLATE} failed: {}", visible(&why))).hint(
                        "the lines above say why; the box needs outbound network, and gets packages from where \
                         `pip config list` and the proxy variables of this shell say; a box reaches a proxy on a private \
                         network only if `reserved` opens it, and none on the server's machine",
                    ));
                }
            }
        }
    }
}

/// Commands to run in the box.
fn install_line(packages: &[String]) -> String {
    let quoted = |text: &String| format!("'{}'", text.replace('\'', r"'\''"));
    let packages = packages.iter().map(quoted).collect::<Vec<_>>().join(" ");
    format!(
        "python3 -m pip --version || {{ echo 'there is no pip: install it on the server (apt-get install python3-pip)' >&2; exit 1; }}\n\
         PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
         python3 -m pip install --progress-bar off {packages}"
    )
}

/// This machine's pip settings for package sources, as variables. Empty without pip.
fn pip_settings() -> BTreeMap<String, String> {
    let listed = Command::new("python3").args(["-m", "pip", "config", "list"]).stdin(Stdio::null()).output();
    let listed = listed.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    read_settings(&String::from_utf8_lossy(&listed.unwrap_or_default()))
}

/// The proxies of an environment, and the names of those that are on loopback.
fn proxies(get: impl Fn(&str) -> Option<String>) -> (BTreeMap<String, String>, Vec<&'static str>) {
    let set = |name: &'static str| Some((name, get(name).filter(|value| !value.trim().is_empty())?));
    let (local, others): (Vec<_>, Vec<_>) = PROXY_VARIABLES
        .into_iter()
        .filter_map(set)
        .partition(|(name, value)| !name.eq_ignore_ascii_case("no_proxy") && is_on_loopback(value));
    (
        others.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        local.into_iter().map(|(name, _)| name).collect(),
    )
}

/// Whether a proxy, as `http://user:password@host:port` or less, is on loopback.
fn is_on_loopback(proxy: &str) -> bool {
    let address = proxy.trim().split_once("://").map_or(proxy.trim(), |(_, rest)| rest);
    let host = address.rsplit('@').next().unwrap_or_default();
    ["127.", "localhost", "[::1]"].iter().any(|local| host.starts_with(local))
}

/// Reads lines such as `global.index-url='https://…'`. The environment wins, then the `install` section.
fn read_settings(listed: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for section in ["global", "install", ":env:"] {
        for line in listed.lines() {
            let Some((name, value)) = line.split_once('=') else { continue };
            let Some(name) = name.strip_prefix(section).and_then(|name| name.strip_prefix('.')) else { continue };
            // Several values are joined by newlines, as Python writes them.
            let value = value.trim().trim_matches(['\'', '"']).replace("\\n", " ");
            let is_known = PIP_SETTINGS.contains(&name) && (name != "cert" || value.starts_with(SHOWN_CERTIFICATES));
            if is_known && !value.trim().is_empty() {
                found.insert(format!("PIP_{}", name.replace('-', "_").to_uppercase()), value.trim().to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_packages_are_is_what_pip_is_told_here() {
        let listed = ":env:.cert='/etc/ssl/certs/own.pem'\n:env:.find-links='/opt/wheels'\n\
            global.cert='/root/own.pem'\nglobal.index-url='https://packages.example/simple'\n\
            global.extra-index-url='\\nhttps://one.example/\\nhttps://two.example/'\ninstall.index-url='https://mirror.example/simple'\n";
        let expected = [
            ("PIP_CERT", "/etc/ssl/certs/own.pem"),
            ("PIP_EXTRA_INDEX_URL", "https://one.example/ https://two.example/"),
            ("PIP_INDEX_URL", "https://mirror.example/simple"),
        ];
        assert_eq!(read_settings(listed), expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert!(read_settings("").is_empty());
    }

    #[test]
    fn proxies_of_the_environment_are_for_the_build_alone() {
        let environment = [
            ("HTTPS_PROXY", "http://proxy.example:3128"),
            ("HTTP_PROXY", ""),
            ("all_proxy", "socks5://name:secret@127.0.0.1:1080"),
            ("no_proxy", "localhost,mirror.example"),
        ];
        let get =
            |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let (found, unreachable) = proxies(get);
        assert_eq!(unreachable, ["all_proxy"]);
        let built = steps(&["numpy".to_owned()], &found);
        let expected = json!(["HTTPS_PROXY", "http://proxy.example:3128", "no_proxy", "localhost,mirror.example"]);
        assert_eq!((&built[0]["type"], &built[0]["args"]), (&json!("ARG"), &expected));
        assert_eq!(steps(&[], &proxies(|_| None).0).len(), 1, "no step without settings");
    }

    #[test]
    fn packages_are_words_for_the_shell_and_no_options() {
        let options =
            |more: &str| PrepareOptions { more: vec![more.to_owned()], server: Words::parse_from(["words"]).server };
        let packages = options("it's>=1").packages().unwrap();
        assert!(install_line(&packages).ends_with(r"'numpy' 'pandas' 'matplotlib' 'pillow' 'ipython' 'it'\''s>=1'"));
        for bad in ["", " ", "--index-url=x", "a\nb"] {
            assert!(options(bad).packages().is_err(), "{bad:?}");
        }
    }

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        server: ServerOptions,
    }

    use clap::Parser as _;
}
