//! Skills through the door: whose they are, and how archives come.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;

async fn create(scene: &Scene, name: &str) -> std::result::Result<Value, String> {
    let skill = json!({ "name": name, "description": "d", "instructions": "do it\n" });
    scene.ask(1, "box_create_skill", json!({ "skill": skill })).await
}

#[tokio::test]
async fn skills_are_made_changed_and_removed() {
    let scene = Scene::tenant().await;
    let made = create(&scene, "tables").await.unwrap();
    let root = scene.directory.path().canonicalize().unwrap();
    let TenancyScope::Workspace { namespace, .. } = place(1) else { unreachable!() };
    let package = root.join("skills/tenants").join(namespace).join("tables");
    assert_eq!(made["skill"]["package_root"], json!(package));
    assert!(create(&scene, "tables").await.unwrap_err().contains("already exists"));
    let change = json!({ "name": "tables", "skill": { "description": "other" } });
    let changed = scene.ask(1, "box_update_skill", change).await.unwrap();
    assert_eq!(changed["skill"]["description"], "other");
    let written = json!({ "name": "tables", "path": "./a/b.txt", "content": "hé" });
    let written = scene.ask(1, "box_write_skill_file", written).await.unwrap();
    assert_eq!(written, json!({ "skill": { "name": "tables" }, "path": "a/b.txt", "bytes_written": 3 }));
    let read = scene.ask(1, "box_read_skill_file", json!({ "name": "tables", "path": "a/b.txt" })).await.unwrap();
    assert_eq!(read["content"], "hé");
    let files = scene.ask(1, "box_list_skill_files", json!({ "name": "tables", "path": "a", "max_entries": 5 })).await;
    insta::assert_json_snapshot!(files.unwrap());
    let scanned = scene.ask(1, "box_scan_skill_directory", json!({ "path": package })).await.unwrap();
    assert_eq!(scanned["name"], "tables");
    let listed = scene.ask(1, "box_list_skills", json!({})).await.unwrap();
    assert_eq!(listed["skills"].as_array().unwrap().len(), 1);
    let deleted = scene.ask(1, "box_delete_skill", json!({ "name": "tables" })).await;
    assert_eq!(deleted, Ok(json!({ "deleted": "tables" })));
    assert_eq!(scene.ask(1, "box_get_skill", json!({ "name": "tables" })).await, Ok(json!({ "skill": null })));
}

#[tokio::test]
async fn skills_outlive_generations_and_belong_to_one_workspace() {
    let scene = Scene::tenant().await;
    create(&scene, "tables").await.unwrap();
    let later = scene.ask(2, "box_get_skill", json!({ "name": "tables" })).await.unwrap();
    assert_eq!(later["skill"]["name"], "tables");
    let mut other = context(1);
    other["workspace_uuid"] = json!("other");
    let reply = scene.send("box_list_skills", json!({}), Some(other)).await.unwrap();
    assert_eq!(told(reply), Ok(json!({ "skills": [] })));
}

#[tokio::test]
async fn clients_that_name_nothing_never_reach_the_skills_of_workspaces() {
    let scene = Scene::tenant().await;
    create(&scene, "tables").await.unwrap();
    let legacy = Scene { connection: Connection::new(Client::Legacy, 1 << 20), ..scene };
    let own = json!({ "skill": { "name": "own", "instructions": "x" } });
    legacy.host("box_create_skill", own).await.unwrap();
    let listed = legacy.host("box_list_skills", json!({})).await.unwrap();
    assert_eq!(listed["skills"].as_array().unwrap().len(), 1);
    assert_eq!(legacy.host("box_get_skill", json!({ "name": "tables" })).await, Ok(json!({ "skill": null })));
    for (action, data) in [
        ("box_delete_skill", json!({ "name": "tables" })),
        ("box_delete_skill", json!({ "name": "tenants" })),
        ("box_update_skill", json!({ "name": "tables", "skill": {} })),
        ("box_read_skill_file", json!({ "name": "tables", "path": "SKILL.md" })),
        ("box_write_skill_file", json!({ "name": "tables", "path": "x" })),
        ("box_list_skill_files", json!({ "name": "tables" })),
        ("box_create_skill", json!({ "skill": { "name": "tenants" } })),
    ] {
        let fault = legacy.host(action, data).await.unwrap_err();
        assert!(fault.starts_with("BoxValidationError: "), "{action}: {fault}");
    }
    let mut connection = Connection::new(Client::Tenant(instance()), 1 << 20);
    connection.reply_bytes_max = 1;
    let tenant = Scene { connection, ..legacy };
    let still = tenant.ask(1, "box_get_skill", json!({ "name": "tables" })).await.unwrap();
    assert_eq!(still["skill"]["name"], "tables");
}

#[tokio::test]
async fn errors_depend_on_where_skills_are_and_on_the_age_of_the_client() {
    let scene = Scene::tenant().await;
    let root = scene.directory.path().canonicalize().unwrap().join("skills");
    let TenancyScope::Workspace { namespace, .. } = place(1) else { unreachable!() };
    let of_workspace = root.join("tenants").join(namespace);
    create(&scene, "tables").await.unwrap();
    std::fs::write(of_workspace.join("tables/data.bin"), [0xff, 0xfe]).unwrap();
    std::fs::create_dir(of_workspace.join("taken")).unwrap();
    let binary = json!({ "name": "tables", "path": "data.bin" });
    let newer = scene.ask(1, "box_read_skill_file", binary.clone()).await;
    assert_eq!(newer, Err("BoxValidationError: Skill file data.bin is not valid UTF-8 text".into()));
    let taken = format!("BoxValidationError: Skill directory already exists: {}", of_workspace.join("taken").display());
    assert_eq!(create(&scene, "taken").await, Err(taken));

    let legacy = Scene { connection: Connection::new(Client::Legacy, 1 << 20), ..scene };
    let own = json!({ "skill": { "name": "tables", "instructions": "x" } });
    legacy.host("box_create_skill", own).await.unwrap();
    std::fs::write(root.join("tables/data.bin"), [0xff, 0xfe]).unwrap();
    let older = legacy.host("box_read_skill_file", binary).await;
    assert_eq!(older, Err("BoxValidationError: Skill file is not valid UTF-8 text: data.bin".into()));
}

#[tokio::test]
async fn what_is_missing_or_wrong_is_named() {
    let scene = Scene::tenant().await;
    assert_eq!(scene.ask(1, "box_get_skill", json!({})).await, Err("KeyError: 'name'".into()));
    assert_eq!(scene.ask(1, "box_create_skill", json!({})).await, Err("KeyError: 'skill'".into()));
    let fault = create(&scene, "not good").await.unwrap_err();
    assert!(fault.starts_with("BoxValidationError: ") && fault.contains("can only contain"), "{fault}");
}

#[tokio::test]
async fn an_archive_comes_in_pieces_and_is_used_once() {
    let scene = Scene::tenant().await;
    let text = b"---\nname: zipped\n---\nhello\n";
    let archive = stored_zip("SKILL.md", text);
    let key = format!("ft1_{}.zip", "0".repeat(64));
    let chunk = json!({
        "file_key": key, "file_length": archive.len(), "chunk_base64": STANDARD.encode(&archive), "chunk_index": 0,
        "chunk_amount": 1, "chunk_size": archive.len(),
    });
    let data = json!({ "file_key": key, "filename": "my skill.zip", "source_subdir": "", "target_suffix": "upload" });
    assert_eq!(scene.host("__file_chunk", chunk.clone()).await, Ok(json!({})));
    let preview = scene.ask(1, "box_preview_skill_zip", data.clone()).await.unwrap();
    assert_eq!(preview["skills"][0]["source_path"], "");
    assert!(scene.ask(1, "box_install_skill_zip", data.clone()).await.unwrap_err().contains("not found"));
    scene.host("__file_chunk", chunk).await.unwrap();
    let installed = scene.ask(1, "box_install_skill_zip", data).await.unwrap();
    let package = installed["skills"][0]["package_root"].as_str().unwrap();
    assert!(package.ends_with("/my-skill-upload"), "{package}");
}

/// An archive of one file that is not compressed.
fn stored_zip(name: &str, bytes: &[u8]) -> Vec<u8> {
    let (length, name_length) = (u32::try_from(bytes.len()).unwrap(), u16::try_from(name.len()).unwrap());
    let mut common = Vec::new();
    for number in [20_u16, 0, 0, 0, 0] {
        common.extend(number.to_le_bytes());
    }
    for number in [checksum(bytes), length, length] {
        common.extend(number.to_le_bytes());
    }
    common.extend(name_length.to_le_bytes());
    common.extend([0; 2]);
    let local = [b"PK\x03\x04", &common[..], name.as_bytes(), bytes].concat();
    let central = [b"PK\x01\x02\x14\x00", &common[..], &[0; 14], name.as_bytes()].concat();
    let mut end = b"PK\x05\x06\0\0\0\0\x01\0\x01\0".to_vec();
    end.extend(u32::try_from(central.len()).unwrap().to_le_bytes());
    end.extend(u32::try_from(local.len()).unwrap().to_le_bytes());
    end.extend([0; 2]);
    [local, central, end].concat()
}

fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

/// LangBot up to 4.10.6 registers prepared skills: it scans the host directory, and creates a skill from it.
#[tokio::test]
async fn clients_that_name_nothing_take_skills_from_directories_that_they_may_mount() {
    let (scene, work) = (Scene::new(Client::Legacy).await, tempfile::tempdir().unwrap());
    let root = work.path().canonicalize().unwrap();
    let package = root.join("default/mine");
    std::fs::create_dir_all(&package).unwrap();
    std::fs::write(package.join("SKILL.md"), "---\nname: prepared\n---\nDo it.\n").unwrap();
    let scan = async |path: &std::path::Path| scene.host("box_scan_skill_directory", json!({ "path": path })).await;
    let register = async |name: &str, path: &std::path::Path| {
        let skill = json!({ "name": name, "instructions": "", "package_root": path });
        scene.host("box_create_skill", json!({ "skill": skill })).await
    };
    let refused = scan(&package).await.unwrap_err();
    assert!(refused.starts_with("BoxValidationError: scan path ") && refused.contains("cannot be used"), "{refused}");
    scene.host("box_init", json!({ "local": { "host_root": root } })).await.unwrap();
    let scanned = scan(&package).await.unwrap();
    assert_eq!((&scanned["name"], &scanned["package_root"]), (&json!("prepared"), &json!(package)));
    let made = register("mine", &package).await.unwrap();
    assert_eq!((&made["skill"]["name"], &made["skill"]["instructions"]), (&json!("mine"), &json!("Do it.\n")));
    assert_eq!(made["skill"]["package_root"], json!(root.join("skills/mine")));
    let missing = scan(&root.join("default/none")).await.unwrap_err();
    assert!(missing.ends_with(&format!("Directory does not exist: {}", root.join("default/none").display())));
    std::os::unix::fs::symlink("/etc", package.join("way")).unwrap();
    let state = scene.directory.path().canonicalize().unwrap();
    for path in [std::path::Path::new("/etc"), &package.join("way"), &state, &root, &root.join("skills/tenants")] {
        for refused in [scan(path).await, register("other", path).await] {
            let refused = refused.unwrap_err();
            let is_told =
                ["blocked for security", "cannot be used", "must stay within"].iter().any(|it| refused.contains(it));
            assert!(refused.starts_with("BoxValidationError: ") && is_told, "{}: {refused}", path.display());
        }
    }
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(outside.path().join("there")).unwrap();
    let mut refusals = std::collections::BTreeSet::new();
    for name in ["there", "missing"] {
        let detour = outside.path().join(name).join("../".repeat(20)).join(package.strip_prefix("/").unwrap());
        let refused = scan(&detour).await.unwrap_err();
        refusals.insert(refused.replace(&detour.display().to_string(), "PATH"));
    }
    assert_eq!(refusals.len(), 1, "they differ by what exists outside: {refusals:?}");
    let tenant = Scene { connection: Connection::new(Client::Tenant(instance()), 1 << 20), ..scene };
    let refused = tenant.ask(1, "box_scan_skill_directory", json!({ "path": package })).await.unwrap_err();
    assert_eq!(refused, "BoxValidationError: scan path must stay within the Workspace skill root");
}
