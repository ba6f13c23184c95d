//! `strongbox skill show`.

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::skill_path;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::{pairs, visible};

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox skill show pdf-tools
  strongbox skill show pdf-tools --json | jq -r .instructions")]
pub(crate) struct ShowOptions {
    /// The skill
    name: String,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Files {
    entries: Vec<File>,
    truncated: bool,
}

#[derive(Debug, Deserialize)]
struct File {
    name: String,
    is_dir: bool,
}

/// Shows one skill.
pub(crate) fn main(options: &ShowOptions) -> Result<u8, Fault> {
    let asked = ask(&options.server, async |client| {
        let path = skill_path(&options.name, "");
        let skill = patiently("asking", client.get(&path)).await?.json()?;
        let path = skill_path(&options.name, "/files");
        let files: Files = patiently("asking", client.get(&path)).await?.read()?;
        Ok((skill, files))
    });
    let (skill, files) = asked?;
    if options.format.json {
        return listing::write_json(&skill);
    }
    listing::write_out(as_text(&skill, &files).as_bytes())
}

fn as_text(skill: &Value, files: &Files) -> String {
    let text = |field: &str| skill[field].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> =
        files.entries.iter().map(|file| format!("{}{}", file.name, if file.is_dir { "/" } else { "" })).collect();
    let more = if files.truncated { " …" } else { "" };
    let lines = pairs(&[
        ("skill", text("name")),
        ("shown as", text("display_name")),
        ("description", text("description")),
        ("python", if skill["python_project"] == true { "gets an environment of its own" } else { "no" }.to_owned()),
        ("changed", text("updated_at")),
        ("files", format!("{}{more}", names.join(" "))),
    ]);
    // The words of a stranger, line by line, without anything that a terminal would obey.
    let instructions: Vec<String> = text("instructions").lines().map(visible).collect();
    format!("{lines}\n{}\n", instructions.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn instructions_keep_their_lines_and_nothing_else() {
        let skill = json!({ "name": "a", "instructions": "one\n\u{1b}[2Jtwo\n", "python_project": false });
        let files = Files { entries: vec![File { name: "scripts".into(), is_dir: true }], truncated: true };
        let shown = anstream::adapter::strip_str(&as_text(&skill, &files)).to_string();
        assert!(shown.ends_with("scripts/ …\n\none\n\\u{1b}[2Jtwo\n"), "{shown}");
    }
}
