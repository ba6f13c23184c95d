//! What clients say of a file when they upload it: headers that are kept with it.

use http::HeaderMap;

use crate::box_files::METADATA;
use crate::failure::E2bFailure;
use crate::limits::{METADATA_BYTES_MAX, METADATA_NAME_BYTES_MAX};

/// How such headers begin.
const PREFIX: &str = "x-metadata-";

/// Names and values. They must be plain text, and not too much of it.
pub(super) fn of(headers: &HeaderMap) -> Result<Vec<(String, String)>, E2bFailure> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut bytes = 0;
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix(PREFIX) else { continue };
        let refuse = |why: String| Err(E2bFailure::invalid(format!("invalid header {header:.80}: {why}")));
        if name.is_empty() || name.len() > METADATA_NAME_BYTES_MAX {
            return refuse(format!("its name goes on with 1 to {METADATA_NAME_BYTES_MAX} characters"));
        }
        let value = match value.to_str() {
            Ok(value) if value.bytes().all(|byte| matches!(byte, b' '..=b'~')) => value,
            _ => return refuse("its value must be printable ASCII".to_owned()),
        };
        if found.iter().any(|(known, _)| known == name) {
            return refuse("give it once".to_owned());
        }
        bytes += METADATA.len() + name.len() + value.len();
        if bytes > METADATA_BYTES_MAX {
            return refuse(format!("names and values together have more than {METADATA_BYTES_MAX} bytes"));
        }
        found.push((name.to_owned(), value.to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn names_have_no_capitals_and_values_stay_as_they_are() {
        let found = of(&headers(&[("X-Metadata-Author", b"Me & you"), ("Accept", b"x"), ("x-metadata-a", b"")]));
        let mut found = found.unwrap();
        found.sort();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(found, [pair("a", ""), pair("author", "Me & you")]);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let long = format!("x-metadata-{}", "n".repeat(METADATA_NAME_BYTES_MAX + 1));
        let large = vec![b'v'; METADATA_BYTES_MAX];
        for bad in [
            headers(&[("x-metadata-", b"x")]),
            headers(&[(&long, b"x")]),
            headers(&[("x-metadata-a", "ü".as_bytes())]),
            headers(&[("x-metadata-a", b"\t")]),
            headers(&[("x-metadata-a", &large)]),
            headers(&[("x-metadata-a", b"1"), ("x-metadata-a", b"2")]),
        ] {
            assert_eq!(of(&bad).unwrap_err().status(), 400);
        }
    }
}
