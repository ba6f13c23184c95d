//! The code interpreter: E2B's requests for `run_code` and the contexts of the service, and lines of JSON for its events.

mod answer;
mod door;
mod line;

pub(super) use door::routes;
