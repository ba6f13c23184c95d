use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_mins(2);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A server, and the time.
struct Driven {
    retry: Retry,
    now: Duration,
}

impl Driven {
    fn new() -> Self {
        Self { retry: Retry::new(TIMEOUT), now: at(1000) }
    }

    fn after(&mut self, seconds: u64, event: Event) -> Action {
        self.now += at(seconds);
        self.retry.on(event, self.now)
    }

    fn say(&mut self, event: Event) -> Action {
        self.after(0, event)
    }

    /// A server that answers.
    fn connected() -> Self {
        let mut driven = Self::new();
        assert_eq!(driven.say(Event::Start), Action::Build);
        assert_eq!(driven.say(Event::ProcessStarted), Action::Continue);
        assert_eq!(driven.say(Event::Connected), Action::Continue);
        assert_eq!(driven.retry.status(), McpStatus::Connected);
        driven
    }

    /// Cleans up, waits, and says for how long.
    fn clean_up_and_wait(&mut self) -> Duration {
        let Action::WaitUntil(until) = self.say(Event::CleanedUp) else { panic!("not to be waited for") };
        let waited = until.checked_sub(self.now).unwrap();
        self.now = until;
        waited
    }
}

#[test]
fn a_failed_server_is_tried_again_three_times_and_then_given_up() {
    for phase in [
        McpErrorPhase::SessionCreate,
        McpErrorPhase::DepInstall,
        McpErrorPhase::ProcessStart,
        McpErrorPhase::RelayConnect,
        McpErrorPhase::McpInit,
    ] {
        let mut driven = Driven::new();
        assert_eq!(driven.say(Event::Start), Action::Build);
        for (retry, seconds) in [(1, 2), (2, 4), (3, 8)] {
            assert_eq!(driven.say(Event::Failed(phase)), Action::CleanUp);
            assert_eq!(driven.clean_up_and_wait(), at(seconds), "{phase}");
            assert_eq!((driven.retry.retry_count(), driven.retry.status()), (retry, McpStatus::Connecting));
            assert_eq!(driven.say(Event::Due), Action::Build);
        }
        assert_eq!(driven.say(Event::Failed(phase)), Action::CleanUp);
        assert_eq!(driven.say(Event::CleanedUp), Action::Rest);
        assert_eq!((driven.retry.status(), driven.retry.retry_count()), (McpStatus::Error, 3));
        assert_eq!(driven.retry.error_phase(), Some(phase));
    }
}

#[test]
fn without_a_backend_nothing_is_tried_again() {
    let mut driven = Driven::new();
    driven.say(Event::Start);
    assert_eq!(driven.say(Event::Failed(McpErrorPhase::BoxUnavailable)), Action::CleanUp);
    assert_eq!(driven.say(Event::CleanedUp), Action::Rest);
    assert_eq!((driven.retry.status(), driven.retry.retry_count()), (McpStatus::Error, 0));
    assert_eq!(driven.say(Event::Start), Action::Build, "whoever knows better says so");
    assert_eq!(driven.retry.error_phase(), None);
}

#[test]
fn a_slow_start_is_waited_for_without_a_retry() {
    let mut driven = Driven::new();
    driven.say(Event::Start);
    driven.after(50, Event::ProcessStarted);
    for _ in 0..100 {
        let lost = Event::Lost(McpErrorPhase::McpInit, ProcessState::Running);
        assert_eq!(driven.say(lost), Action::WaitUntil(driven.now + ATTACH_INTERVAL));
        assert_eq!(driven.after(1, Event::Due), Action::Attach);
        assert_eq!(driven.say(Event::Looked(ProcessState::Running)), Action::Continue);
    }
    assert_eq!((driven.retry.status(), driven.retry.retry_count()), (McpStatus::Connecting, 0));
    driven.after(10, Event::Connected);
    assert_eq!((driven.retry.status(), driven.retry.retry_count()), (McpStatus::Connected, 0));
}

#[test]
fn a_start_is_not_waited_for_longer_than_its_timeout() {
    for event in [Event::Lost(McpErrorPhase::RelayConnect, ProcessState::Running), Event::Looked(ProcessState::Running)]
    {
        let mut driven = Driven::new();
        driven.say(Event::Start);
        driven.say(Event::ProcessStarted);
        assert_ne!(driven.after(119, event), Action::CleanUp);
        driven.after(1, Event::Due);
        assert_eq!(driven.say(event), Action::CleanUp, "{event:?}");
        assert_eq!(driven.retry.retry_count(), 1);
    }
}

#[test]
fn a_process_that_ends_before_it_answers_is_not_waited_for() {
    for event in [Event::Lost(McpErrorPhase::McpInit, ProcessState::Exited), Event::Looked(ProcessState::Exited)] {
        let mut driven = Driven::new();
        driven.say(Event::Start);
        driven.say(Event::ProcessStarted);
        assert_eq!(driven.say(event), Action::CleanUp);
        assert_eq!(driven.retry.error_phase(), Some(McpErrorPhase::McpInit));
    }
}

#[test]
fn a_lost_connection_is_made_again_and_nothing_is_built() {
    let mut driven = Driven::connected();
    for _ in 0..100 {
        let lost = Event::Lost(McpErrorPhase::Runtime, ProcessState::Running);
        assert_eq!(driven.after(61, lost), Action::Attach, "at once");
        assert_eq!(driven.retry.status(), McpStatus::Connecting);
        driven.say(Event::Connected);
    }
    assert_eq!((driven.retry.status(), driven.retry.retry_count()), (McpStatus::Connected, 0));
}

#[test]
fn a_connection_that_is_lost_again_and_again_is_given_up_for_a_new_process() {
    let mut driven = Driven::connected();
    let lost = Event::Lost(McpErrorPhase::RelayConnect, ProcessState::Running);
    assert_eq!(driven.say(lost), Action::Attach);
    for _ in 1..ATTACHES_MAX {
        assert_eq!(driven.say(lost), Action::WaitUntil(driven.now + ATTACH_INTERVAL));
        assert_eq!(driven.say(Event::Due), Action::WaitUntil(driven.now + ATTACH_INTERVAL), "not yet");
        assert_eq!(driven.after(1, Event::Due), Action::Attach);
    }
    assert_eq!(driven.say(lost), Action::CleanUp);
    assert_eq!((driven.retry.error_phase(), driven.retry.retry_count()), (Some(McpErrorPhase::RelayConnect), 1));
}

#[test]
fn a_server_whose_process_ends_is_built_again() {
    for event in [
        Event::Lost(McpErrorPhase::RelayConnect, ProcessState::Exited),
        Event::Lost(McpErrorPhase::RelayConnect, ProcessState::Unknown),
        Event::Looked(ProcessState::Exited),
    ] {
        let mut driven = Driven::connected();
        assert_eq!(driven.say(event), Action::CleanUp, "{event:?}");
        assert_eq!(driven.retry.error_phase(), Some(McpErrorPhase::Runtime));
        assert_eq!(driven.clean_up_and_wait(), at(2));
        assert_eq!(driven.say(Event::Due), Action::Build);
    }
}

#[test]
fn one_look_that_fails_proves_nothing() {
    let mut driven = Driven::connected();
    for _ in 0..10 {
        for _ in 1..HEALTH_FAILURES_MAX {
            assert_eq!(driven.after(5, Event::Looked(ProcessState::Unknown)), Action::Continue);
        }
        assert_eq!(driven.after(5, Event::Looked(ProcessState::Running)), Action::Continue);
    }
    for _ in 1..HEALTH_FAILURES_MAX {
        driven.after(5, Event::Looked(ProcessState::Unknown));
    }
    assert_eq!(driven.after(5, Event::Looked(ProcessState::Unknown)), Action::CleanUp);
}

#[test]
fn a_server_that_always_ends_soon_is_given_up_and_one_that_held_is_not() {
    for (seconds, is_given_up) in [(59, true), (60, false)] {
        let mut driven = Driven::connected();
        for _ in 0..4 {
            driven.after(seconds, Event::Looked(ProcessState::Exited));
            if matches!(driven.say(Event::CleanedUp), Action::WaitUntil(_)) {
                assert_eq!(driven.after(8, Event::Due), Action::Build);
                driven.say(Event::ProcessStarted);
                driven.say(Event::Connected);
            }
        }
        assert_eq!(driven.retry.status() == McpStatus::Error, is_given_up, "{seconds}");
    }
}

#[test]
fn a_failed_call_does_not_touch_the_server() {
    let mut driven = Driven::connected();
    assert_eq!(driven.say(Event::Failed(McpErrorPhase::ToolCall)), Action::Continue);
    assert_eq!((driven.retry.status(), driven.retry.error_phase()), (McpStatus::Connected, None));
}

#[test]
fn a_process_of_before_is_attached_to() {
    let mut driven = Driven::new();
    assert_eq!(driven.say(Event::Found), Action::Attach);
    driven.say(Event::Connected);
    assert_eq!(driven.retry.status(), McpStatus::Connected);
    let mut driven = Driven::new();
    driven.say(Event::Found);
    assert_eq!(driven.say(Event::Lost(McpErrorPhase::RelayConnect, ProcessState::Exited)), Action::CleanUp);
}

#[test]
fn a_restart_cleans_up_first_and_a_stop_ends_clean() {
    let mut driven = Driven::connected();
    assert_eq!(driven.say(Event::Start), Action::CleanUp);
    assert_eq!(driven.say(Event::CleanedUp), Action::Build);
    assert_eq!(driven.say(Event::Stop), Action::CleanUp);
    assert_eq!(driven.retry.status(), McpStatus::Disabled);
    assert_eq!(driven.say(Event::Connected), Action::Continue, "it comes too late");
    assert_eq!(driven.say(Event::CleanedUp), Action::Rest);
    assert_eq!(driven.retry.status(), McpStatus::Disabled);
    assert_eq!(driven.say(Event::Stop), Action::Rest);
}

fn events() -> impl Strategy<Value = Event> {
    let state = || prop::sample::select(vec![ProcessState::Running, ProcessState::Exited, ProcessState::Unknown]);
    let phase = || prop::sample::select(McpErrorPhase::ALL.to_vec());
    prop_oneof![
        1 => Just(Event::Start),
        1 => Just(Event::Found),
        1 => Just(Event::Stop),
        4 => Just(Event::ProcessStarted),
        4 => Just(Event::Connected),
        4 => phase().prop_map(Event::Failed),
        4 => (phase(), state()).prop_map(|(phase, process)| Event::Lost(phase, process)),
        4 => state().prop_map(Event::Looked),
        8 => Just(Event::Due),
        8 => Just(Event::CleanedUp),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_nothing_is_left_behind(happenings in prop::collection::vec((events(), 0_u64..90), 0..80)) {
        let mut driven = Driven::new();
        // What a driver has made and not yet removed, and whether it was told to remove it.
        let (mut is_made, mut is_cleaning) = (false, false);
        for (event, seconds) in happenings {
            if event == Event::CleanedUp && !is_cleaning {
                continue;
            }
            // A process can only be found where nothing of ours is under way.
            if event == Event::Found && (is_made || is_cleaning) {
                continue;
            }
            if event == Event::CleanedUp {
                (is_made, is_cleaning) = (false, false);
            }
            match driven.after(seconds, event) {
                Action::Build => {
                    prop_assert!(!is_made, "built twice after {event:?}");
                    is_made = true;
                }
                Action::Attach => is_made = true,
                Action::CleanUp => {
                    prop_assert!(!is_cleaning, "cleaned up twice after {event:?}");
                    is_cleaning = true;
                }
                Action::Rest => prop_assert!(!is_made, "rests on something after {event:?}"),
                Action::WaitUntil(until) => prop_assert!(until > driven.now),
                Action::Continue => {}
            }
            let rests = matches!(driven.retry.status(), McpStatus::Error | McpStatus::Disabled);
            prop_assert!(!rests || !is_made || is_cleaning, "left behind after {event:?}");
            prop_assert!(driven.retry.retry_count() <= 3);
        }
    }

    #[test]
    fn a_server_that_only_fails_is_built_four_times(happenings in prop::collection::vec(events(), 0..200)) {
        let mut driven = Driven::new();
        let mut builds = usize::from(driven.say(Event::Start) == Action::Build);
        let from_outside = |event: &Event| matches!(event, Event::Start | Event::Found | Event::Stop | Event::Connected);
        for event in happenings.into_iter().filter(|event| !from_outside(event)) {
            builds += usize::from(driven.after(1, event) == Action::Build);
        }
        prop_assert!(builds <= 4, "{builds}");
    }
}
