//! How this machine reaches PyPI and npm. A box sees neither the configuration of our pip and npm nor our environment, so what is set
//! there is said in the definition of each server.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// Variables that say where packages come from and whom to trust.
const VARIABLES: &[&str] = &[
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "PIP_CERT",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INSECURE_HOST",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// A setting of a tool, and the variable that says the same.
const SETTINGS: &[(&[&str], &str)] = &[
    (&["python3", "-m", "pip", "config", "get", "global.index-url"], "PIP_INDEX_URL"),
    (&["python3", "-m", "pip", "config", "get", "global.cert"], "PIP_CERT"),
    (&["npm", "config", "get", "registry"], "npm_config_registry"),
    (&["npm", "config", "get", "cafile"], "npm_config_cafile"),
];

/// Environment variables for a server in a box.
pub(in crate::test) fn environment() -> BTreeMap<String, String> {
    let said = VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    let asked = SETTINGS.iter().filter_map(|(question, name)| Some(((*name).to_owned(), ask(question)?)));
    // What is said by a variable wins over a file, as it does for the tools themselves.
    let mut found: BTreeMap<String, String> = asked.collect();
    found.extend(said);
    if let Some(index) = found.get("PIP_INDEX_URL").cloned() {
        found.entry("UV_DEFAULT_INDEX".to_owned()).or_insert(index);
    }
    // uv brings certificates of its own along, and a machine may trust others.
    found.entry("UV_SYSTEM_CERTS".to_owned()).or_insert_with(|| "1".to_owned());
    found
}

/// The value of a setting; nothing if it is not set.
fn ask(question: &[&str]) -> Option<String> {
    let (program, arguments) = question.split_first()?;
    // What tools have to say besides goes to their standard error.
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let answer = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    // npm calls nothing `null` or `undefined`.
    (output.status.success() && !["", "null", "undefined"].contains(&answer.as_str())).then_some(answer)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_answer_is_what_a_tool_writes_and_nothing_is_no_answer() {
        let ask = |script: &str| super::ask(&["sh", "-c", script]);
        assert_eq!(ask("echo warning >&2; echo https://registry/"), Some("https://registry/".to_owned()));
        assert_eq!(ask("echo null"), None);
        assert_eq!(ask("echo 'no such key'; exit 1"), None);
        assert_eq!(super::ask(&["no-such-program-anywhere"]), None);
    }
}
