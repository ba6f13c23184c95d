//! Kills the maker of boxes at every step, and holds that the next start leaves nothing of it.
//!
//! `faults [NAME…]` runs the cases whose name holds one of the words. The program under test is `STRONGBOX_BIN`.

mod agent;
mod maker;
mod program;
mod steps;
mod strangers;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use box_tests::suite::Selection;
use box_tests::{Case, Suite, isolation};

fn main() -> ExitCode {
    if let Some(code) = maker::run_if_asked() {
        return code;
    }
    isolation::start(async |arguments| run(Selection::from_arguments(arguments)?).await)
}

async fn run(selection: Selection) -> Result<ExitCode> {
    let mut suite = Suite::new("faults", selection);
    for &step in box_native::fault::STEPS {
        let case = Case::new(format!("killed_at/{step}"), move || steps::killed_at(step));
        suite.run(case.within(Duration::from_mins(2))).await;
    }
    let random = Case::new("killed_at_any_moment", steps::killed_at_any_moment);
    suite.run(random.within(Duration::from_mins(5))).await;
    suite.run(Case::new("a_stranger_in_the_state_directory_is_not_followed", strangers::links_are_not_followed)).await;
    suite.run(Case::new("a_live_instance_is_not_touched", strangers::live_instance_is_not_touched)).await;
    suite.run(Case::new("an_agent_killed_from_outside_is_reported", agent::killed_from_outside)).await;
    Ok(suite.finish())
}
