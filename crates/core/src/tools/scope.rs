//! Which session a query works in: a template with names in braces, filled in from the query.
//!
//! Two queries that differ in what the template names never meet in one session, whatever their values hold. Where the filled-in
//! text says who is meant, it is the id. Where it does not (it is too long, holds what one cannot see, or values could be
//! told apart in more than one way), a hash of all values makes it say so.

use box_wire::Invalid;
use sha2::{Digest, Sha256};

use super::QueryContext;
use crate::hexadecimal::hexadecimal;
use crate::session::SessionId;
use crate::{Result, ServiceConfig, limits};

/// One session for each person or group.
pub const DEFAULT_TEMPLATE: &str = "{launcher_type}_{launcher_id}";

/// What stands for a value that nobody gave.
const UNKNOWN: &str = "unknown";
/// What a query that nobody launched is said to be launched by.
const SYNTHETIC: &str = "query";
/// The value that is the same for all.
const GLOBAL: &str = "global";
/// Before the hash.
const MARK: char = '~';
/// Bytes of the hash that are told: enough that nobody finds two values with one.
const HASH_BYTES: usize = 16;
/// Bytes of the readable part before a hash.
const READABLE_BYTES_MAX: usize = 96;

/// The session that a query works in. The operator's forced template wins over that of the pipeline, which wins over the usual
/// one; a blank template is none.
pub fn session_id_of(settings: &ServiceConfig, query: &QueryContext) -> Result<SessionId> {
    let candidates = [
        Some(settings.forced_session_template.as_str()),
        query.template.as_deref(),
        Some(settings.session_template.as_str()),
    ];
    let template = candidates.into_iter().flatten().map(str::trim).find(|template| !template.is_empty());
    let parts = parse(template.unwrap_or(DEFAULT_TEMPLATE))?;
    let filled: Vec<Filled<'_>> = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => Filled::Text(text),
            Part::Name(name) => Filled::Value(value(query, name)),
        })
        .collect();
    Ok(plain(&filled).map_or_else(|| hashed(&filled), Ok)?)
}

/// Refuses a template that is too long or names too much.
pub fn check_template(template: &str) -> Result<(), Invalid> {
    parse(template).map(drop)
}

/// A part of a template.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Name(String),
}

/// A part of an id.
#[derive(Debug, Clone, Copy)]
enum Filled<'a> {
    Text(&'a str),
    Value(&'a str),
}

impl<'a> Filled<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Text(text) | Self::Value(text) => text,
        }
    }
}

/// Takes a template apart. Doubled braces are braces; one that is never closed is text.
fn parse(template: &str) -> Result<Vec<Part>, Invalid> {
    let mut parts: Vec<Part> = Vec::new();
    let mut rest = template;
    while let Some(character) = rest.chars().next() {
        let name =
            rest.strip_prefix('{').filter(|inner| !inner.starts_with('{')).and_then(|inner| inner.split_once('}'));
        if let Some((name, behind)) = name {
            parts.push(Part::Name(name.trim().to_owned()));
            rest = behind;
            continue;
        }
        let doubled = rest.starts_with("{{") || rest.starts_with("}}");
        rest = &rest[if doubled { 2 } else { character.len_utf8() }..];
        match parts.last_mut() {
            Some(Part::Text(text)) => text.push(character),
            _ => parts.push(Part::Text(character.into())),
        }
    }
    let names = parts.iter().filter(|part| matches!(part, Part::Name(_))).count();
    if template.len() > limits::TEMPLATE_BYTES_MAX || names > limits::TEMPLATE_NAMES_MAX {
        let (bytes, names) = (limits::TEMPLATE_BYTES_MAX, limits::TEMPLATE_NAMES_MAX);
        let allowed = format!("at most {bytes} bytes with at most {names} names in braces");
        return Err(Invalid::new("session_template", template, allowed));
    }
    Ok(parts)
}

/// What a name in braces means for a query.
fn value<'a>(query: &'a QueryContext, name: &str) -> &'a str {
    // Not a variable: whoever may set one must not get a session of their own where all are to share one.
    if name == GLOBAL {
        return GLOBAL;
    }
    if let Some(value) = query.variables.get(name).filter(|value| !value.is_empty()) {
        return value;
    }
    let (told, instead) = match name {
        "query_id" => (&query.query_id, None),
        "launcher_type" => (&query.launcher_type, Some(SYNTHETIC)),
        "launcher_id" => (&query.launcher_id, query.query_id.as_deref()),
        "sender_id" => (&query.sender_id, None),
        "conversation_id" => (&query.conversation_id, None),
        _ => (&None, None),
    };
    told.as_deref().filter(|value| !value.is_empty()).or(instead).unwrap_or(UNKNOWN)
}

/// The filled-in text, where it can be an id and tells the values.
fn plain(filled: &[Filled<'_>]) -> Option<SessionId> {
    let bytes = filled.iter().fold(0_usize, |bytes, part| bytes.saturating_add(part.text().len()));
    if bytes > limits::SESSION_ID_BYTES_MAX {
        return None;
    }
    let text: String = filled.iter().map(|part| part.text()).collect();
    let tells = !is_marked(&text) && tells_values(filled, &text);
    tells.then(|| text.try_into().ok()).flatten()
}

/// Whether the values are what one gets who reads the text from the left and ends each value as early as the template allows. Of
/// all values that give one text, exactly one is read like that.
fn tells_values(filled: &[Filled<'_>], text: &str) -> bool {
    let mut rest = text;
    for (index, part) in filled.iter().enumerate() {
        if let Filled::Value(value) = part {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let early = match filled.get(index + 1) {
                None => rest.len(),
                Some(Filled::Value(_)) => first,
                Some(Filled::Text(next)) => rest[first..].find(next).map_or(rest.len(), |at| first + at),
            };
            if early != value.len() {
                return false;
            }
        }
        rest = &rest[part.text().len()..];
    }
    true
}

/// Whether a text ends like one with a hash. Such a text is never an id of its own: it would be that of other values.
fn is_marked(text: &str) -> bool {
    let hash = text.rsplit_once(MARK).map(|(_, hash)| hash);
    hash.is_some_and(|hash| hash.len() == 2 * HASH_BYTES && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The beginning as far as it can be read, and a hash of everything.
fn hashed(filled: &[Filled<'_>]) -> Result<SessionId, Invalid> {
    let mut hash = Sha256::new();
    for part in filled {
        hash.update((part.text().len() as u64).to_le_bytes());
        hash.update(part.text());
    }
    let shown = |character: char| {
        let good = character.is_alphanumeric() || "-_.:@/+".contains(character);
        if good { character } else { '-' }
    };
    let mut readable = String::new();
    for character in filled.iter().flat_map(|part| part.text().chars()).map(shown) {
        if readable.len() + character.len_utf8() > READABLE_BYTES_MAX {
            break;
        }
        readable.push(character);
    }
    format!("{readable}{MARK}{}", hexadecimal(&hash.finalize()[..HASH_BYTES])).try_into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// The id for a query, with a forced template.
    fn forced(forced: &str, query: &Value) -> String {
        let settings = ServiceConfig { forced_session_template: forced.to_owned(), ..ServiceConfig::default() };
        session_id_of(&settings, &QueryContext::from_json(query).unwrap()).unwrap().as_str().to_owned()
    }

    fn id(query: &Value) -> String {
        forced("", query)
    }

    /// A query whose pipeline has a template.
    fn with_template(template: &str, mut query: Value) -> Value {
        query["pipeline_config"] = json!({"ai": {"local-agent": {"box-session-id-template": template}}});
        query
    }

    #[test]
    fn the_session_is_that_of_who_launched_the_query() {
        let variables =
            json!({"launcher_type": "person", "launcher_id": "test_user", "sender_id": "test_user", "query_id": "7"});
        let query = json!({"query_id": 7, "launcher_type": "person", "launcher_id": "test_user", "sender_id": "test_user",
            "variables": variables});
        assert_eq!(id(&query), "person_test_user");
    }

    #[test]
    fn fields_of_the_query_stand_in_for_variables() {
        assert_eq!(id(&json!({"query_id": 7, "launcher_type": "group", "launcher_id": "room-1"})), "group_room-1");
    }

    #[test]
    fn a_query_that_nobody_launched_has_a_session_of_its_own() {
        assert_eq!(id(&json!({"query_id": 7})), "query_7");
        assert_eq!(id(&json!({})), "query_unknown");
    }

    #[test]
    fn a_forced_template_puts_everybody_into_one_session() {
        let first = json!({"query_id": 1, "launcher_type": "group", "launcher_id": "room-1"});
        let second = json!({"query_id": 2, "launcher_type": "person", "launcher_id": "alice"});
        assert_eq!(
            (forced("{global}", &first), forced("{global}", &second)),
            ("global".to_owned(), "global".to_owned())
        );
    }

    #[test]
    fn a_forced_template_wins_over_the_pipeline_and_over_variables() {
        let query = json!({"query_id": 7, "launcher_type": "person", "launcher_id": "test_user", "sender_id": "test_user",
            "variables": {"global": "mine", "forced_session_template": "{sender_id}"}});
        let query = with_template("{launcher_type}_{launcher_id}_{sender_id}", query);
        assert_eq!(forced("{global}", &query), "global");
        assert_eq!(id(&query), "person_test_user_test_user~c213f18b70b2397322099446674ff4a2");
    }

    #[test]
    fn a_blank_forced_template_forces_nothing() {
        let query = json!({"query_id": 7, "launcher_type": "group", "launcher_id": "room-1"});
        for blank in ["", "   ", "\t\n"] {
            let query = with_template("{launcher_type}_{launcher_id}", query.clone());
            assert_eq!(forced(blank, &query), "group_room-1");
        }
        assert_eq!(forced(" {global} ", &query), "global");
    }

    #[test]
    fn every_name_has_its_value() {
        let query = json!({"query_id": 7, "launcher_type": "group", "launcher_id": "room-1", "sender_id": "bob",
            "conversation_id": "c9", "variables": {"city": "Rome", "sender_id": "bob-by-variable"}});
        for (template, expected) in [
            ("{sender_id}", "bob-by-variable"),
            ("{conversation_id}", "c9"),
            ("{query_id}", "7"),
            ("{launcher_type}", "group"),
            ("{launcher_id}", "room-1"),
            ("{global}", "global"),
            ("{city}", "Rome"),
            ("{nobody_knows}", "unknown"),
            ("{launcher_id!r}", "unknown"),
            ("{}", "unknown"),
            ("shared", "shared"),
            ("{{x}}-{ sender_id }", "{x}-bob-by-variable"),
            ("a{b", "a{b"),
            ("  ", "group_room-1"),
        ] {
            assert_eq!(id(&with_template(template, query.clone())), expected, "{template}");
        }
        for name in ["sender_id", "conversation_id", "query_id", "launcher_id"] {
            assert_eq!(id(&with_template(&format!("{{{name}}}"), json!({}))), "unknown", "{name}");
        }
    }

    #[test]
    fn the_usual_template_holds_for_pipelines_without_one() {
        let settings = ServiceConfig { session_template: "{sender_id}".to_owned(), ..ServiceConfig::default() };
        let query = QueryContext::from_json(&json!({"launcher_id": "room", "sender_id": "bob"})).unwrap();
        assert_eq!(session_id_of(&settings, &query).unwrap().as_str(), "bob");
        let query = QueryContext::from_json(&with_template("{launcher_id}", json!({"launcher_id": "room"}))).unwrap();
        assert_eq!(session_id_of(&settings, &query).unwrap().as_str(), "room");
    }

    #[test]
    fn values_that_could_be_read_in_two_ways_are_told_apart() {
        let id = |launcher: &str, sender: &str| {
            id(&with_template("{launcher_id}_{sender_id}", json!({"launcher_id": launcher, "sender_id": sender})))
        };
        assert_eq!(id("a", "b_c"), "a_b_c");
        assert!(id("a_b", "c").starts_with("a_b_c~"), "{}", id("a_b", "c"));
    }

    #[test]
    fn long_and_hostile_values_become_short_and_readable() {
        for hostile in ["x".repeat(5000), "a\nb\0c\u{202e}".to_owned(), " a ".to_owned(), "😀".repeat(300)] {
            let id = id(&json!({"launcher_type": "group", "launcher_id": hostile}));
            assert!(id.starts_with("group_") && id.len() <= READABLE_BYTES_MAX + 1 + 2 * HASH_BYTES, "{id}");
            // Who takes such an id for a name gets another session.
            assert_ne!(self::id(&with_template("{sender_id}", json!({"sender_id": id}))), id);
        }
    }

    #[test]
    fn a_template_has_a_bounded_size() {
        let query = |template: String| QueryContext { template: Some(template), ..QueryContext::default() };
        for bad in ["x".repeat(limits::TEMPLATE_BYTES_MAX + 1), "{a}".repeat(limits::TEMPLATE_NAMES_MAX + 1)] {
            let error = session_id_of(&ServiceConfig::default(), &query(bad)).unwrap_err();
            assert!(error.to_string().contains("names in braces"), "{error}");
        }
    }

    /// Values as somebody would choose them who wants to meet another one.
    fn values() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("_".to_owned()),
            Just("a".to_owned()),
            Just("~".to_owned()),
            Just("\n".to_owned()),
            Just("unknown-".to_owned()),
            Just("0123456789abcdef0123456789abcdef".to_owned()),
            Just("é".repeat(60)),
            any::<char>().prop_map(String::from),
        ];
        proptest::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
    }

    const TEMPLATES: [&str; 6] = [
        DEFAULT_TEMPLATE,
        "{launcher_type}{launcher_id}",
        "{launcher_type}__{launcher_id}_",
        "x_{launcher_type}_{launcher_id}",
        "{launcher_type}a{launcher_id}a{launcher_type}",
        "{launcher_id}~{launcher_type}",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn every_value_gives_an_id_and_different_values_different_ones(
            first in (values(), values()),
            second in (values(), values()),
            index in 0..TEMPLATES.len(),
        ) {
            let resolve = |(kind, id): &(String, String)| {
                let query = QueryContext {
                    launcher_type: Some(kind.clone()),
                    launcher_id: Some(id.clone()),
                    template: Some(TEMPLATES[index].to_owned()),
                    ..QueryContext::default()
                };
                session_id_of(&ServiceConfig::default(), &query).unwrap()
            };
            let (one, other) = (resolve(&first), resolve(&second));
            prop_assert_eq!(one == other, first == second, "{} {}", one, other);
            // What came out, split anywhere and put in again, gives what it came from or something else.
            let text = one.as_str();
            for (at, _) in text.char_indices().skip(1) {
                let again = (text[..at].to_owned(), text[at..].to_owned());
                prop_assert!(again == first || resolve(&again) != one, "{:?}", again);
                if let Some(behind) = text[at..].strip_prefix('_').filter(|behind| !behind.is_empty()) {
                    let again = (text[..at].to_owned(), behind.to_owned());
                    prop_assert!(again == first || resolve(&again) != one, "{:?}", again);
                }
            }
        }
    }
}
