//! A deadline as language models and older clients write it.

use box_wire::Invalid;
use serde_json::Value;

/// Whole seconds above zero, however they are written: `30`, `30.0`, `"30"` and `"30.0"` are the same. What is too large for any
/// deadline is taken too, because it is cut to the longest one anyway; what is no whole number is refused.
pub fn lax_seconds(value: &Value) -> Result<u64, Invalid> {
    let seconds = match value {
        Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => text.trim().parse().ok().or_else(|| whole(text.trim().parse().ok()?)),
        _ => None,
    };
    let quoted = match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let refuse = || Invalid::new("timeout_sec", quoted, "a whole number of seconds above 0, such as 30");
    seconds.filter(|seconds| *seconds > 0).ok_or_else(refuse)
}

/// A float that is a whole number, not negative. One that is too large becomes the largest.
fn whole(number: f64) -> Option<u64> {
    let is_whole = number.is_finite() && number.fract() == 0.0 && number >= 0.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole and not negative, and what is too large shall become the largest"
    )]
    is_whole.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_seconds_are_taken_however_they_are_written() {
        for value in [json!(999), json!(999.0), json!("999"), json!(" 999 "), json!("999.0")] {
            assert_eq!(lax_seconds(&value), Ok(999), "{value}");
        }
        for value in [json!(1e30), json!("1e30"), json!("99999999999999999999999"), json!(u64::MAX)] {
            assert_eq!(lax_seconds(&value), Ok(u64::MAX), "{value}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_is_allowed() {
        let bad = [
            json!(0),
            json!("0"),
            json!(-1),
            json!("-1.0"),
            json!(1.5),
            json!("1.5"),
            json!("soon"),
            json!(""),
            json!("NaN"),
            json!("inf"),
            json!(true),
            json!(null),
            json!([30]),
            json!({ "sec": 30 }),
        ];
        for value in bad {
            let invalid = lax_seconds(&value).unwrap_err();
            assert!(invalid.field == "timeout_sec" && invalid.allowed.contains("such as 30"), "{value}: {invalid}");
        }
    }

    proptest! {
        #[test]
        fn all_ways_to_write_a_number_mean_the_same(seconds in 1..(1_u64 << 53)) {
            #[expect(clippy::cast_precision_loss, reason = "there is none below the bound")]
            let ways = [json!(seconds), json!(seconds as f64), json!(seconds.to_string()), json!(format!("{seconds}.0"))];
            for way in ways {
                prop_assert_eq!(lax_seconds(&way), Ok(seconds));
            }
        }
    }
}
