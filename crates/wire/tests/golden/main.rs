//! Checks that programs of every released version still understand each other.
//!
//! `golden/VERSION.txt` has a line for each message that a box and a server of different versions may exchange: its name, and
//! its bytes in hexadecimal. Old bytes must be read as the same message, and what is written today must still contain every
//! name and value of the old bytes, because that is what the old reader looks for. So a field or variant cannot be renamed,
//! not even with an alias. `UPDATE_GOLDEN=1 cargo test -p box-wire --test golden` appends what is missing to the file of the
//! current version. Released lines never change, which [`RELEASED`] holds. Plans are not here: an agent gets its plan from the program that
//! starts it.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod newer;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;

use box_wire::file_op::{
    self, Attributes, Change, ChangeKind, Cut, Detail, Entry, EntryKind, Happening, Lines, LinkTarget, Match, WriteHow,
};
use box_wire::frame::{self, HEADER_BYTES, Header};
use box_wire::journal::{FileName, LEFT_ALONE};
use box_wire::version::{VERSION, VERSION_MIN};
use box_wire::{
    Answer, EndRecord, Ending, Event, ExecId, ExecOutcome, ExecRequest, Exit, FileError, FileErrorCode, FileOp,
    FileRequest, GuestPath, Kind, Output, Program, ReadPosition, Refusal, RefusalCode, Request, RunningExec,
    SignalScope, Stdin, StreamName, Usage, User, WindowSize,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tree::Tree;

/// What was released: a version, how many lines its file had then, and the SHA-256 of those lines. Boxes of a release run
/// somewhere, so its messages are facts, and its entry never changes. A release that adds messages adds an entry.
const RELEASED: &[(u32, usize, &str)] = &[(1, 132, "9a79d34ef09308b2475943f115dd11c3f052104b062efe50bb1e2938b4c968dc")];

/// The lines of all versions, and those missing in the current one.
struct Golden {
    versions: BTreeMap<u32, BTreeMap<String, String>>,
    missing: String,
    seen: BTreeSet<String>,
}

fn file_of(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("golden/{version}.txt"))
}

fn framed<T: Serialize>(kind: Kind, message: &T) -> Vec<u8> {
    frame::encode(kind, message).unwrap().split_off(HEADER_BYTES)
}

fn prefixed<T: Serialize>(message: &T) -> Vec<u8> {
    file_op::encode(message).unwrap().split_off(file_op::PREFIX_BYTES)
}

fn unprefixed<T: DeserializeOwned>(bytes: &[u8]) -> T {
    file_op::decode(bytes).unwrap()
}

impl Golden {
    fn load() -> Self {
        let lines = |version| {
            let text = std::fs::read_to_string(file_of(version)).unwrap_or_default();
            let pair = |line: &str| line.split_once(' ').map(|(name, bytes)| (name.to_owned(), bytes.to_owned()));
            text.lines().filter_map(pair).collect()
        };
        let versions = (VERSION_MIN..=VERSION).map(|version| (version, lines(version))).collect();
        Self { versions, missing: String::new(), seen: BTreeSet::new() }
    }

    /// Compares a message with each version that has it, in both directions.
    fn check<T: PartialEq + Debug>(&mut self, name: &str, message: &T, bytes: &[u8], read: impl Fn(&[u8]) -> T) {
        assert_eq!(&read(bytes), message, "{name} does not come back");
        for (version, old) in self.lines_of(name) {
            assert_eq!(&read(&old), message, "{name} of version {version}");
            let (old, new): (Tree, Tree) = (unprefixed(&old), unprefixed(bytes));
            assert!(
                new.has_all_of(&old),
                "version {version} cannot read {name}:\n{new:?}\nlacks something of\n{old:?}"
            );
        }
        self.note(name, bytes);
    }

    /// Checks bytes that are no message: they stay as they are.
    fn fixed(&mut self, name: &str, bytes: &[u8]) {
        for (version, old) in self.lines_of(name) {
            assert_eq!(old, bytes, "{name} of version {version}");
        }
        self.note(name, bytes);
    }

    fn lines_of(&self, name: &str) -> Vec<(u32, Vec<u8>)> {
        let line = |(version, lines): (&u32, &BTreeMap<String, String>)| {
            lines.get(name).map(|line| (*version, from_hexadecimal(line)))
        };
        self.versions.iter().filter_map(line).collect()
    }

    fn note(&mut self, name: &str, bytes: &[u8]) {
        assert!(self.seen.insert(name.to_owned()), "{name} is there twice");
        if !self.versions[&VERSION].contains_key(name) {
            let bytes = bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
            writeln!(self.missing, "{name} {bytes}").unwrap();
        }
    }

    /// Messages of one enum; every variant must be included.
    fn variants<T: DeserializeOwned + PartialEq + Debug>(
        &mut self,
        of: &str,
        messages: &[T],
        write: impl Fn(&T) -> Vec<u8>,
        read: impl Fn(&[u8]) -> T,
    ) {
        let mut names = BTreeSet::new();
        for message in messages {
            let variant: String = format!("{message:?}").chars().take_while(char::is_ascii_alphanumeric).collect();
            self.check(&format!("{of}/{variant}"), message, &write(message), &read);
            names.insert(variant.to_lowercase());
        }
        assert_eq!(names, variants_of::<T>(), "each variant of {of} has a sample");
    }

    /// Messages of an enum of words, of which an unknown one is read as `fallback`.
    fn words<T>(&mut self, of: &str, words: &[T], fallback: &T)
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        for word in words {
            self.check(&format!("{of}/{word:?}"), word, &prefixed(word), unprefixed);
        }
        assert_eq!(&unprefixed::<T>(&prefixed(&"a-word-of-a-newer-agent")), fallback, "{of}");
    }
}

/// All values of an enum of words. A missing one is an error of the compiler.
macro_rules! every {
    ($words:ident: $($word:ident),+) => {{
        let _ = |word: $words| match word { $($words::$word => {}),+ };
        &[$($words::$word),+]
    }};
}

/// The names of all variants, which the decoder lists for an unknown one; without case, because some are renamed to another.
fn variants_of<T: DeserializeOwned + Debug>() -> BTreeSet<String> {
    let complaint = file_op::decode::<T>(&prefixed(&"no-such-variant")).unwrap_err().to_string();
    complaint.split('`').skip(3).step_by(2).map(|name| name.replace('_', "").to_lowercase()).collect()
}

fn from_hexadecimal(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn path(text: &str) -> GuestPath {
    text.parse().unwrap()
}

fn exec() -> ExecId {
    "e-1".parse().unwrap()
}

fn refusal() -> Refusal {
    Refusal { code: RefusalCode::NotFound, message: "no such program".to_owned() }
}

fn outcome() -> ExecOutcome {
    let usage = Usage { wall_us: 1, cpu_user_us: 2, cpu_system_us: 3, memory_peak_bytes: 4, ..Usage::default() };
    ExecOutcome { exit: Exit::Code(7), timed_out: false, oom_killed: true, tree_gone: true, usage }
}

fn entry() -> Entry {
    Entry {
        path: "/workspace/a".to_owned(),
        kind: EntryKind::Symlink,
        size: 3,
        mode: 0o777,
        uid: 1000,
        gid: 1000,
        modified_ns: -1,
        target: Some("b".to_owned()),
    }
}

fn detail() -> Detail {
    Detail {
        entry: entry(),
        owner: Some("user".to_owned()),
        group: None,
        leads_to: Some(LinkTarget { path: "/workspace/b".to_owned(), kind: EntryKind::File, mode: 0o644 }),
        attributes: vec![("user.name".to_owned(), "value".to_owned())],
    }
}

fn requests() -> Vec<Request> {
    let request = ExecRequest {
        env: vec![("PATH".to_owned(), "/usr/bin".to_owned())],
        cwd: path("/workspace"),
        stdin: Stdin::Stream,
        terminal: Some(WindowSize { rows: 24, columns: 80 }),
        timeout_ms: Some(30_000),
        user: Some(User::ROOT),
        output: Output::Held { bytes_max: 1 << 20 },
        ..ExecRequest::new(exec(), Program::Argv(vec!["true".to_owned(), "--help".to_owned()]))
    };
    vec![
        Request::Exec(request),
        Request::Attach { exec: exec() },
        Request::List,
        Request::Signal { exec: exec(), signal: 15, scope: SignalScope::Tree },
        Request::Kill { exec: exec() },
        Request::Ping,
        Request::Pace { exec: exec(), taken: ReadPosition { stdout_bytes: u64::MAX, stderr_bytes: 0 } },
        Request::Port { port: 8080.try_into().unwrap() },
        Request::Lease { idle_ms: 300_000, left_ms: Some(60_000) },
    ]
}

fn programs() -> Vec<Program> {
    let request = FileRequest { root: GuestPath::root(), op: FileOp::Save };
    vec![Program::Argv(vec!["true".to_owned()]), Program::Shell("true".to_owned()), Program::FileOp(Box::new(request))]
}

fn events() -> Vec<Event> {
    vec![
        Event::Started { pid: 12 },
        Event::Progress { stdout_bytes: 1, stderr_bytes: 2 },
        Event::Exited(outcome()),
        Event::Running(vec![RunningExec { id: exec(), pid: 12, stdin_open: true }]),
        Event::Refused(refusal()),
        Event::Done,
        Event::Connected,
    ]
}

fn ops() -> Vec<FileOp> {
    let file = || path("/workspace/a");
    let stat = || Box::new(FileOp::Stat { path: file() });
    let include = Some("*.rs".to_owned());
    vec![
        FileOp::Stat { path: file() },
        FileOp::List { path: file(), depth: 1, entries_max: 10 },
        FileOp::Read { path: file(), offset: 1, bytes_max: Some(2) },
        FileOp::Write { path: file(), how: WriteHow::From(3), mode: Some(0o600), bytes_max: 4 },
        FileOp::MakeDirectory { path: file(), exclusive: true },
        FileOp::Move { from: file(), to: path("/workspace/b"), replace: true },
        FileOp::Remove { path: file(), recursive: true },
        FileOp::Pack { path: file() },
        FileOp::Unpack { path: file(), bytes_max: 5 },
        FileOp::Watch { path: file(), recursive: true },
        FileOp::Measure { path: file() },
        FileOp::Lines { path: file(), first: 1, lines_max: 2, bytes_max: 3 },
        FileOp::Edit { path: file(), old: "a".to_owned(), new: "b".to_owned(), all: true },
        FileOp::Glob { path: file(), pattern: "*.rs".to_owned(), matches_max: 1 },
        FileOp::Grep { path: file(), pattern: "x".to_owned(), include, ignore_case: true, matches_max: 1 },
        FileOp::InDetail { op: stat(), attributes: Some("user.".to_owned()) },
        FileOp::Fill {
            path: file(),
            bytes_max: 1,
            attributes: Some(Attributes {
                prefix: "user.".to_owned(),
                values: vec![("name".to_owned(), "value".to_owned())],
            }),
        },
        FileOp::Relocate { from: file(), to: path("/workspace/b") },
        FileOp::Join { sources: vec![file()], path: path("/workspace/b"), bytes_max: 1 },
        FileOp::Space { path: file() },
        FileOp::Follow { path: file(), recursive: true, entries: true, attributes: None },
        FileOp::OnBehalf { op: stat(), owner: User::ROOT },
        FileOp::Reach { path: file() },
        FileOp::Adjust { path: file(), mode: Some(0o600), uid: Some(1), gid: None },
        FileOp::Save,
        FileOp::FillMany { files: vec![(file(), 3)], attributes: None },
    ]
}

fn answers() -> Vec<Answer> {
    let lines = Lines { text: "a\n".to_owned(), first: 1, count: 1, total: Some(2), cut: Some(Cut::Lines) };
    let found = Match { path: "/workspace/a".to_owned(), line: 3, text: "x".to_owned() };
    vec![
        Answer::Done,
        Answer::Entry(entry()),
        Answer::Entries { entries: vec![entry()], truncated: true },
        Answer::Unpacked { entries: 1, bytes: 2 },
        Answer::Size { bytes: 1, inodes: 2, partial: true },
        Answer::Lines(lines),
        Answer::Edited { replacements: 2 },
        Answer::Found { paths: vec!["/workspace/a".to_owned()], truncated: false },
        Answer::Matched { matches: vec![found], truncated: false, skipped: 1 },
        Answer::Detail(Box::new(detail())),
        Answer::Details { entries: vec![detail()], truncated: false },
        Answer::Space { total_bytes: 2, free_bytes: 1 },
    ]
}

/// Enums whose variants stand within other messages.
fn parts(golden: &mut Golden) {
    golden.variants("Exit", &[Exit::Code(-1), Exit::Signal(9)], prefixed, unprefixed);
    golden.variants("SignalScope", &[SignalScope::Main, SignalScope::Tree], prefixed, unprefixed);
    golden.variants("Stdin", &[Stdin::Null, Stdin::Stream], prefixed, unprefixed);
    let output = [Output::Stream, Output::Journal { bytes_max: 1 }, Output::Held { bytes_max: 2 }];
    golden.variants("Output", &output, prefixed, unprefixed);
    golden.variants("WriteHow", &[WriteHow::Replace, WriteHow::Create, WriteHow::From(3)], prefixed, unprefixed);
    golden.words("EntryKind", every!(EntryKind: File, Directory, Symlink, Other), &EntryKind::Other);
    golden.variants("Cut", &[Cut::Lines, Cut::Bytes], prefixed, unprefixed);
    let changes = every!(ChangeKind: Created, Written, Renamed, Attributes, Removed, Missed, Left, Arrived);
    golden.words("ChangeKind", changes, &ChangeKind::Missed);
    let refusals = every!(
        RefusalCode: NotFound, NotExecutable, BadWorkdir, OutOfProcesses, BadExecId, BadRequest, Internal, PortClosed
    );
    golden.words("RefusalCode", refusals, &RefusalCode::Internal);
    let errors = every!(
        FileErrorCode: NotFound, PathEscapes, InvalidPath, SymlinkRefused, IsDirectory, NotDirectory, NotRegular, Exists,
        NotEmpty, Denied, ReadOnly, NoSpace, TooLarge, Binary, NoMatch, Ambiguous, InvalidPattern, PatternTooComplex,
        BadArchive, Timeout, Failed, Unsupported
    );
    golden.words("FileErrorCode", errors, &FileErrorCode::Failed);
}

/// What is read before any message: headers of frames, and names of the files of a journal.
fn envelopes(golden: &mut Golden) {
    let kinds = [
        Kind::Request,
        Kind::Stdin,
        Kind::StdinEnd,
        Kind::Resize,
        Kind::Taken,
        Kind::Event,
        Kind::Stdout,
        Kind::Stderr,
    ];
    for kind in kinds {
        let header = Header::new(kind, 0).unwrap();
        golden.fixed(&format!("Header/{kind:?}"), &header.to_bytes());
        assert_eq!(Header::from_bytes(header.to_bytes()), Ok(header));
    }
    let segment = |stream| FileName::Segment { exec: exec(), stream, start: 7 };
    let names = [segment(StreamName::Stdout), segment(StreamName::Stderr), FileName::End { exec: exec() }];
    for (at, name) in names.into_iter().enumerate() {
        golden.fixed(&format!("FileName/{at}"), name.to_string().as_bytes());
    }
    golden.fixed("FileName/left-alone", LEFT_ALONE.as_bytes());
}

fn endings() -> Vec<Ending> {
    vec![Ending::Exited(outcome()), Ending::Refused(refusal())]
}

#[test]
fn programs_of_every_version_understand_each_other() {
    let mut golden = Golden::load();
    envelopes(&mut golden);
    parts(&mut golden);
    let request = |request: &Request| framed(Kind::Request, request);
    golden.variants("Request", &requests(), request, |bytes| frame::decode(Kind::Request, bytes).unwrap());
    let event = |event: &Event| framed(Kind::Event, event);
    golden.variants("Event", &events(), event, |bytes| frame::decode(Kind::Event, bytes).unwrap());
    golden.variants("Program", &programs(), prefixed, unprefixed);
    golden.variants("FileOp", &ops(), prefixed, unprefixed);
    golden.variants("Answer", &answers(), prefixed, unprefixed);
    golden.variants("Ending", &endings(), prefixed, unprefixed);
    let size = WindowSize { rows: 24, columns: 80 };
    golden
        .check("WindowSize", &size, &framed(Kind::Resize, &size), |bytes| frame::decode(Kind::Resize, bytes).unwrap());
    let taken = ReadPosition { stdout_bytes: 1, stderr_bytes: 2 };
    golden.check("Taken", &taken, &framed(Kind::Taken, &taken), |bytes| frame::decode(Kind::Taken, bytes).unwrap());
    let error: file_op::Reply = Err(FileError::new(FileErrorCode::NotFound, "not there"));
    golden.check("Reply", &error, &prefixed(&error), unprefixed);
    let change = Change { what: ChangeKind::Left, path: "/workspace/a".to_owned(), is_directory: false };
    let happening = Happening { change, detail: Some(Box::new(detail())) };
    golden.check("Happening", &happening, &prefixed(&happening), unprefixed);
    let record = EndRecord { ending: Ending::Exited(outcome()), stdout_bytes: 1, stderr_bytes: u64::MAX };
    let bytes = record.to_bytes(&exec()).unwrap();
    golden.check("EndRecord", &record, &bytes, |bytes| EndRecord::from_bytes(&exec(), bytes).unwrap());
    for (version, lines) in &golden.versions {
        let lost: Vec<_> = lines.keys().filter(|name| !golden.seen.contains(*name)).collect();
        assert!(lost.is_empty(), "messages of version {version} without a sample: {lost:?}");
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let text = std::fs::read_to_string(file_of(VERSION)).unwrap_or_default();
        std::fs::write(file_of(VERSION), text + &golden.missing).unwrap();
    } else {
        assert!(golden.missing.is_empty(), "golden/{VERSION}.txt lacks:\n{}", golden.missing);
    }
}

#[test]
fn released_messages_stay() {
    for (version, count, digest) in RELEASED {
        let text = std::fs::read_to_string(file_of(*version)).unwrap();
        let lines: String = text.split_inclusive('\n').take(*count).collect();
        let found = Sha256::digest(&lines).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        assert_eq!(
            &found, digest,
            "the first {count} lines of golden/{version}.txt were released and have changed: restore them. Servers meet boxes \
             of that release, whose messages are these; new messages go behind them"
        );
    }
}
