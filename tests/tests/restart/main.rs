//! Kills the server, at a step or at a moment, and holds that the next start finds everything again.
//!
//! `restart [NAME…]` runs the cases whose name holds one of the words. The program under test is `STRONGBOX_BIN`.

mod adoption;
mod load;
mod losses;
mod model;
mod neighbours;
mod network;
mod random;
mod steps;
mod stops;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use box_tests::restart_server::{Place, on_place};
use box_tests::suite::Selection;
use box_tests::{Case, Suite, isolation};
use std::sync::Arc;

/// A guard against hanging; some cases wait for deadlines of their own.
const LIMIT: Duration = Duration::from_mins(3);

fn main() -> ExitCode {
    isolation::start(async |arguments| run(Selection::from_arguments(arguments)?).await)
}

async fn run(selection: Selection) -> Result<ExitCode> {
    let mut suite = Suite::new("restart", selection);
    for case in all() {
        suite.run(case).await;
    }
    Ok(suite.finish())
}

/// A case on a place of its own.
fn placed<F>(name: &str, case: fn(Arc<Place>) -> F) -> Case
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    Case::new(name, move || on_place(case)).within(LIMIT)
}

fn all() -> Vec<Case> {
    let mut cases = vec![
        placed("boxes_and_processes_go_on", adoption::boxes_and_processes_go_on),
        placed("a_follower_sees_every_byte_once", adoption::a_follower_sees_every_byte_once),
        placed("ends_that_nobody_heard_are_told", adoption::ends_that_nobody_heard_are_told),
        placed("a_paused_session_stays_paused", adoption::a_paused_session_stays_paused),
        placed("tokens_and_idle_times_are_kept", adoption::tokens_and_idle_times_are_kept),
        placed("a_process_is_still_supervised", adoption::a_process_is_still_supervised),
        placed(
            "an_address_that_the_host_got_meanwhile_is_closed",
            network::an_address_that_the_host_got_meanwhile_is_closed,
        ),
        placed("a_box_killed_from_outside_is_lost", losses::a_box_killed_from_outside_is_lost),
        placed("a_box_killed_behind_our_back_is_lost", losses::a_box_killed_behind_our_back_is_lost),
        placed("all_boxes_gone_are_all_lost", losses::all_boxes_gone_are_all_lost),
        placed("a_stop_keeps_persistent_sessions", stops::a_stop_keeps_persistent_sessions),
        placed("a_stop_can_keep_all", stops::a_stop_can_keep_all),
        placed("a_stop_can_destroy_all", stops::a_stop_can_destroy_all),
        placed("a_second_signal_stops_at_once", stops::a_second_signal_stops_at_once),
        placed("a_second_server_is_refused", neighbours::a_second_server_is_refused),
        Case::new("two_servers_keep_to_themselves", neighbours::two_servers_keep_to_themselves),
    ];
    cases.extend(steps::cases());
    cases.extend(model::cases());
    cases.push(load::case());
    cases
}
