//! Bodies that are not JSON, or too much of it.

use super::*;
use crate::failure::Failure;
use crate::testing::{field_of, read};

#[derive(Debug, Default, serde::Deserialize)]
struct Sample {
    #[serde(default, deserialize_with = "whole")]
    a: Option<u64>,
}

impl FromFields for Sample {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

#[test]
fn what_is_not_an_object_of_json_is_refused() {
    let not_objects = ["[]", "\"str\"", "123", "null", "true"];
    let not_json = ["{", "[1,2", "nul", "{\"a\":1}{\"a\":2}", "\u{feff}{}", "// c\n{}", "{'a':1}", " "];
    for json in not_objects.iter().chain(&not_json) {
        assert_eq!(field_of(read::<Sample>(json)), "body", "{json}");
    }
    for json in
        ["{\"a\":}", "{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":0x10}", "{\"a\":\"\\ud800\"}", "{\"a\":1e999999}"]
    {
        assert_eq!(field_of(read::<Sample>(json)), "a", "{json}");
    }
    assert_eq!(field_of(Fields::from_json(b"\xff\xfe{\0}\0")), "body");
    assert_eq!(field_of(Fields::from_json(b"{\"a\":\"\xff\"}")), "a");
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    assert_eq!(field_of(read::<Sample>(&"[".repeat(200_000))), "body");
    assert_eq!(field_of(read::<Sample>(&"{\"a\":".repeat(100_000))), "a");
    let many = format!("{{\"a\":[{}0]}}", "0,".repeat(limits::JSON_VALUES_MAX));
    assert_eq!(field_of(read::<Sample>(&many)), "a");
    let digits = format!("{{\"a\":{}}}", "9".repeat(1 << 20));
    assert_eq!(field_of(read::<Sample>(&digits)), "a");
}

#[test]
fn zero_and_nothing_are_told_apart() {
    assert_eq!(read::<Sample>("{\"a\":-0}").unwrap().a, Some(0));
    assert_eq!(read::<Sample>("{\"a\":null}").unwrap().a, None);
}

#[test]
fn a_refused_list_is_not_repeated_in_the_error() {
    let failure = read::<Sample>("{\"a\":[\"secret\"]}").unwrap_err();
    let body = serde_json::to_string(&failure.body(None)).unwrap();
    assert!(!body.contains("secret"), "{body}");
}

#[test]
fn a_parameter_is_given_once_and_known() {
    let pairs = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Sample::from_fields(Fields::from_pairs(pairs)?)
    };
    assert_eq!(pairs(&[("a", "7")]).unwrap().a, Some(7));
    assert_eq!(field_of(pairs(&[("a", "7"), ("a", "8")])), "a");
    assert_eq!(field_of(pairs(&[("token", "x")])), "token");
}

#[test]
fn only_json_is_taken_for_json() {
    let check = |kind: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
        check_is_json(&headers).is_ok()
    };
    for good in ["application/json", "application/JSON; charset=utf-8", "application/merge-patch+json"] {
        assert!(check(good), "{good}");
    }
    for bad in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp"]
    {
        assert!(!check(bad), "{bad}");
    }
    assert!(check_is_json(&HeaderMap::new()).is_ok(), "who says nothing is taken at their word");
}
