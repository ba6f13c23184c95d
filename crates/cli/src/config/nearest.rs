//! What somebody probably meant.

/// The name that is closest to what was written, if any is close.
pub(crate) fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let names: Vec<&str> = names.collect();
    // The right key in the wrong table is a likelier slip than any other.
    if let Some(name) = names.iter().find(|name| last(name) == last(written)) {
        return Some(name);
    }
    let far = 1 + written.chars().count() / 4;
    let distance = |name: &&str| strsim::osa_distance(written, name);
    names.into_iter().min_by_key(distance).filter(|name| distance(name) <= far)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let names = ["listen", "max_sessions", "tls.key"];
        let meant = |written| nearest(written, names.into_iter());
        assert_eq!(meant("lsiten"), Some("listen"));
        assert_eq!(meant("max-sessions"), Some("max_sessions"));
        assert_eq!(meant("key"), Some("tls.key"));
        assert_eq!(meant("server.listen"), Some("listen"));
        assert_eq!(meant("port"), None);
    }
}
