//! Which fields a type has, asked of the type itself, so that no list can differ from what is really read.

use std::cell::Cell;

use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor, value::Error};

/// How alike two names must be to be taken for one with a slip.
const LIKENESS_MIN: f64 = 0.8;

/// The fields of a struct.
pub(super) fn of<T: DeserializeOwned>() -> &'static [&'static str] {
    let found = Cell::new(&[][..]);
    // It always fails: all that is wanted is the question that it asks first.
    let _ = T::deserialize(Question { found: &found });
    found.get()
}

/// The known name that is most like one that is not known.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |known: &&str| strsim::jaro_winkler(name, known);
    let best = known.iter().copied().max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(&best) >= LIKENESS_MIN).then_some(best)
}

/// Listens to what a type asks for and gives it nothing.
struct Question<'a> {
    found: &'a Cell<&'static [&'static str]>,
}

impl<'de> Deserializer<'de> for Question<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Error> {
        self.found.set(fields);
        Err(Error::custom("only asked"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("not a struct"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    #[expect(dead_code, reason = "only its names matter")]
    struct Sample {
        cpus: Option<f64>,
        memory_mb: Option<u64>,
    }

    #[test]
    fn a_type_tells_its_fields() {
        assert_eq!(of::<Sample>(), ["cpus", "memory_mb"]);
        assert_eq!(of::<String>(), [""; 0]);
    }

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        assert_eq!(nearest("memory", of::<Sample>()), Some("memory_mb"));
        assert_eq!(nearest("cpu", of::<Sample>()), Some("cpus"));
        assert_eq!(nearest("privileged", of::<Sample>()), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
