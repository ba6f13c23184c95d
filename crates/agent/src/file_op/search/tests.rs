use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use box_wire::file_op::Match;
use box_wire::{Answer, FileErrorCode};

use super::super::place::FileTree;
use super::*;

struct Tree {
    _directory: tempfile::TempDir,
    root: PathBuf,
    place: FileTree,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let place = FileTree::new(&root.to_str().unwrap().parse().unwrap()).unwrap();
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { _directory: directory, root, place }
    }

    fn path(&self, below: &str) -> GuestPath {
        self.root.join(below).to_str().unwrap().parse().unwrap()
    }

    /// Paths below the root, and whether there are more.
    fn glob(&self, below: &str, pattern: &str, matches_max: u32) -> (Vec<String>, bool) {
        match glob(&self.place, &self.path(below), pattern, matches_max).unwrap() {
            Answer::Found { paths, truncated } => (paths.iter().map(|path| self.below(path)).collect(), truncated),
            other => panic!("{other:?}"),
        }
    }

    fn grep_with(&self, below: &str, question: &Question<'_>) -> (Vec<Match>, bool, u64) {
        match grep(&self.place, &self.path(below), question).unwrap() {
            Answer::Matched { matches, truncated, skipped } => (matches, truncated, skipped),
            other => panic!("{other:?}"),
        }
    }

    /// Paths and lines of all matches.
    fn grep(&self, below: &str, pattern: &str, include: Option<&str>) -> Vec<String> {
        let question = Question { pattern, include, ignore_case: false, matches_max: 100 };
        let (matches, ..) = self.grep_with(below, &question);
        matches.iter().map(|one| format!("{}:{}", self.below(&one.path), one.line)).collect()
    }

    fn below(&self, path: &str) -> String {
        Path::new(path).strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned()
    }
}

#[test]
fn the_newest_files_come_first_and_what_is_left_out_is_told() {
    let tree =
        Tree::new(&[("a.rs", ""), ("d/b.rs", ""), ("d/e/c.rs", ""), ("d/x.py", ""), (".h.rs", ""), (".git/g.rs", "")]);
    let now = SystemTime::now();
    for (name, age) in [("a.rs", 30), ("d/b.rs", 10), ("d/e/c.rs", 20)] {
        let file = fs::File::options().write(true).open(tree.root.join(name)).unwrap();
        file.set_modified(now - Duration::from_secs(age)).unwrap();
    }
    let all = ["d/b.rs", "d/e/c.rs", "a.rs"].map(str::to_owned);
    assert_eq!(tree.glob("", "**/*.rs", 3), (all.to_vec(), false));
    assert_eq!(tree.glob("", "**/*.rs", 2), (all[..2].to_vec(), true));
    assert_eq!(tree.glob("d", "*.rs", 9), (vec!["d/b.rs".to_owned()], false));
    assert_eq!(tree.glob("", &format!("{}/d/*.py", tree.root.display()), 9), (vec!["d/x.py".to_owned()], false));
    assert_eq!(tree.glob("", ".git/*", 9), (vec![".git/g.rs".to_owned()], false));
    assert_eq!(tree.glob("", "**/.h*", 9), (vec![".h.rs".to_owned()], false));
}

#[test]
fn names_are_found_although_they_are_ignored_and_links_are_not_followed() {
    let tree = Tree::new(&[(".gitignore", "*.log"), (".git/HEAD", ""), ("x.log", ""), ("d/y.log", "")]);
    symlink("/", tree.root.join("all")).unwrap();
    symlink(&tree.root, tree.root.join("again")).unwrap();
    symlink("x.log", tree.root.join("link.log")).unwrap();
    let (mut paths, truncated) = tree.glob("", "**/*.log", 9);
    paths.sort_unstable();
    assert_eq!((paths, truncated), (vec!["d/y.log".to_owned(), "x.log".to_owned()], false));
    let refused = glob(&tree.place, &tree.path("all"), "*", 1).unwrap_err();
    assert_eq!(refused.code, FileErrorCode::PathEscapes);
    assert_eq!(glob(&tree.place, &tree.path("x.log"), "*", 1).unwrap_err().code, FileErrorCode::NotDirectory);
}

#[test]
fn lines_are_told_by_path_and_number() {
    let tree = Tree::new(&[("b.txt", "no\nneedle one\r\n"), ("a/x.rs", "needle\n\nmy needle"), ("c.py", "Needle")]);
    assert_eq!(tree.grep("", "needle", None), ["a/x.rs:1", "a/x.rs:3", "b.txt:2"]);
    assert_eq!(tree.grep("", "needle", Some("*.{rs,py}")), ["a/x.rs:1", "a/x.rs:3"]);
    assert_eq!(tree.grep("", "needle", Some("a/*")), ["a/x.rs:1", "a/x.rs:3"]);
    assert_eq!(tree.grep("a", "^needle$", None), ["a/x.rs:1"]);
    assert_eq!(tree.grep("b.txt", "needle", None), ["b.txt:2"]);
    let question = Question { pattern: "NEEDLE", include: None, ignore_case: true, matches_max: 3 };
    let (matches, truncated, skipped) = tree.grep_with("", &question);
    assert_eq!((matches.len(), truncated, skipped), (3, true, 0));
    let question = Question { matches_max: 4, ..question };
    let (matches, truncated, _) = tree.grep_with("", &question);
    assert_eq!((matches.len(), truncated), (4, false));
    assert_eq!(matches[2].text, "needle one");
}

#[test]
fn what_is_ignored_hidden_or_binary_is_left_out() {
    let tree = Tree::new(&[
        (".git/HEAD", "needle"),
        (".git/info/exclude", "excluded\n"),
        (".gitignore", "*.log\n/top\nbuilt/\n"),
        (".hidden", "needle"),
        ("binary", "\0needle"),
        ("built/x", "needle"),
        ("d/.gitignore", "!wanted.log\n!.shown\n"),
        ("d/.shown", "needle"),
        ("d/top", "needle"),
        ("d/wanted.log", "needle"),
        ("excluded", "needle"),
        ("plain", "needle"),
        ("top", "needle"),
        ("x.log", "needle"),
        ("y/.ignore", "!x.log\nz\n"),
        ("y/x.log", "needle"),
        ("y/z", "needle"),
    ]);
    assert_eq!(tree.grep("", "needle", None), ["d/.shown:1", "d/top:1", "d/wanted.log:1", "plain:1", "y/x.log:1"]);
    assert_eq!(tree.grep("", "needle", Some(".hidden")), [".hidden:1"]);
    // Rules of directories above count below; what is named itself is searched in any case.
    assert_eq!(tree.grep("d", "needle", None), ["d/.shown:1", "d/top:1", "d/wanted.log:1"]);
    assert_eq!(tree.grep("y", "needle", None), ["y/x.log:1"]);
    assert_eq!(tree.grep("x.log", "needle", None), ["x.log:1"]);
    let question = Question { pattern: "needle", include: None, ignore_case: false, matches_max: 1 };
    assert_eq!(grep(&tree.place, &tree.path("binary"), &question).unwrap_err().code, FileErrorCode::Binary);
}

#[test]
fn rules_of_git_do_not_count_outside_of_repositories_and_not_across_them() {
    let tree = Tree::new(&[(".gitignore", "a"), ("a", "needle"), ("r/.git/HEAD", ""), ("r/.gitignore", "b")]);
    fs::write(tree.root.join("r/a"), "needle").unwrap();
    fs::write(tree.root.join("r/b"), "needle").unwrap();
    assert_eq!(tree.grep("", "needle", None), ["a:1", "r/a:1"]);
}

#[test]
fn a_line_that_does_not_fit_into_memory_is_skipped_and_told() {
    let tree = Tree::new(&[("small", "needle")]);
    let long = fs::File::create(tree.root.join("long")).unwrap();
    for _ in 0..20 {
        std::io::Write::write_all(&mut &long, &vec![b'a'; 1 << 20]).unwrap();
    }
    let question = Question { pattern: "needle", include: None, ignore_case: false, matches_max: 10 };
    let (matches, truncated, skipped) = tree.grep_with("", &question);
    assert_eq!((matches.len(), truncated, skipped), (1, false, 1));
}

#[test]
fn a_tree_deeper_than_any_path_is_searched_to_its_bottom() {
    const LEVELS: usize = 400;
    const NAME: &str = "twelve-bytes";
    let tree = Tree::new(&[]);
    let mut directory = fs::File::open(&tree.root).unwrap();
    for _ in 0..LEVELS {
        rustix::fs::mkdirat(&directory, NAME, rustix::fs::Mode::RWXU).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        directory = rustix::fs::openat(&directory, NAME, flags, rustix::fs::Mode::empty()).unwrap().into();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file =
        rustix::fs::openat(&directory, "bottom", flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    rustix::io::write(&file, b"needle\n").unwrap();
    let (paths, truncated) = tree.glob("", "**/bottom", 10);
    assert_eq!((paths.len(), truncated), (1, false));
    assert_eq!(paths[0].len(), LEVELS * (NAME.len() + 1) + "bottom".len());
    assert_eq!(tree.grep("", "needle", None).len(), 1);
}

#[test]
fn many_files_in_one_directory_are_all_found_by_several_threads() {
    const FILES: usize = 5000;
    let tree = Tree::new(&[]);
    for number in 0..FILES {
        fs::write(tree.root.join(format!("f{number}")), if number % 2 == 0 { "needle" } else { "straw" }).unwrap();
    }
    let question = Question { pattern: "needle", include: None, ignore_case: false, matches_max: 9000 };
    let (matches, truncated, skipped) = tree.grep_with("", &question);
    assert_eq!((matches.len(), truncated, skipped), (FILES / 2, false, 0));
    assert!(matches.is_sorted_by(|one, other| one.path < other.path));
    let (paths, truncated) = tree.glob("", "*", 100);
    assert_eq!((paths.len(), truncated), (100, true));
}

#[test]
fn an_answer_never_grows_beyond_what_may_be_told() {
    let mut items = vec!["x".repeat(1 << 20); 10];
    assert!(!fit(&mut items, String::len));
    assert_eq!(items.len(), 6);
    assert!(fit(&mut items, String::len));
}
