//! `strongbox doctor`: what this machine can enforce, shown by looking at each facility and by making one box.

use box_core::backend::{Finding, FindingState};
use box_core::{BackendName, Dimension, Guarantees, Level, Profile};
use owo_colors::{OwoColorize, Style};

use crate::backends::{self, Look};
use crate::config::BackendRequest;
use crate::engines::Engines;
use crate::fault::Fault;
use crate::listing::{self, Row};
use crate::options::DoctorOptions;
use crate::run;

/// What came of looking.
#[derive(Debug)]
struct Examined {
    /// At the backend in question.
    findings: Vec<Finding>,
    /// Making a box on it.
    trial: Result<Guarantees, Fault>,
    /// At the others, where none was named.
    others: Vec<Look>,
}

/// Looks at everything; exits with 0 when boxes can be made.
pub(crate) fn main(options: &DoctorOptions) -> Result<u8, Fault> {
    let runtime = crate::runtime()?;
    let examined = runtime.block_on(examine(options));
    runtime.shutdown_background();
    let exit_code = u8::from(examined.trial.is_err());
    if options.format.json {
        listing::write_json(&as_json(&examined))?;
    } else {
        listing::write_out(as_text(&examined).as_bytes())?;
    }
    Ok(exit_code)
}

async fn examine(options: &DoctorOptions) -> Examined {
    let is_native = matches!(options.engine.backend, None | Some(BackendRequest::One(BackendName::Native)));
    // What the native backend is made of can be looked at whether or not it opens.
    let findings = is_native.then(box_host::doctor::findings);
    let (said, trial) = trial(options).await;
    let others = if options.engine.backend.is_none() { others(options).await } else { Vec::new() };
    Examined { findings: findings.unwrap_or(said), trial, others }
}

/// Makes a box and removes it: what it guarantees is then known and not guessed. First what the backend says of itself.
async fn trial(options: &DoctorOptions) -> (Vec<Finding>, Result<Guarantees, Fault>) {
    let opened = match run::open_engine(&options.engine, BackendName::Native).await {
        Ok(opened) => opened,
        Err(fault) => return (Vec::new(), Err(fault)),
    };
    let backend = opened.backend();
    let findings = match backend.name() {
        BackendName::Native => Vec::new(),
        _ => backend.probe().await.findings,
    };
    let tried = async {
        let id = format!("doctor-{}", std::process::id()).parse()?;
        let mut spec = Profile::default().spec();
        spec.dies_with_maker = true;
        let handle = backend.create(&id, &spec).await?;
        backend.destroy(&handle).await?;
        Ok(handle.guarantees)
    };
    let tried = tried.await;
    opened.close().await;
    (findings, tried)
}

/// How the other backends stand. A configuration that cannot be read is no reason not to look.
async fn others(options: &DoctorOptions) -> Vec<Look> {
    let Ok(state_dir) = run::state_dir(&options.engine) else { return Vec::new() };
    let engines = Engines::ephemeral(state_dir);
    let engines = match run::config() {
        Ok(config) => engines.configured(&config),
        Err(_) => engines,
    };
    let names: Vec<_> = BackendName::ALL.into_iter().filter(|name| *name != BackendName::Native).collect();
    backends::look_at_all(&engines, &names).await
}

fn as_json(examined: &Examined) -> serde_json::Value {
    let Examined { findings, trial, others } = examined;
    serde_json::json!({
        "available": trial.is_ok(),
        "findings": findings,
        "guarantees": trial.as_ref().ok(),
        "error": trial.as_ref().err().map(|fault| {
            serde_json::json!({ "code": fault.code, "message": fault.message, "hint": fault.hint })
        }),
        "other_backends": others,
    })
}

fn as_text(examined: &Examined) -> String {
    let Examined { findings, trial, others } = examined;
    let columns = listing::columns(rustix::stdio::stdout());
    let rows: Vec<Row> = findings.iter().map(row).collect();
    let table = listing::render(&rows, columns);
    let verdict = match trial {
        Ok(guarantees) => summary(guarantees),
        Err(fault) => {
            let hint = fault.hint.as_ref().map(|hint| format!("\n{} {hint}", "hint:".cyan()));
            format!("{} {}{}", "No box could be made here:".red().bold(), fault.message, hint.unwrap_or_default())
        }
    };
    if others.is_empty() {
        return format!("{table}\n{verdict}\n");
    }
    let others = listing::render(&backends::rows(others), columns);
    format!("{table}\n{verdict}\n\n{}\n{others}", "Other backends:".bold())
}

fn row(finding: &Finding) -> Row {
    let (mark, style) = match finding.state {
        FindingState::Good => ("good", Style::new().green()),
        FindingState::Weaker => ("weaker", Style::new().yellow()),
        FindingState::Missing => ("missing", Style::new().red()),
    };
    Row {
        mark: mark.to_owned(),
        style,
        name: finding.name.clone(),
        detail: finding.detail.clone(),
        fix: finding.fix.clone(),
    }
}

/// One line that says what a box of the default profile guarantees here.
fn summary(guarantees: &Guarantees) -> String {
    let held = |level: Level| {
        let of_level = |dimension: &&Dimension| guarantees.level(**dimension) == level;
        let names: Vec<String> = Dimension::ALL.iter().filter(of_level).map(ToString::to_string).collect();
        let word = level.to_string();
        (!names.is_empty()).then(|| format!("{} {}", word.style(listing::level_style(level)), names.join(", ")))
    };
    let parts: Vec<String> = [Level::Hard, Level::Soft, Level::Absent].into_iter().filter_map(held).collect();
    format!("{} {}", "A box was made here just now, and removed. It held:".bold(), parts.join("; "))
}
