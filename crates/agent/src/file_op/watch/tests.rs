use std::fs;
use std::path::Path;

use super::super::place::ground::Ground;
use super::*;

/// The reported changes of a tree, with names below it.
fn told(watcher: &mut Watcher<'_>) -> Vec<(ChangeKind, String)> {
    watcher.take().unwrap();
    let top = watcher.path.to_string();
    let below = |path: String| path.strip_prefix(&top).unwrap().trim_start_matches('/').to_owned();
    watcher.changes.drain(..).map(|change| (change.what, below(change.path))).collect()
}

fn expect(watcher: &mut Watcher<'_>, expected: &[(ChangeKind, &str)]) {
    let told = told(watcher);
    let told: Vec<_> = told.iter().map(|(what, path)| (*what, path.as_str())).collect();
    assert_eq!(told, expected);
}

#[test]
fn each_kind_of_change_is_told() {
    let ground = Ground::new();
    let file = ground.tree.join("file");
    let mut watcher = Watcher::new(&ground.place, &ground.path(""), false, Moves::Alike).unwrap();
    fs::write(&file, "x").unwrap();
    expect(&mut watcher, &[(ChangeKind::Created, "file"), (ChangeKind::Written, "file")]);
    fs::set_permissions(&file, fs::metadata(&file).unwrap().permissions()).unwrap();
    expect(&mut watcher, &[(ChangeKind::Attributes, "file")]);
    fs::rename(&file, ground.tree.join("new")).unwrap();
    expect(&mut watcher, &[(ChangeKind::Renamed, "file"), (ChangeKind::Renamed, "new")]);
    fs::remove_file(ground.tree.join("new")).unwrap();
    expect(&mut watcher, &[(ChangeKind::Removed, "new")]);
    fs::remove_dir(&ground.tree).unwrap();
    expect(&mut watcher, &[(ChangeKind::Removed, "")]);
    assert!(watcher.ended);
}

#[test]
fn new_and_moved_directories_are_watched_and_lost_ones_not() {
    let ground = Ground::new();
    let make = |path: &Path| fs::create_dir(path).unwrap();
    let mut watcher = Watcher::new(&ground.place, &ground.path(""), true, Moves::Alike).unwrap();
    make(&ground.tree.join("a"));
    make(&ground.tree.join("a/b"));
    expect(&mut watcher, &[(ChangeKind::Created, "a"), (ChangeKind::Created, "a/b")]);
    fs::write(ground.tree.join("a/b/file"), "").unwrap();
    expect(&mut watcher, &[(ChangeKind::Created, "a/b/file")]);
    fs::rename(ground.tree.join("a"), ground.tree.join("z")).unwrap();
    fs::write(ground.tree.join("z/b/second"), "").unwrap();
    expect(
        &mut watcher,
        &[(ChangeKind::Renamed, "a"), (ChangeKind::Renamed, "z"), (ChangeKind::Created, "z/b/second")],
    );
    fs::rename(ground.tree.join("z"), ground.outside("z")).unwrap();
    fs::write(ground.outside("z/b/third"), "").unwrap();
    expect(&mut watcher, &[(ChangeKind::Renamed, "z")]);
    fs::rename(ground.outside("z"), ground.tree.join("back")).unwrap();
    fs::write(ground.tree.join("back/b/fourth"), "").unwrap();
    expect(&mut watcher, &[(ChangeKind::Renamed, "back")]);
    fs::write(ground.tree.join("back/b/fifth"), "").unwrap();
    expect(&mut watcher, &[(ChangeKind::Created, "back/b/fifth")]);
}

#[test]
fn a_single_file_is_watched_by_its_name() {
    let ground = Ground::new();
    fs::write(ground.tree.join("file"), "").unwrap();
    std::os::unix::fs::symlink("file", ground.tree.join("link")).unwrap();
    let mut watcher = Watcher::new(&ground.place, &ground.path("link"), true, Moves::Alike).unwrap();
    fs::write(ground.tree.join("other"), "x").unwrap();
    fs::write(ground.tree.join("file"), "x").unwrap();
    expect(&mut watcher, &[(ChangeKind::Written, "")]);
}

#[test]
fn more_directories_than_can_be_watched_are_told_as_missed() {
    let ground = Ground::new();
    for number in 0..=DIRECTORIES_MAX {
        fs::create_dir(ground.tree.join(number.to_string())).unwrap();
    }
    let mut watcher = Watcher::new(&ground.place, &ground.path(""), true, Moves::Alike).unwrap();
    assert!(told(&mut watcher).contains(&(ChangeKind::Missed, String::new())));
}

#[test]
fn the_names_of_a_move_are_told_apart_to_who_follows() {
    let ground = Ground::new();
    fs::write(ground.tree.join("old"), "").unwrap();
    let mut watcher = Watcher::new(&ground.place, &ground.path(""), true, Moves::Apart).unwrap();
    fs::rename(ground.tree.join("old"), ground.tree.join("new")).unwrap();
    expect(&mut watcher, &[(ChangeKind::Left, "old"), (ChangeKind::Arrived, "new")]);
    fs::rename(ground.tree.join("new"), ground.outside("new")).unwrap();
    expect(&mut watcher, &[(ChangeKind::Left, "new")]);
    fs::rename(ground.outside("new"), ground.tree.join("back")).unwrap();
    expect(&mut watcher, &[(ChangeKind::Arrived, "back")]);
}

#[test]
fn what_is_there_after_a_change_is_told_as_long_as_it_is() {
    let ground = Ground::new();
    fs::write(ground.tree.join("file"), "text").unwrap();
    let teller = Teller::new(&ground.place, None);
    let told = |what, name: &str| {
        let path = ground.path(name).to_string();
        detail(&ground.place, &teller, &Change { what, path, is_directory: false })
    };
    assert_eq!(told(ChangeKind::Written, "file").unwrap().entry.size, 4);
    assert!(told(ChangeKind::Left, "file").is_none() && told(ChangeKind::Created, "none").is_none());
}
