//! `strongbox doctor`: what this machine can enforce, shown by looking at each facility and by making one box.

use box_core::backend::{Finding, FindingState};
use box_core::{Backend, Dimension, Guarantees, Level, Profile};
use owo_colors::{OwoColorize, Style};

use crate::fault::Fault;
use crate::listing::{self, Row};
use crate::options::DoctorOptions;
use crate::run;

/// Looks at everything; exits with 0 when boxes can be made.
pub(crate) fn main(options: &DoctorOptions) -> Result<u8, Fault> {
    let findings = box_native::doctor::findings();
    let runtime = crate::runtime()?;
    let trial = runtime.block_on(trial(options));
    runtime.shutdown_background();
    let exit_code = u8::from(trial.is_err());
    if options.format.json {
        listing::write_json(&as_json(&findings, &trial))?;
    } else {
        listing::write_out(as_text(&findings, &trial).as_bytes())?;
    }
    Ok(exit_code)
}

/// Makes a box and removes it: what it guarantees is then known and not guessed.
async fn trial(options: &DoctorOptions) -> Result<Guarantees, Fault> {
    let native = run::open_engine(&options.engine).await?;
    let id = format!("doctor-{}", std::process::id()).parse()?;
    let mut spec = Profile::default().spec();
    spec.dies_with_maker = true;
    let made = native.create(&id, &spec).await;
    let removed = match &made {
        Ok(handle) => native.destroy(handle).await,
        Err(_) => Ok(()),
    };
    native.close().await;
    let guarantees = made?.guarantees;
    removed?;
    Ok(guarantees)
}

fn as_json(findings: &[Finding], trial: &Result<Guarantees, Fault>) -> serde_json::Value {
    serde_json::json!({
        "available": trial.is_ok(),
        "findings": findings,
        "guarantees": trial.as_ref().ok(),
        "error": trial.as_ref().err().map(|fault| {
            serde_json::json!({ "code": fault.code, "message": fault.message, "hint": fault.hint })
        }),
    })
}

fn as_text(findings: &[Finding], trial: &Result<Guarantees, Fault>) -> String {
    let rows: Vec<Row> = findings.iter().map(row).collect();
    let table = listing::render(&rows, listing::columns(rustix::stdio::stdout()));
    let verdict = match trial {
        Ok(guarantees) => summary(guarantees),
        Err(fault) => {
            let hint = fault.hint.as_ref().map(|hint| format!("\n{} {hint}", "hint:".cyan()));
            format!("{} {}{}", "No box could be made here:".red().bold(), fault.message, hint.unwrap_or_default())
        }
    };
    format!("{table}\n{verdict}\n")
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
