//! `strongbox skill install`.

use std::io::Read;
use std::path::Path;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::client::http::{Client, encoded};
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::visible;

/// Largest archive that is sent: what servers take, and a little more, so that they can say so.
const ARCHIVE_BYTES_MAX: u64 = 21 << 20;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  What is in an archive, and then one skill of it:
    strongbox skill install tools.zip --preview
    strongbox skill install tools.zip --path skills/pdf
  From an address, if the server allows it (skills.allow_urls):
    strongbox skill install https://example.com/tools.zip
  From a checkout on the server's machine, below one of its skills.checkout_roots:
    strongbox skill install /srv/checkouts/tools")]
pub(crate) struct InstallOptions {
    /// A zip archive, an https:// address of one, or a directory on the server's machine
    #[arg(value_name = "FILE|URL|DIRECTORY")]
    source: String,
    /// Which skill of the archive, by the path that --preview shows. Repeatable
    #[arg(long, value_name = "PATH")]
    path: Vec<String>,
    /// Look only in this directory of the archive
    #[arg(long, value_name = "DIRECTORY")]
    subdir: Option<String>,
    /// What the names of the directories in the store end in; else upload
    #[arg(long, value_name = "TEXT")]
    suffix: Option<String>,
    /// Install only if the archive is the one that --preview showed
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    /// Say what would be installed
    #[arg(long)]
    preview: bool,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Installs skills, and writes the name of each.
pub(crate) fn main(options: &InstallOptions) -> Result<u8, Fault> {
    let answer = ask(&options.server, async |client| options.send(client).await)?;
    if options.format.json {
        return listing::write_json(&answer);
    }
    let text = if options.preview { preview_text(&answer) } else { names(&answer) };
    listing::write_out(text.as_bytes())
}

impl InstallOptions {
    async fn send(&self, client: &Client) -> Result<Value, Fault> {
        let mut fields = self.fields();
        let answer = match self.place()? {
            SkillSource::Archive(bytes, filename) => {
                fields.insert("filename".to_owned(), filename.into());
                let verb = if self.preview { "preview" } else { "install" };
                let path = format!("/v1/skills/{verb}?{}", query(&fields));
                patiently("sending", client.post_bytes(&path, "application/zip", bytes)).await?
            }
            SkillSource::Named(field, text) => {
                fields.insert(field.to_owned(), text.into());
                fields.insert("preview".to_owned(), self.preview.into());
                patiently("fetching", client.post("/v1/skills/fetch", &fields.into())).await?
            }
        };
        answer.json()
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let paths = (!self.path.is_empty()).then(|| self.path.join(","));
        let given = [
            ("source_paths", &paths),
            ("source_subdir", &self.subdir),
            ("target_suffix", &self.suffix),
            ("digest", &self.digest),
        ];
        for (name, value) in given {
            fields.extend(value.clone().map(|value| (name.to_owned(), json!(value))));
        }
        fields
    }

    fn place(&self) -> Result<SkillSource, Fault> {
        if self.source.contains("://") {
            return Ok(SkillSource::Named("url", self.source.clone()));
        }
        let path = Path::new(&self.source);
        // What is not here may be on the server's machine.
        if path.is_dir() || (path.is_absolute() && !path.exists()) {
            let absolute = std::path::absolute(path).map_err(|error| unreadable(&self.source, &error))?;
            return Ok(SkillSource::Named("directory", absolute.to_string_lossy().into_owned()));
        }
        let file = std::fs::File::open(path).map_err(|error| unreadable(&self.source, &error))?;
        let mut bytes = Vec::new();
        file.take(ARCHIVE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| unreadable(&self.source, &error))?;
        let filename = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(SkillSource::Archive(bytes, filename))
    }
}

/// Where the skills are.
enum SkillSource {
    /// Here, in an archive of this name.
    Archive(Vec<u8>, String),
    /// Where the server can find them.
    Named(&'static str, String),
}

fn unreadable(source: &str, error: &std::io::Error) -> Fault {
    Fault::new(format!("{source} cannot be read: {error}"))
}

fn query(fields: &Map<String, Value>) -> String {
    let pair = |(name, value): (&String, &Value)| format!("{name}={}", encoded(value.as_str().unwrap_or_default()));
    fields.iter().map(pair).collect::<Vec<_>>().join("&")
}

fn names(skills: &Value) -> String {
    let name = |skill: &Value| format!("{}\n", visible(skill["name"].as_str().unwrap_or_default()));
    skills.as_array().into_iter().flatten().map(name).collect()
}

fn preview_text(answer: &Value) -> String {
    let mut table = crate::table::Table::new(&["PATH", "NAME", "DESCRIPTION"]);
    for skill in answer["skills"].as_array().into_iter().flatten() {
        let text = |field: &str| skill[field].as_str().unwrap_or_default().to_owned();
        let path = Some(text("source_path")).filter(|path| !path.is_empty()).unwrap_or_else(|| ".".to_owned());
        table.row([path, text("name"), text("description").chars().take(60).collect()]);
    }
    format!("{}\ndigest {}\n", table.render(), visible(answer["digest"].as_str().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_a_query() {
        let fields = Map::from_iter([("a".to_owned(), json!("x y/z")), ("b".to_owned(), json!("&"))]);
        assert_eq!(query(&fields), "a=x%20y%2Fz&b=%26");
    }

    #[test]
    fn a_preview_is_a_table_and_a_digest() {
        let answer =
            json!({ "digest": "sha256:1", "skills": [{ "name": "a", "source_path": "", "description": "d" }] });
        let shown = anstream::adapter::strip_str(&preview_text(&answer)).to_string();
        assert_eq!(shown, "PATH  NAME  DESCRIPTION\n.     a     d\n\ndigest sha256:1\n");
    }
}
