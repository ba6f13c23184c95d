//! Every route of the document was asked by some case of this suite, whichever program ran the case.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use box_tests::suite::Shard;
use box_tests::{TestServer, http, report};

/// Where the program of a shard leaves what its cases asked.
fn file(shard: usize) -> PathBuf {
    report::directory().join(format!("asked-{shard}.json"))
}

/// Leaves what the cases of this program asked for the program that looks at all of them.
pub(crate) fn keep(shard: Shard) -> Result<()> {
    let path = file(shard.number);
    let text = serde_json::to_string(&http::asked())?;
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// What the cases of this program and of the shards before it asked.
fn asked() -> Result<BTreeSet<(String, String)>> {
    let mut all = http::asked();
    for shard in 1.. {
        let Ok(text) = std::fs::read_to_string(file(shard)) else { break };
        all.extend(serde_json::from_str::<BTreeSet<_>>(&text)?);
    }
    Ok(all)
}

/// Paths and methods of the document that no case requested.
pub(crate) async fn every_route_of_the_document_was_asked() -> Result<()> {
    let server = TestServer::start().await?;
    let client = server.client()?;
    let document = client.get("/openapi.json").await?.must(200)?;
    let paths = document["paths"].as_object().context("no paths")?;
    let asked = asked()?;
    let mut forgotten = BTreeSet::new();
    for (template, methods) in paths {
        for method in methods.as_object().context("no methods")?.keys() {
            let is_asked = asked.iter().any(|(verb, path)| verb.eq_ignore_ascii_case(method) && fits(template, path));
            if !is_asked {
                forgotten.insert(format!("{method} {template}"));
            }
        }
    }
    ensure!(paths.len() > 25, "the document has only {} paths", paths.len());
    ensure!(forgotten.is_empty(), "no case asks {forgotten:?}");
    server.finish().await
}

fn fits(template: &str, path: &str) -> bool {
    let (template, path): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
    let same = |(part, given): (&&str, &&str)| part.starts_with('{') || part == given;
    template.len() == path.len() && template.iter().zip(&path).all(same)
}
