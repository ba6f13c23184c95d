//! How clients say which saved box they mean: by the id or the name of a template, and by a tag.

use box_core::store::TemplateRow;

use crate::failure::E2bFailure;

/// The tag of what has no other, and of what is meant by who names none.
pub(crate) const DEFAULT_TAG: &str = "default";

/// Longest name of a template, and longest tag.
const NAME_BYTES_MAX: usize = 128;

/// A template, and which version of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The id or the name of the template.
    pub(crate) template: String,
    /// The version, where one was named.
    pub(crate) tag: Option<String>,
}

impl Reference {
    /// What a text means. A namespace before it means nothing: everybody has one.
    pub(crate) fn read(text: &str) -> Self {
        let bare = text.rsplit('/').next().unwrap_or(text);
        let (template, tag) = bare.split_once(':').map_or((bare, None), |(name, tag)| (name, Some(tag.to_owned())));
        Self { template: template.to_owned(), tag }
    }

    /// Whether a saved box is of that template.
    pub(crate) fn names(&self, row: &TemplateRow) -> bool {
        row.template == self.template || row.name.as_ref() == Some(&self.template)
    }

    /// Whether a saved box is that version of it.
    pub(crate) fn means(&self, row: &TemplateRow) -> bool {
        let tag = self.tag.as_deref().unwrap_or(DEFAULT_TAG);
        self.names(row) && row.tags.iter().any(|known| known == tag)
    }
}

/// Refuses a text that no template can be called.
pub(crate) fn check_name(name: &str) -> Result<(), E2bFailure> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(good) {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    Err(E2bFailure::invalid(format!(
        "name {shown:?} must have 1 to {NAME_BYTES_MAX} lowercase letters, digits, dashes and underscores"
    )))
}

/// Refuses a text that is no tag.
pub(crate) fn check_tag(tag: &str) -> Result<(), E2bFailure> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&tag.len()) && tag.bytes().all(good) {
        return Ok(());
    }
    let shown: String = tag.chars().take(64).collect();
    Err(E2bFailure::invalid(format!(
        "tag {shown:?} must have 1 to {NAME_BYTES_MAX} letters, digits, dots, dashes and underscores"
    )))
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
