//! Values of options, from text. Ranges are the domain's matter; here only the form is read.

use box_core::{Dimension, MountMode, Network};
use box_wire::User;

/// A mount as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountText {
    /// Path on this machine, perhaps relative.
    pub(crate) source: String,
    /// Path in the box.
    pub(crate) target: String,
    /// What the box may do with it.
    pub(crate) mode: MountMode,
}

/// Guarantees that must be hard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Every one.
    All,
    /// This one.
    One(Dimension),
}

/// `on` or `off`.
pub(crate) fn network(text: &str) -> Result<Network, String> {
    match text {
        "on" => Ok(Network::On),
        "off" => Ok(Network::Off),
        _ => Err("use on or off".to_owned()),
    }
}

/// A size in MiB: `512`, `512m`, `2g`, `1t`; `mb` and `MiB` mean the same.
pub(crate) fn size_mb(text: &str) -> Result<u64, String> {
    let refused = || "use a whole number of MiB, or one with m, g or t, such as 512, 512m or 2g".to_owned();
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "m" | "mb" | "mib" => 1,
        "g" | "gb" | "gib" => 1 << 10,
        "t" | "tb" | "tib" => 1 << 20,
        _ => return Err(refused()),
    };
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(refused)
}

/// Seconds as milliseconds, rounded up so that a positive deadline never becomes none.
pub(crate) fn timeout_ms(text: &str) -> Result<u64, String> {
    let refused = || "use a number of seconds above 0 and up to a week, such as 30 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| refused())?;
    let duration = std::time::Duration::try_from_secs_f64(seconds).map_err(|_| refused())?;
    let ms = u64::try_from(duration.as_nanos().div_ceil(1_000_000)).map_err(|_| refused())?;
    if ms == 0 || ms > box_wire::limits::TIMEOUT_MS_MAX { Err(refused()) } else { Ok(ms) }
}

/// A span of time in seconds: `90`, `90s`, `5m`, `2h`, `30d`, `2w`.
pub(crate) fn duration_sec(text: &str) -> Result<u64, String> {
    let refused = || "use seconds, or a number with s, m, h, d or w, such as 90, 5m, 2h or 30d".to_owned();
    let digits_end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let factor: u64 = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        "w" => 7 * 24 * 3600,
        _ => return Err(refused()),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    seconds.filter(|seconds| *seconds > 0).ok_or_else(refused)
}

/// `SRC:DST`, `SRC:DST:ro` or `SRC:DST:rw`, read from the right.
pub(crate) fn mount(text: &str) -> Result<MountText, String> {
    let (rest, mode) = match text.rsplit_once(':') {
        Some((rest, "ro")) => (rest, MountMode::Ro),
        Some((rest, "rw")) => (rest, MountMode::Rw),
        _ => (text, MountMode::Ro),
    };
    let (source, target) =
        rest.rsplit_once(':').ok_or("use SRC:DST, SRC:DST:ro or SRC:DST:rw, such as ./data:/mnt/data")?;
    if source.is_empty() {
        return Err("the path on this machine is empty; use SRC:DST".to_owned());
    }
    if !target.starts_with('/') {
        return Err(format!("{target:?} is neither a mode (ro, rw) nor an absolute path in the box"));
    }
    if source.contains(':') {
        return Err(format!("{source:?} holds a colon, which cannot be told from a separator; use a link without one"));
    }
    Ok(MountText { source: source.to_owned(), target: target.to_owned(), mode })
}

/// A volume and where a session mounts it, from the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeText {
    /// The name of the volume.
    pub(crate) name: String,
    /// Path in the box.
    pub(crate) path: String,
    /// What the box may do with it.
    pub(crate) mode: MountMode,
}

/// `NAME:PATH`, `NAME:PATH:ro` or `NAME:PATH:rw`.
pub(crate) fn volume(text: &str) -> Result<VolumeText, String> {
    let (rest, mode) = match text.rsplit_once(':') {
        Some((rest, "ro")) => (rest, MountMode::Ro),
        Some((rest, "rw")) => (rest, MountMode::Rw),
        _ => (text, MountMode::Rw),
    };
    let (name, path) = rest.split_once(':').ok_or("use NAME:PATH or NAME:PATH:ro, such as data:/mnt/data")?;
    if name.contains('/') || name.starts_with('.') {
        return Err(format!("{name:?} is not the name of a volume; for a directory of the server, use --mount"));
    }
    if !path.starts_with('/') {
        return Err(format!("{path:?} is neither a mode (ro, rw) nor an absolute path in the box"));
    }
    Ok(VolumeText { name: name.to_owned(), path: path.to_owned(), mode })
}

/// `UID` or `UID:GID`; the group is the user's number when it is left out.
pub(crate) fn user(text: &str) -> Result<User, String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    let number = |part: &str| part.parse::<u32>().map_err(|_| "use numbers: UID or UID:GID, such as 1000:1000");
    Ok(User { uid: number(uid)?, gid: number(gid)? })
}

/// The name of a guarantee, or `all`.
pub(crate) fn requirement(text: &str) -> Result<Requirement, String> {
    if text == "all" {
        return Ok(Requirement::All);
    }
    let found = Dimension::ALL.into_iter().find(|dimension| dimension.to_string() == text);
    found.map(Requirement::One).ok_or_else(|| {
        let names: Vec<String> = Dimension::ALL.iter().map(ToString::to_string).collect();
        format!("use one of {} or all", names.join(", "))
    })
}

/// `NAME=VALUE`, or `NAME` with the value that `lookup` finds in the caller's own environment.
pub(crate) fn env_entry(
    text: &str,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<(String, String), box_wire::Invalid> {
    let missing = || box_wire::Invalid::new("env", text, "a variable that is set here, or NAME=VALUE");
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, value.to_owned()),
        None => (text, lookup(text).ok_or_else(missing)?),
    };
    box_wire::exec::check_env(name, &value)?;
    Ok((name.to_owned(), value))
}

/// A program and its arguments, which must be text.
pub(crate) fn argv(typed: &[std::ffi::OsString]) -> Result<Vec<String>, box_wire::Invalid> {
    let text = |argument: &std::ffi::OsString| {
        let refused =
            || box_wire::Invalid::new("command", argument, "arguments of valid UTF-8; pass other bytes by stdin");
        argument.to_str().map(str::to_owned).ok_or_else(refused)
    };
    typed.iter().map(text).collect()
}

/// Milliseconds as seconds, for people.
pub(crate) fn as_seconds(ms: u64) -> String {
    let (whole, rest) = (ms / 1000, ms % 1000);
    if rest == 0 { whole.to_string() } else { format!("{whole}.{rest:03}").trim_end_matches('0').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_mib_unless_they_say_otherwise() {
        for (text, mb) in [("512", 512), ("512m", 512), ("64MiB", 64), ("2g", 2048), ("1T", 1 << 20), ("0", 0)] {
            assert_eq!(size_mb(text), Ok(mb), "{text}");
        }
        for bad in ["", "m", "-1", "1.5g", "1k", "1 g", "+1", "0x10", "99999999999999999999", "18446744073709551615g"] {
            assert!(size_mb(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn deadlines_are_positive_and_finite() {
        for (text, ms) in [("1", 1000), ("0.5", 500), ("0.0001", 1), ("604800", 604_800_000)] {
            assert_eq!(timeout_ms(text), Ok(ms), "{text}");
        }
        for bad in ["", "0", "-1", "nan", "inf", "1e300", "604801", "5s"] {
            assert!(timeout_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_of_time_have_units() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("5m", 300), ("2h", 7200), ("30d", 2_592_000), ("1w", 604_800)]
        {
            assert_eq!(duration_sec(text), Ok(seconds), "{text}");
        }
        for bad in ["", "0", "0d", "d", "-1d", "1.5h", "1y", "1 d", "99999999999999999999", "18446744073709551615w"] {
            assert!(duration_sec(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn mounts_are_read_from_the_right() {
        let text = |source: &str, target: &str, mode| {
            Ok(MountText { source: source.to_owned(), target: target.to_owned(), mode })
        };
        assert_eq!(mount("data:/mnt"), text("data", "/mnt", MountMode::Ro));
        assert_eq!(mount("/a b:/mnt:ro"), text("/a b", "/mnt", MountMode::Ro));
        assert_eq!(mount(".:/mnt:rw"), text(".", "/mnt", MountMode::Rw));
        for (bad, says) in [
            ("", "use SRC:DST"),
            ("/a", "use SRC:DST"),
            ("/a:rw", "use SRC:DST"),
            (":/mnt", "empty"),
            ("/a:mnt", "absolute"),
            ("/a:/mnt:wr", "mode"),
            ("/a:", "absolute"),
            ("/a:b:/mnt", "colon"),
            ("/a:/b:/mnt:rw", "colon"),
        ] {
            let error = mount(bad).unwrap_err();
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    #[test]
    fn users_are_numbers() {
        assert_eq!(user("1000"), Ok(User { uid: 1000, gid: 1000 }));
        assert_eq!(user("1:2"), Ok(User { uid: 1, gid: 2 }));
        for bad in ["", "root", "1:", ":1", "-1", "1:2:3", "4294967296"] {
            assert!(user(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn requirements_are_guarantees_by_name() {
        assert_eq!(requirement("all"), Ok(Requirement::All));
        for dimension in Dimension::ALL {
            assert_eq!(requirement(&dimension.to_string()), Ok(Requirement::One(dimension)));
        }
        assert!(requirement("ram").unwrap_err().contains("memory"));
    }

    #[test]
    fn a_bare_name_passes_the_callers_value() {
        let lookup = |name: &str| (name == "SET").then(|| "here".to_owned());
        let entry = |text| env_entry(text, lookup).map_err(|error| error.field);
        assert_eq!(entry("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(entry("A="), Ok(("A".into(), String::new())));
        assert_eq!(entry("SET"), Ok(("SET".into(), "here".into())));
        for bad in ["UNSET", "", "=x", "1A=x", "A B=x"] {
            assert_eq!(entry(bad), Err("env"), "{bad}");
        }
    }
}
