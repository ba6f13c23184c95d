//! Conditions of a download: what a client already has, and what it must still be.

use box_wire::file_op::Entry;
use http::{HeaderMap, HeaderName, StatusCode, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

use door_http::transfer::tag;

/// When a file was last changed, in the form of HTTP, which knows seconds only.
pub(super) fn last_modified(entry: &Entry) -> Option<String> {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&modified(entry)?).ok()
}

/// The answer instead of the file, if a condition says so.
pub(super) fn answer(entry: &Entry, headers: &HeaderMap) -> Option<StatusCode> {
    let must_be = match tags(headers, &header::IF_MATCH, entry) {
        Some(is_it) => is_it,
        None => since(headers, &header::IF_UNMODIFIED_SINCE, entry).is_none_or(|is_newer| !is_newer),
    };
    if !must_be {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let is_known = match tags(headers, &header::IF_NONE_MATCH, entry) {
        Some(is_it) => is_it,
        None => since(headers, &header::IF_MODIFIED_SINCE, entry).is_some_and(|is_newer| !is_newer),
    };
    is_known.then_some(StatusCode::NOT_MODIFIED)
}

/// Whether one of the tags of a header is that of the file; nothing without such a header.
fn tags(headers: &HeaderMap, name: &HeaderName, entry: &Entry) -> Option<bool> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    let ours = tag(entry);
    let is_ours = |one: &str| matches!(one.trim(), "*") || one.trim().trim_start_matches("W/") == ours;
    Some(values.any(|value| value.to_str().is_ok_and(|list| list.split(',').any(is_ours))))
}

/// Whether the file is newer than what a header says; nothing without such a header, or with one that is no time.
fn since(headers: &HeaderMap, name: &HeaderName, entry: &Entry) -> Option<bool> {
    let text = headers.get(name)?.to_str().ok()?;
    let time = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(modified(entry)?.as_second() > time.as_second())
}

fn modified(entry: &Entry) -> Option<Timestamp> {
    Timestamp::from_nanosecond(entry.modified_ns.into()).ok()
}

#[cfg(test)]
mod tests {
    use box_wire::file_op::EntryKind;

    use super::*;

    const TIME: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

    fn entry() -> Entry {
        let (path, kind, modified_ns) = ("/f".to_owned(), EntryKind::File, 1_000_000_000_500_000_000);
        Entry { path, kind, size: 4, mode: 0o644, uid: 0, gid: 0, modified_ns, target: None }
    }

    fn answered(pairs: &[(HeaderName, &str)]) -> Option<u16> {
        let headers = pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        answer(&entry(), &headers).map(|status| status.as_u16())
    }

    #[test]
    fn what_a_client_has_is_not_sent_again() {
        let ours = tag(&entry());
        let weak = format!("W/{ours}, \"x\"");
        assert_eq!(last_modified(&entry()).as_deref(), Some(TIME));
        for (pairs, status) in [
            (vec![], None),
            (vec![(header::IF_NONE_MATCH, ours.as_str())], Some(304)),
            (vec![(header::IF_NONE_MATCH, weak.as_str())], Some(304)),
            (vec![(header::IF_NONE_MATCH, "*")], Some(304)),
            (vec![(header::IF_NONE_MATCH, "\"x\"")], None),
            (vec![(header::IF_MODIFIED_SINCE, TIME)], Some(304)),
            (vec![(header::IF_MODIFIED_SINCE, "Sun, 09 Sep 2001 01:46:39 GMT")], None),
            (vec![(header::IF_MODIFIED_SINCE, "yesterday")], None),
            (vec![(header::IF_NONE_MATCH, "\"x\""), (header::IF_MODIFIED_SINCE, TIME)], None),
            (vec![(header::IF_MATCH, ours.as_str())], None),
            (vec![(header::IF_MATCH, "\"x\"")], Some(412)),
            (vec![(header::IF_UNMODIFIED_SINCE, TIME)], None),
            (vec![(header::IF_UNMODIFIED_SINCE, "Sun, 09 Sep 2001 01:46:39 GMT")], Some(412)),
        ] {
            assert_eq!(answered(&pairs), status, "{pairs:?}");
        }
    }
}
