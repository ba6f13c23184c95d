//! What may be read in more than one way.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// A value; the usual one when there is `null` in its place.
pub(super) fn usual<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

pub(super) fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// A whole number, as a number or as text; zero when there is `null` in its place.
pub(super) fn number<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: TryFrom<i64>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Number(PhantomData))
}

struct Number<T>(PhantomData<T>);

impl<T: TryFrom<i64>> Number<T> {
    fn within<E: Error>(number: i64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::custom(format!("the number {number} is out of range")))
    }
}

impl<T: TryFrom<i64>> Visitor<'_> for Number<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Self::within(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Self::within(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Self::within(text.parse().map_err(|_| E::custom("the text is not a whole number"))?)
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Self::within(0)
    }
}
