use super::*;

use serde_json::{Value, json};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn descriptor(kind: &str, size: u64) -> Value {
    json!({ "mediaType": kind, "digest": Digest::of(b"x"), "size": size })
}

fn parse(document: &Value) -> Result<Document, String> {
    Document::parse(document.to_string().as_bytes()).map_err(|failure| failure.of("x").to_string())
}

fn manifest(layers: &[Value]) -> Value {
    json!({ "schemaVersion": 2, "config": descriptor("any", 2), "layers": layers })
}

#[test]
fn manifests_and_lists_are_told_apart() {
    assert!(
        matches!(parse(&manifest(&[descriptor(LAYER, 1)])), Ok(Document::Manifest(found)) if found.layers.len() == 1)
    );
    let list = json!({ "schemaVersion": 2, "manifests": [descriptor("any", 3)] });
    assert!(matches!(parse(&list), Ok(Document::Index(found)) if found.len() == 1));
}

#[test]
fn bad_manifests_are_refused_with_the_reason() {
    let mut both = manifest(&[]);
    both["manifests"] = json!([]);
    let digest = json!({ "mediaType": LAYER, "digest": "sha256:../../../etc/passwd", "size": 1 });
    let table = [
        (both, "neither"),
        (json!({}), "neither"),
        (json!([]), "cannot be read"),
        (json!({ "schemaVersion": 1 }), "has been withdrawn"),
        (manifest(&[descriptor("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", 1)]), "foreign"),
        (manifest(&[descriptor("\u{1b}[2J", 1)]), "u{1b}"),
        (manifest(&[descriptor(LAYER, 17 << 30)]), "larger than"),
        (manifest(&[descriptor(LAYER, u64::MAX), descriptor(LAYER, 2)]), "larger than"),
        (manifest(&vec![descriptor(LAYER, 1); 300]), "more than 256 layers"),
        (manifest(&[digest]), "not a digest"),
    ];
    for (document, says) in table {
        let error = parse(&document).unwrap_err();
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[test]
fn the_image_for_this_machine_is_chosen() {
    let entry = |os: &str, architecture: &str, variant: Option<&str>, of: &str| -> IndexEntry {
        let platform = json!({ "os": os, "architecture": architecture, "variant": variant });
        serde_json::from_value(json!({ "digest": Digest::of(of.as_bytes()), "size": 1, "platform": platform })).unwrap()
    };
    let list = [
        entry("unknown", "unknown", None, "attestation"),
        entry("linux", "arm64", Some("v8"), "arm"),
        entry("linux", "amd64", Some("v3"), "new"),
        entry("linux", "amd64", None, "plain"),
        entry("windows", "amd64", None, "windows"),
    ];
    assert_eq!(choose(&list).unwrap().descriptor.digest, Digest::of(b"plain"));
    assert_eq!(choose(&list[..3]).unwrap().descriptor.digest, Digest::of(b"new"));
    let error = choose(&list[..2]).unwrap_err().of("x").to_string();
    assert!(error.contains("linux/arm64") && error.contains("linux/amd64"), "{error}");
}

#[test]
fn a_configuration_names_its_layers_and_its_machine() {
    let (one, two) = (Digest::of(b"1"), Digest::of(b"2"));
    let written = json!({
        "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": [one, two] },
        "config": { "Env": ["PATH=/bin"], "User": "1000", "Entrypoint": null, "Cmd": ["sh"], "WorkingDir": "/app" },
    });
    let parse = |written: &Value, layers| {
        Config::parse(written.to_string().as_bytes(), layers).map_err(|failure| failure.of("x").to_string())
    };
    let config = parse(&written, 2).unwrap();
    assert_eq!((config.metadata.user.as_str(), config.metadata.working_dir.as_str()), ("1000", "/app"));
    assert_eq!(config.chain(), Digest::of(format!("{one} {two}").as_bytes()));
    assert!(parse(&written, 1).unwrap_err().contains("different layers"));
    let mut foreign = written.clone();
    foreign["architecture"] = json!("arm64");
    assert!(parse(&foreign, 2).unwrap_err().contains("linux/arm64"));
    let mut large = written.clone();
    large["config"]["Env"] = json!(["x".repeat(METADATA_BYTES_MAX)]);
    assert!(parse(&large, 2).unwrap_err().contains("bytes of texts"));
    let bare = json!({ "rootfs": { "diff_ids": null }, "config": null });
    assert_eq!(parse(&bare, 0).unwrap().metadata, Metadata::default());
}
