//! `strongbox backends`: every backend, whether boxes can be made on it here, and which one a server would choose.

use std::time::Duration;

use box_core::BackendName;
use box_core::backend::Pick;
use clap::Args;
use owo_colors::{OwoColorize, Style};
use serde::Serialize;

use crate::config::PlaceOptions;
use crate::engines::Engines;
use crate::fault::Fault;
use crate::listing::{self, Row};
use crate::options::JsonOption;

/// How long one backend may take to say how it stands. An engine that hangs must not hide the others.
const LOOK_MAX: Duration = Duration::from_secs(20);

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Which backends work here, what the others lack, and which one a server would use:
    strongbox backends
  What is chosen, for a script:
    strongbox backends --json | jq -r .chosen

Each is really opened and asked, as the configuration says, and no box is made: `strongbox doctor --backend NAME` makes one.
Exits with 0 when a server could make boxes, else with 1. A running server tells its own view: GET /v1/backends.")]
pub(crate) struct BackendsOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    place: PlaceOptions,
}

/// How a backend stands here.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Look {
    /// Which one.
    pub(crate) name: BackendName,
    /// Whether boxes can be made on it.
    pub(crate) available: bool,
    /// Why not.
    pub(crate) reason: Option<String>,
    /// What would change that.
    pub(crate) fix: Option<String>,
}

/// Looks at all backends.
pub(crate) fn main(options: &BackendsOptions) -> Result<u8, Fault> {
    let config = options.place.settings(&options.place.flags())?.config()?;
    let engines = Engines::ephemeral(config.state_dir.clone()).configured(&config);
    let runtime = crate::runtime()?;
    let looks = runtime.block_on(look_at_all(&engines, &BackendName::ALL));
    runtime.shutdown_background();
    let pick = config.pick();
    let chosen = chosen(&looks, &pick);
    if options.format.json {
        let chosen = chosen.map(|look| look.name);
        listing::write_json(&serde_json::json!({ "chosen": chosen, "why": why(&pick), "backends": looks }))?;
    } else {
        listing::write_out(as_text(&looks, chosen, &pick).as_bytes())?;
    }
    Ok(u8::from(!chosen.is_some_and(|look| look.available)))
}

/// Looks at these, one after the other: what one is doing must not be in the way of another.
pub(crate) async fn look_at_all(engines: &Engines, names: &[BackendName]) -> Vec<Look> {
    let mut looks = Vec::new();
    for name in names {
        looks.push(look_at(engines, *name).await);
    }
    looks
}

async fn look_at(engines: &Engines, name: BackendName) -> Look {
    let absent = |reason: String, fix: String| {
        let fix = Some(fix).filter(|fix| !fix.is_empty());
        Look { name, available: false, reason: Some(reason), fix }
    };
    let looked = async {
        let opened = engines.open(name).await?;
        let found = opened.backend().probe().await;
        opened.close().await;
        Ok::<_, box_core::Error>(found)
    };
    match tokio::time::timeout(LOOK_MAX, looked).await {
        Ok(Ok(found)) => match found.absence() {
            None => Look { name, available: true, reason: None, fix: None },
            Some((reason, fix)) => absent(reason, fix),
        },
        Ok(Err(box_core::Error::Unavailable { reason, fix, .. })) => absent(reason, fix),
        Ok(Err(error)) => absent(error.to_string(), format!("strongbox doctor --backend {name}")),
        Err(_) => {
            let reason = format!("it did not answer within {} seconds", LOOK_MAX.as_secs());
            absent(reason, "see whether it runs, and restart it".to_owned())
        }
    }
}

/// The one that a server would use.
fn chosen<'a>(looks: &'a [Look], pick: &Pick) -> Option<&'a Look> {
    let find = |name: &BackendName| looks.iter().find(|look| look.name == *name);
    match pick {
        Pick::Forced(name) => find(name),
        Pick::First(order) => order.iter().filter_map(find).find(|look| look.available),
    }
}

fn why(pick: &Pick) -> String {
    match pick {
        Pick::Forced(name) => format!("backend = {:?} asks for it, and nothing stands in for it", name.as_str()),
        Pick::First(order) => {
            let order: Vec<&str> = order.iter().map(|name| name.as_str()).collect();
            format!("backend = \"auto\" takes the first of {} that is available", order.join(", "))
        }
    }
}

fn as_text(looks: &[Look], chosen: Option<&Look>, pick: &Pick) -> String {
    let table = listing::render(&rows(looks), listing::columns(rustix::stdio::stdout()));
    let verdict = match chosen {
        Some(look) if look.available => format!("{} {}", "Chosen:".green().bold(), look.name),
        Some(look) => format!("{} {}, on which no box can be made", "Chosen:".red().bold(), look.name),
        None => format!("{} none", "Chosen:".red().bold()),
    };
    format!("{table}\n{verdict}; {}\n", why(pick))
}

/// Looks as lines of a table.
pub(crate) fn rows(looks: &[Look]) -> Vec<Row> {
    let row = |look: &Look| {
        let (mark, style) =
            if look.available { ("available", Style::new().green()) } else { ("missing", Style::new().red()) };
        Row {
            mark: mark.to_owned(),
            style,
            name: look.name.to_string(),
            detail: look.reason.clone().unwrap_or_else(|| "boxes can be made".to_owned()),
            fix: look.fix.clone(),
        }
    };
    looks.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(name: BackendName, available: bool) -> Look {
        let absence = |text: &str| (!available).then(|| text.to_owned());
        Look { name, available, reason: absence("it is not there"), fix: absence("bring it") }
    }

    #[test]
    fn a_forced_one_is_chosen_whether_or_not_it_is_there_and_auto_takes_the_first_that_is() {
        let looks =
            [look(BackendName::Native, false), look(BackendName::Podman, true), look(BackendName::Docker, true)];
        let name = |pick: Pick| chosen(&looks, &pick).map(|look| (look.name, look.available));
        assert_eq!(name(Pick::Forced(BackendName::Native)), Some((BackendName::Native, false)));
        assert_eq!(name(Pick::First(BackendName::ALL.to_vec())), Some((BackendName::Podman, true)));
        let docker_first = vec![BackendName::Docker, BackendName::Podman];
        assert_eq!(name(Pick::First(docker_first)), Some((BackendName::Docker, true)));
        assert_eq!(name(Pick::First(vec![BackendName::Native])), None);
    }

    #[test]
    fn every_backend_has_a_line_and_the_missing_ones_say_what_to_do() {
        let looks = [look(BackendName::Native, true), look(BackendName::Docker, false)];
        let pick = Pick::First(vec![BackendName::Native, BackendName::Docker]);
        let text = as_text(&looks, looks.first(), &pick);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string(), @r#"
          available  native  boxes can be made
          missing    docker  it is not there
                             fix: bring it

        Chosen: native; backend = "auto" takes the first of native, docker that is available
        "#);
    }
}
