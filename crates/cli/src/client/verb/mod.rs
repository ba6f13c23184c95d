//! One command, one file.

pub(crate) mod attach;
pub(crate) mod code;
pub(crate) mod cp;
pub(crate) mod e2b;
pub(crate) mod errors;
pub(crate) mod exec;
pub(crate) mod fork;
pub(crate) mod kill;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod mcp;
pub(crate) mod port_forward;
pub(crate) mod process;
pub(crate) mod ps;
pub(crate) mod session;
pub(crate) mod shell;
pub(crate) mod skill;
pub(crate) mod snapshot;
pub(crate) mod status;
pub(crate) mod template;
pub(crate) mod volume;

use jiff::Timestamp;

/// How long ago something was, in the largest unit that fits.
fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second());
    format!("{} ago", span(seconds))
}

/// A span of time, in the largest unit that fits.
fn span(seconds: i64) -> String {
    match seconds {
        ..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short_to_read() {
        for (seconds, text) in [(-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172_800, "2d")] {
            assert_eq!(span(seconds), text);
        }
        let then = Timestamp::from_second(100).unwrap();
        assert_eq!(ago(then, Timestamp::from_second(105).unwrap()), "5s ago");
    }
}
