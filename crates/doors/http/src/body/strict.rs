//! JSON with unique names and bounded size.
//!
//! Of two equal names one parser takes the first and another the last, so a check could see another request than the
//! code that runs it. Such a body is refused.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::failure::Failure;
use crate::limits;

/// Reads an object.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, Failure> {
    let reader = Reader { left: Cell::new(limits::JSON_VALUES_MAX), field: RefCell::default() };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = Part { reader: &reader, depth: 0 }.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    match read {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Failure::invalid("body", "the body must be a JSON object, such as {}")),
        Err(error) => Err(reader.refuse(&error)),
    }
}

/// State while a body is parsed: the remaining budget, and the current field of the object.
struct Reader {
    left: Cell<usize>,
    field: RefCell<Option<String>>,
}

impl Reader {
    fn refuse(&self, error: &serde_json::Error) -> Failure {
        match self.field.borrow().as_deref() {
            Some(field) => Failure::invalid(field, format!("the body is not usable at {field}: {error}")),
            None => Failure::invalid("body", format!("the body is not usable JSON: {error}")),
        }
    }

    fn count<E: serde::de::Error>(&self) -> Result<(), E> {
        let left = self.left.get().checked_sub(1);
        let too_many = || E::custom(format!("more than {} values", limits::JSON_VALUES_MAX));
        self.left.set(left.ok_or_else(too_many)?);
        Ok(())
    }

    fn enter(&self, depth: usize, name: Option<&str>) {
        if depth == 0 {
            *self.field.borrow_mut() = name.map(|name| name.chars().take(64).collect());
        }
    }
}

/// One value, at some depth.
#[derive(Clone, Copy)]
struct Part<'a> {
    reader: &'a Reader,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.reader.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let inner = Part { depth: self.depth + 1, ..self };
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let inner = Part { depth: self.depth + 1, ..self };
        while let Some(name) = entries.next_key::<String>()? {
            self.reader.enter(self.depth, Some(&name));
            if map.contains_key(&name) {
                let shown: String = name.chars().take(64).collect();
                return Err(A::Error::custom(format!("{shown:?} occurs twice")));
            }
            let value = entries.next_value_seed(inner)?;
            map.insert(name, value);
        }
        self.reader.enter(self.depth, None);
        Ok(map.into())
    }
}
