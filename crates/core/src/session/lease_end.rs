//! When a box ends itself because no server is there, although something may run in it.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// When the box of a session ends itself if no server is there, whatever runs in it. While a server is there, it decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseEnd {
    /// What runs in the box keeps it.
    #[default]
    Never,
    /// At most so many seconds after the server left.
    Within(u64),
    /// At this time.
    At(Timestamp),
}

impl LeaseEnd {
    /// Whether there is none.
    pub(crate) fn is_never(&self) -> bool {
        *self == Self::Never
    }

    /// The time left at this moment.
    pub(crate) fn left(self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Within(seconds) => Some(Duration::from_secs(seconds)),
            // What is over has no time left.
            Self::At(end) => Some(Duration::try_from(end.duration_since(now)).unwrap_or_default()),
        }
    }

    /// When the agent has to be told the time left again.
    pub(crate) fn renew_after(self) -> Option<Duration> {
        match self {
            Self::Within(seconds) => Some(Duration::from_secs(seconds) / 2),
            Self::Never | Self::At(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn the_time_left_is_never_negative() {
        let now = Timestamp::now();
        let at = |seconds| LeaseEnd::At(now + SignedDuration::from_secs(seconds)).left(now);
        assert_eq!((at(60), at(-60)), (Some(Duration::from_mins(1)), Some(Duration::ZERO)));
        assert_eq!(LeaseEnd::Never.left(now), None);
        let within = LeaseEnd::Within(60);
        assert_eq!((within.left(now), within.renew_after()), (at(60), at(30)), "told again before it is over");
    }
}
