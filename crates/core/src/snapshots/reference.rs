//! How callers name a snapshot or template: `NAME[:TAG]`, where the name may be the id of the template.

use std::fmt;

use box_wire::Invalid;

use crate::store::TemplateRow;

/// The tag of a version without another tag, and of a reference without one.
pub const DEFAULT_TAG: &str = "default";

/// Longest name of a template, and longest tag.
const NAME_BYTES_MAX: usize = 128;

/// A template, and which version of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The id or the name of the template.
    pub template: String,
    /// The version, if the text names one.
    pub tag: Option<String>,
}

impl Reference {
    /// Reads a reference. A namespace before the name is ignored, because each tenant has one.
    pub fn read(text: &str) -> Self {
        let bare = text.rsplit('/').next().unwrap_or(text);
        let (template, tag) = bare.split_once(':').map_or((bare, None), |(name, tag)| (name, Some(tag.to_owned())));
        Self { template: template.to_owned(), tag }
    }

    /// The version that is meant.
    pub fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(DEFAULT_TAG)
    }

    /// Whether a saved box is a version of this template.
    pub fn names(&self, row: &TemplateRow) -> bool {
        row.template == self.template || row.name.as_ref() == Some(&self.template)
    }

    /// Whether a saved box is this version of it.
    pub fn means(&self, row: &TemplateRow) -> bool {
        self.names(row) && row.tags.iter().any(|known| known == self.tag())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.template, self.tag())
    }
}

/// Refuses a text that cannot be the name of a template.
pub fn check_name(name: &str) -> Result<(), Invalid> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    check("name", name, good, "lowercase letters, digits, dashes and underscores")
}

/// Refuses a text that cannot be a tag.
pub fn check_tag(tag: &str) -> Result<(), Invalid> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    check("tag", tag, good, "letters, digits, dots, dashes and underscores")
}

fn check(field: &'static str, text: &str, good: impl Fn(u8) -> bool, allowed: &str) -> Result<(), Invalid> {
    if (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(good) {
        return Ok(());
    }
    Err(Invalid::new(field, text, format!("1 to {NAME_BYTES_MAX} {allowed}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_meant_with_or_without_a_namespace_and_a_tag() {
        let of = |text: &str| {
            let Reference { template, tag } = Reference::read(text);
            (template, tag.unwrap_or_default())
        };
        for (text, template, tag) in [
            ("mine", "mine", ""),
            ("mine:v1", "mine", "v1"),
            ("team/mine:v1", "mine", "v1"),
            ("a/b/mine", "mine", ""),
            ("mine:a:b", "mine", "a:b"),
        ] {
            assert_eq!(of(text), (template.to_owned(), tag.to_owned()), "{text}");
        }
    }

    #[test]
    fn names_and_tags_are_plain_words() {
        for good in ["a", "my-env_2"] {
            assert!(check_name(good).is_ok() && check_tag(good).is_ok(), "{good}");
        }
        assert!(check_tag("v1.2-RC").is_ok());
        for bad in ["", "A", "a b", "a:b", "../a", &"x".repeat(129)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        for bad in ["", "a b", "a:b", "a/b"] {
            assert!(check_tag(bad).is_err(), "{bad}");
        }
    }
}
