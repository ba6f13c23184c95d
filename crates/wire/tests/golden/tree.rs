//! A message as names and values, without its type.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

/// A message as names and values.
#[derive(Debug, PartialEq)]
pub(crate) enum Tree {
    Leaf(String),
    List(Vec<Tree>),
    Named(BTreeMap<String, Tree>),
}

impl Tree {
    /// Whether a reader that expects `old` finds everything here: all its names with the same values. More names do no harm.
    pub(crate) fn has_all_of(&self, old: &Self) -> bool {
        match (self, old) {
            (Self::Named(new), Self::Named(old)) => {
                old.iter().all(|(name, old)| new.get(name).is_some_and(|new| new.has_all_of(old)))
            }
            (Self::List(new), Self::List(old)) => {
                new.len() == old.len() && new.iter().zip(old).all(|(new, old)| new.has_all_of(old))
            }
            _ => self == old,
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

/// Leaves of each type that a message can hold.
macro_rules! leaves {
    ($($visit:ident: $type:ty),*) => {
        $(fn $visit<E>(self, value: $type) -> Result<Tree, E> { Ok(Tree::Leaf(format!("{value:?}"))) })*
    };
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    leaves!(visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64, visit_str: &str, visit_bytes: &[u8]);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf("nothing".to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut names = BTreeMap::new();
        while let Some((name, value)) = entries.next_entry()? {
            names.insert(name, value);
        }
        Ok(Tree::Named(names))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<Tree, A::Error> {
        let (name, value) = variant.variant::<String>()?;
        Ok(Tree::Named(BTreeMap::from([(name, value.newtype_variant()?)])))
    }
}

#[test]
fn a_lost_or_renamed_name_is_noticed_and_a_new_one_is_not() {
    let named = |names: &[(&str, &str)]| {
        let leaf = |(name, value): &(&str, &str)| ((*name).to_owned(), Tree::Leaf((*value).to_owned()));
        Tree::Named(names.iter().map(leaf).collect())
    };
    let old = Tree::List(vec![named(&[("path", "a")])]);
    for (new, is_read) in [
        (named(&[("path", "a")]), true),
        (named(&[("path", "a"), ("more", "b")]), true),
        (named(&[("place", "a")]), false),
        (named(&[("path", "b")]), false),
        (Tree::Leaf("a".to_owned()), false),
    ] {
        assert_eq!(Tree::List(vec![new]).has_all_of(&old), is_read);
    }
}
