//! `strongbox ls`: files of a session.

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::ago;
use crate::client::copy_endpoint::{BoxPath, question};
use crate::client::http::Client;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::{self, Fault};
use crate::listing;
use crate::options::JsonOption;
use crate::table::{Table, visible};

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  What is in the workspace of a session:
    strongbox ls demo
  With permissions, owners and sizes, two levels down:
    strongbox ls -l --depth 2 demo:/var/log

A path without a slash at its start is below the workspace. All names are shown, also those
that start with a dot.")]
pub(crate) struct LsOptions {
    /// The session, and a directory or file in it; else its workspace
    #[arg(value_name = "SESSION[:PATH]")]
    place: BoxPath,
    /// Also permissions, owner, size and age
    #[arg(short, long)]
    long: bool,
    /// Levels to go down
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    depth: u32,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Something in a box.
#[derive(Debug, Deserialize)]
struct Entry {
    path: String,
    kind: String,
    size: u64,
    mode: String,
    uid: u32,
    gid: u32,
    modified_at: Option<Timestamp>,
    #[serde(default)]
    target: Option<String>,
}

/// Lists files.
pub(crate) fn main(options: &LsOptions) -> Result<u8, Fault> {
    let (root, found) = ask(&options.server, async |client| patiently("asking", list(client, options)).await)?;
    if found["truncated"] == true {
        fault::say(&format!("there is more; only {} entries are shown", box_wire::limits::ENTRIES_MAX));
    }
    if options.format.json {
        return listing::write_json(&found["entries"]);
    }
    let unreadable = |error| Fault::new(format!("the server's answer cannot be understood: {error}"));
    let entries: Vec<Entry> = serde_json::from_value(found["entries"].clone()).map_err(unreadable)?;
    let text = if options.long { as_table(&root, &entries, Timestamp::now()) } else { as_names(&root, &entries) };
    listing::write_out(text.as_bytes())
}

/// What is in a directory; of anything else, only itself.
async fn list(client: &Client, options: &LsOptions) -> Result<(String, Value), Fault> {
    let BoxPath { session, .. } = &options.place;
    let path = options.place.absolute(client).await?;
    let ask = format!(
        "{}&depth={}&limit={}",
        question(session, &["list"], &path),
        options.depth,
        box_wire::limits::ENTRIES_MAX
    );
    match client.get(&ask).await {
        Ok(answer) => Ok((path, answer.json()?)),
        Err(fault) if fault.code == "not_directory" => {
            let entry = client.get(&question(session, &["stat"], &path)).await?.json()?;
            Ok((path, json!({ "entries": [entry], "truncated": false })))
        }
        Err(fault) => Err(fault),
    }
}

/// The name of something, as seen from the directory that is listed.
fn name(root: &str, entry: &Entry) -> String {
    let root = root.trim_end_matches('/');
    let below = entry.path.strip_prefix(root).and_then(|rest| rest.strip_prefix('/'));
    let name = below.filter(|name| !name.is_empty()).unwrap_or(&entry.path);
    if entry.kind == "directory" { format!("{name}/") } else { name.to_owned() }
}

fn as_names(root: &str, entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        text.push_str(&visible(&name(root, entry)));
        text.push('\n');
    }
    text
}

fn as_table(root: &str, entries: &[Entry], now: Timestamp) -> String {
    let mut table = Table::new(&["MODE", "OWNER", "SIZE", "CHANGED", "NAME"]);
    for entry in entries {
        let owner = format!("{}:{}", entry.uid, entry.gid);
        let changed = entry.modified_at.map_or_else(|| "-".to_owned(), |then| ago(then, now));
        let name = match &entry.target {
            Some(target) => format!("{} -> {target}", name(root, entry)),
            None => name(root, entry),
        };
        table.row([permissions(entry), owner, entry.size.to_string(), changed, name]);
    }
    table.render()
}

/// Permissions as `ls` shows them.
fn permissions(entry: &Entry) -> String {
    let mode = u32::from_str_radix(&entry.mode, 8).unwrap_or(0);
    let kind = match entry.kind.as_str() {
        "directory" => 'd',
        "symlink" => 'l',
        "file" => '-',
        _ => '?',
    };
    let bit = |shift: u32, letter: char| if mode >> shift & 1 == 1 { letter } else { '-' };
    let bits = (0..9).rev().zip("rwxrwxrwx".chars()).map(|(shift, letter)| bit(shift, letter));
    std::iter::once(kind).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: &str) -> Entry {
        let fields = json!({
            "path": path, "kind": kind, "size": 7, "mode": "0754", "uid": 1, "gid": 2,
            "modified_at": "1970-01-01T00:00:00Z",
        });
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn names_are_told_from_where_one_looks() {
        for (root, path, kind, shown) in [
            ("/workspace", "/workspace/a", "file", "a"),
            ("/workspace/", "/workspace/a/b", "directory", "a/b/"),
            ("/", "/etc", "directory", "etc/"),
            ("/workspace/a", "/workspace/a", "file", "/workspace/a"),
        ] {
            assert_eq!(name(root, &entry(path, kind)), shown);
        }
    }

    #[test]
    fn a_long_list_is_like_that_of_ls_and_steers_no_terminal() {
        let link = Entry { target: Some("/\u{1b}[31m".into()), ..entry("/w/l", "symlink") };
        let now = Timestamp::from_second(60).unwrap();
        let text = anstream::adapter::strip_str(&as_table("/w", &[entry("/w/f\n", "file"), link], now)).to_string();
        let lines = [
            "MODE        OWNER  SIZE  CHANGED  NAME",
            "-rwxr-xr--  1:2    7     60s ago  f\\n",
            "lrwxr-xr--  1:2    7     60s ago  l -> /\\u{1b}[31m",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), lines);
        assert_eq!(as_names("/w", &[entry("/w/a\u{9b}", "file")]), "a\\u{9b}\n");
    }
}
