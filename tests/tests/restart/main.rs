//! Kills the server, at a step or at a moment, and holds that the next start finds everything again.
//!
//! `restart [NAME…]` runs the cases whose name holds one of the words. The program under test is `STRONGBOX_BIN`.

mod adoption;
mod e2b;
mod load;
mod losses;
mod model;
mod neighbours;
mod network;
mod random;
mod schemas;
mod steps;
mod stops;
mod upgrades;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use box_tests::restart_server::{StateDirectory, on_place};
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
fn placed<F>(name: &str, case: fn(Arc<StateDirectory>) -> F) -> Case
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    Case::new(name, move || on_place(case)).within(LIMIT)
}

fn all() -> Vec<Case> {
    let mut cases = vec![
        placed("boxes_and_processes_go_on", adoption::boxes_and_processes_go_on),
        placed("a_follower_sees_every_byte_once", adoption::a_follower_sees_every_byte_once),
        placed(
            "an_e2b_client_that_connects_again_hears_everything",
            e2b::an_e2b_client_that_connects_again_hears_everything,
        ),
        placed(
            "a_sandbox_whose_server_stays_away_ends_at_its_end",
            e2b::a_sandbox_whose_server_stays_away_ends_at_its_end,
        ),
        placed("ends_that_nobody_heard_are_told", adoption::ends_that_nobody_heard_are_told),
        placed("a_paused_session_stays_paused", adoption::a_paused_session_stays_paused),
        placed("tokens_and_idle_times_are_kept", adoption::tokens_and_idle_times_are_kept),
        placed("a_volume_outlives_killed_servers", adoption::a_volume_outlives_killed_servers),
        placed("a_process_is_still_supervised", adoption::a_process_is_still_supervised),
        placed(
            "an_address_that_the_host_got_meanwhile_is_closed",
            network::an_address_that_the_host_got_meanwhile_is_closed,
        ),
        placed("a_box_killed_from_outside_is_lost", losses::a_box_killed_from_outside_is_lost),
        placed("a_box_killed_behind_our_back_is_lost", losses::a_box_killed_behind_our_back_is_lost),
        placed("a_box_of_an_older_protocol_is_lost", losses::a_box_of_an_older_protocol_is_lost),
        placed("a_box_whose_agent_lacks_features_goes_on", losses::a_box_whose_agent_lacks_features_goes_on),
        placed("boxes_of_earlier_releases_go_on", upgrades::boxes_of_earlier_releases_go_on),
        placed(
            "files_reach_a_sandbox_whose_agent_lacks_features",
            e2b::files_reach_a_sandbox_whose_agent_lacks_features,
        ),
        placed("all_boxes_gone_are_all_lost", losses::all_boxes_gone_are_all_lost),
        placed("a_server_starts_on_a_database_of_each_schema", schemas::a_server_starts_on_a_database_of_each_schema),
        placed("a_stop_keeps_all_and_says_so", stops::a_stop_keeps_all_and_says_so),
        placed("ctrl_c_keeps_all_and_says_so", stops::ctrl_c_keeps_all_and_says_so),
        placed("a_stop_can_keep_persistent_sessions", stops::a_stop_can_keep_persistent_sessions),
        placed("a_box_that_is_left_alone_ends_itself", stops::a_box_that_is_left_alone_ends_itself),
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
