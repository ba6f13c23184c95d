//! `strongbox skill ls`.

use clap::Args;
use jiff::Timestamp;

use super::Skill;
use crate::client::verb::ago;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// Characters of a description that a table shows.
const DESCRIPTION_CHARS: usize = 60;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox skill ls
  strongbox skill ls --json | jq -r '.[].name'")]
pub(crate) struct LsOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Lists skills.
pub(crate) fn main(options: &LsOptions) -> Result<u8, Fault> {
    let answer = ask(&options.server, async |client| patiently("asking", client.get("/v1/skills")).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let skills: Vec<Skill> = answer.read()?;
    listing::write_out(table(&skills, Timestamp::now()).as_bytes())
}

fn table(skills: &[Skill], now: Timestamp) -> String {
    let mut table = Table::new(&["NAME", "KIND", "CHANGED", "DESCRIPTION"]);
    for skill in skills {
        let kind = if skill.python_project { "python" } else { "" };
        let mut description: String = skill.description.chars().take(DESCRIPTION_CHARS).collect();
        if description.len() < skill.description.len() {
            description.push('…');
        }
        table.row([skill.name.clone(), kind.to_owned(), ago(skill.updated_at, now), description]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_description_is_cut_and_cannot_steer_the_terminal() {
        let updated_at = Timestamp::from_second(100).unwrap();
        let skill = |description: &str| Skill {
            name: "a".into(),
            description: description.into(),
            python_project: true,
            updated_at,
        };
        let shown = table(&[skill(&"x".repeat(100)), skill("\u{1b}[2J")], Timestamp::from_second(160).unwrap());
        let shown = anstream::adapter::strip_str(&shown).to_string();
        assert!(shown.contains(&format!("a     python  60s ago  {}…\n", "x".repeat(60))), "{shown}");
        assert!(shown.contains("\\u{1b}[2J"), "{shown}");
    }
}
