//! What the values of a definition may be. Errors never repeat what may be a secret.

use std::collections::BTreeMap;
use std::net::IpAddr;

use box_wire::Invalid;
use box_wire::limits::{ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, COMMAND_BYTES_MAX, ENVIRONMENT_ENTRIES_MAX, PATH_BYTES_MAX};

use super::{BoxOptions, Remote, Secret, Stdio};
use crate::limits::{HEADER_BYTES_MAX, HEADERS_MAX, IMAGE_BYTES_MAX, URL_BYTES_MAX};

/// Headers that belong to the transport. A definition that set them would break it, or speak for another session.
const RESERVED_HEADERS: [&str; 10] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
    "upgrade",
];

impl Stdio {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        if self.args.len() > ARGUMENTS_MAX {
            return Err(Invalid::new("args", self.args.len(), format!("at most {ARGUMENTS_MAX} arguments")));
        }
        let is_unfit = |arg: &&String| arg.contains('\0') || arg.len() > ARGUMENT_BYTES_MAX;
        if let Some(arg) = self.args.iter().find(is_unfit) {
            let allowed = format!("arguments of at most {ARGUMENT_BYTES_MAX} bytes without NUL characters");
            return Err(Invalid::new("args", arg, allowed));
        }
        let bytes = self.command.len() + self.args.iter().map(String::len).sum::<usize>();
        if bytes > COMMAND_BYTES_MAX {
            return Err(Invalid::new("args", bytes, format!("at most {COMMAND_BYTES_MAX} bytes together")));
        }
        check_env(&self.env)?;
        self.cwd.as_deref().map_or(Ok(()), |cwd| check_word("cwd", cwd))
    }
}

impl Remote {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        check_url(&self.url)?;
        if self.headers.len() > HEADERS_MAX {
            return Err(Invalid::new("headers", self.headers.len(), format!("at most {HEADERS_MAX} headers")));
        }
        self.headers.iter().try_for_each(|(name, value)| check_header(name, value))
    }
}

impl BoxOptions {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        if let Some(image) = &self.image {
            check_word("image", image)?;
            if image.len() > IMAGE_BYTES_MAX {
                return Err(Invalid::new("image", image, format!("at most {IMAGE_BYTES_MAX} bytes")));
            }
        }
        if let Some(path) = &self.host_path {
            check_word("host_path", path)?;
            if !path.starts_with('/') || path.trim_matches('/').is_empty() {
                return Err(Invalid::new("host_path", path, "an absolute path of a directory below /"));
            }
        }
        check_env(&self.env)
    }
}

/// A word that may become the name of a program or file, and never an option of one.
pub(super) fn check_word(field: &'static str, word: &str) -> Result<(), Invalid> {
    let refuse = |allowed: &str| Err(Invalid::new(field, word, allowed));
    if word.trim().is_empty() {
        return refuse("a text that is not empty");
    }
    if word.starts_with('-') {
        return refuse("a text that does not start with -");
    }
    if word.chars().any(char::is_control) {
        return refuse("no NUL, newline or other control characters");
    }
    if word.len() > PATH_BYTES_MAX {
        return refuse("at most 4095 bytes");
    }
    Ok(())
}

fn check_env(env: &BTreeMap<String, Secret>) -> Result<(), Invalid> {
    if env.len() > ENVIRONMENT_ENTRIES_MAX {
        return Err(Invalid::new("env", env.len(), format!("at most {ENVIRONMENT_ENTRIES_MAX} entries")));
    }
    env.iter().try_for_each(|(name, value)| box_wire::exec::check_env(name, value.expose()))?;
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.expose().len()).sum();
    if bytes > COMMAND_BYTES_MAX {
        return Err(Invalid::new("env", bytes, format!("at most {COMMAND_BYTES_MAX} bytes together")));
    }
    Ok(())
}

/// Where the server is allowed to be is decided when it is connected to, on the address that is really used.
fn check_url(url: &str) -> Result<(), Invalid> {
    let refuse = |allowed: &str| Err(Invalid::new("url", without_secrets(url), allowed));
    if url.len() > URL_BYTES_MAX {
        return refuse("at most 2048 bytes");
    }
    let Ok(parsed) = url.parse::<http::Uri>() else { return refuse("a URL such as https://example.org/mcp") };
    let (Some("http" | "https"), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
        return refuse("an http or https URL such as https://example.org/mcp");
    };
    if authority.as_str().contains('@') {
        return refuse("no user or password; send an Authorization header instead");
    }
    let host = authority.host();
    let is_literal = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    // Whole numbers, octal and short forms are addresses to some resolvers and names to others.
    let looks_like_a_number = host.rsplit('.').find(|part| !part.is_empty()).is_none_or(is_number);
    if host.is_empty() || (looks_like_a_number && !is_literal) {
        return refuse("a host by its name, or by its address in the usual form");
    }
    Ok(())
}

/// What an error may repeat of a URL: not what is behind `?`, and nothing but its scheme where it may hold a password.
fn without_secrets(url: &str) -> &str {
    let whole = url.split(['?', '#']).next().unwrap_or_default();
    if url.contains('@') { whole.split_once("//").map_or("", |(scheme, _)| scheme) } else { whole }
}

fn is_number(part: &str) -> bool {
    let digits = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"));
    digits.map_or_else(
        || part.bytes().all(|byte| byte.is_ascii_digit()),
        |digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
    )
}

fn check_header(name: &str, value: &Secret) -> Result<(), Invalid> {
    let refuse = |allowed: &str| Err(Invalid::new("headers", name, allowed));
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return refuse("names of letters, digits and -");
    }
    if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return refuse("headers that the transport does not set itself");
    }
    let value = value.expose();
    if value.len() > HEADER_BYTES_MAX || !value.is_ascii() || http::HeaderValue::from_str(value).is_err() {
        return refuse("values of at most 8192 readable ASCII characters");
    }
    Ok(())
}
