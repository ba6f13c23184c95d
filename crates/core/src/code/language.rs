//! The languages of contexts: how the program of each is started, and how it is asked to run a cell.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use box_wire::Invalid;
use serde::Serialize;

use super::json_line::ascii_line;

/// A word among the arguments of a context's process, by which it is known again.
const MARK: &str = "strongbox-context";

/// Lets requests come in by a descriptor of their own, and leaves standard input empty for cells.
const REQUESTS_APART: &str = r#"exec "$@" 3<&0 </dev/null"#;

const PYTHON_BOOT: &str = include_str!("programs/boot.py");
const PYTHON: &str = concat!(
    include_str!("programs/python/frames.py"),
    include_str!("programs/python/charts.py"),
    include_str!("programs/python/display.py"),
    include_str!("programs/python/notebook.py"),
    include_str!("programs/python/magics.py"),
    include_str!("programs/python/cells.py"),
);
const NODE_BOOT: &str = include_str!("programs/boot.js");
const NODE: &str = include_str!("programs/kernel.js");
const BASH: &str = include_str!("programs/kernel.sh");

/// A language in which code can be run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodeLanguage {
    /// By `python3`.
    #[default]
    Python,
    /// By `node`.
    JavaScript,
    /// By `node`, from the version on that takes types away.
    TypeScript,
    /// By `bash`.
    Bash,
}

/// One piece of code that is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    /// Never the same twice for a context.
    pub(crate) number: u64,
    /// In the context's language.
    pub(crate) code: String,
    /// Variables for this cell alone.
    pub(crate) env: BTreeMap<String, String>,
}

impl CodeLanguage {
    /// All languages.
    pub const ALL: [Self; 4] = [Self::Python, Self::JavaScript, Self::TypeScript, Self::Bash];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::Bash => "bash",
        }
    }

    /// What has to be in the box.
    pub(crate) fn needs(self) -> &'static str {
        match self {
            Self::Python => "python3 (3.8 or later)",
            Self::JavaScript => "node (18 or later)",
            Self::TypeScript => "node (22.13 or later)",
            Self::Bash => "bash (4.1 or later)",
        }
    }

    /// The program of a context and its arguments. What it does comes in by its standard input, see [`Self::program`].
    pub(crate) fn launch(self, nonce: &str) -> (String, Vec<String>) {
        let (command, mut words) = match self {
            Self::Python => ("python3", vec!["-c", PYTHON_BOOT]),
            Self::JavaScript | Self::TypeScript => ("sh", vec!["-c", REQUESTS_APART, "sh", "node", "-e", NODE_BOOT]),
            // An interactive shell survives an interrupt, and goes on with the next line.
            Self::Bash => ("bash", vec!["--norc", "--noprofile", "--noediting", "-i", "+H", "-s"]),
        };
        words.extend([MARK, self.name(), nonce]);
        (command.to_owned(), words.into_iter().map(str::to_owned).collect())
    }

    /// What the arguments of a process say: the language and the nonce, if it is a context's.
    pub(crate) fn of_arguments(arguments: &[String]) -> Option<(Self, String)> {
        let [.., mark, name, nonce] = arguments else { return None };
        let is_nonce = nonce.len() == 16 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
        let language = Self::ALL.into_iter().find(|language| language.name() == name)?;
        (mark == MARK && is_nonce).then(|| (language, nonce.clone()))
    }

    /// The first thing that a new process reads.
    pub(crate) fn program(self) -> Vec<u8> {
        match self {
            Self::Python => ascii_line(&PYTHON),
            Self::JavaScript | Self::TypeScript => ascii_line(&NODE),
            Self::Bash => BASH.as_bytes().to_vec(),
        }
    }

    /// What a process reads to run a cell.
    pub(crate) fn request(self, cell: &Cell) -> Vec<u8> {
        match self {
            Self::Bash => bash_request(cell).into_bytes(),
            _ => ascii_line(&Request { id: cell.number, code: &cell.code, env: &cell.env }),
        }
    }

    /// Refuses a cell that cannot be run in this language.
    pub(crate) fn check(self, code: &str, env: &BTreeMap<String, String>) -> Result<(), Invalid> {
        for (name, value) in env {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Err(Invalid::new("env", name, "names that are not empty, without = and NUL"));
            }
            if value.contains('\0') {
                return Err(Invalid::new("env", name, "values without NUL characters"));
            }
            let starts_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
            let is_word = starts_well && name.chars().all(|each| each.is_ascii_alphanumeric() || each == '_');
            if self == Self::Bash && !is_word {
                return Err(Invalid::new("env", name, "for bash, names of letters, digits and _"));
            }
        }
        if self == Self::Bash && code.contains('\0') {
            return Err(Invalid::new("code", "\0", "for bash, code without NUL characters"));
        }
        Ok(())
    }
}

impl FromStr for CodeLanguage {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        let known = match name.to_ascii_lowercase().as_str() {
            "js" => Some(Self::JavaScript),
            "ts" => Some(Self::TypeScript),
            name => Self::ALL.into_iter().find(|language| language.name() == name),
        };
        known.ok_or_else(|| Invalid::new("language", name, format!("one of {}", Self::ALL.map(Self::name).join(", "))))
    }
}

impl fmt::Display for CodeLanguage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Serialize)]
struct Request<'a> {
    id: u64,
    code: &'a str,
    env: &'a BTreeMap<String, String>,
}

/// Three lines: an interrupt in the second leaves the third, which tells the end.
fn bash_request(cell: &Cell) -> String {
    let (number, code) = (cell.number, quoted(&cell.code));
    let pairs = cell.env.iter().map(|(name, value)| quoted(&format!("{name}={value}")));
    let begin: Vec<_> = [format!("__strongbox_begin {number}")].into_iter().chain(pairs).collect();
    let begin = begin.join(" ");
    format!(
        "{{ {begin}; }} 2>/dev/null\n\
         eval {code} </dev/null\n\
         {{ __strongbox_end {number} $?; }} 2>/dev/null\n"
    )
}

/// One word for bash, on one line.
fn quoted(text: &str) -> String {
    let mut word = String::with_capacity(text.len() + 3);
    word.push_str("$'");
    for byte in text.bytes() {
        match byte {
            b'\'' | b'\\' | 0..=31 | 127.. => {
                // Three octal digits end by themselves, whatever follows.
                let _ = write!(word, "\\{byte:03o}");
            }
            plain => word.push(char::from(plain)),
        }
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_have_names_and_short_ones() {
        let named = |name: &str| name.parse::<CodeLanguage>().map(CodeLanguage::name).ok();
        for (name, language) in [("python", "python"), ("js", "javascript"), ("TS", "typescript"), ("bash", "bash")] {
            assert_eq!(named(name), Some(language));
        }
        for unknown in ["", "r", "java", "python3", "py thon"] {
            assert_eq!(named(unknown), None, "{unknown}");
        }
        let refused = "cobol".parse::<CodeLanguage>().unwrap_err().to_string();
        assert!(refused.contains("cobol") && refused.contains("python, javascript, typescript, bash"), "{refused}");
    }

    #[test]
    fn a_process_is_known_again_by_its_arguments_and_others_are_not() {
        let nonce = "0123456789abcdef";
        for language in CodeLanguage::ALL {
            let (_, arguments) = language.launch(nonce);
            assert_eq!(CodeLanguage::of_arguments(&arguments), Some((language, nonce.to_owned())));
        }
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for other in [
            "",
            "-c x",
            "strongbox-context python short",
            "other python 0123456789abcdef",
            "strongbox-context r 0123456789abcdef",
        ] {
            assert_eq!(CodeLanguage::of_arguments(&words(other)), None, "{other}");
        }
    }

    #[test]
    fn every_argument_is_short_enough_to_be_one() {
        for language in CodeLanguage::ALL {
            let (_, arguments) = language.launch("0123456789abcdef");
            assert!(arguments.iter().all(|argument| argument.len() < 1024), "{language:?}");
        }
    }

    #[test]
    fn a_word_for_bash_is_one_line_of_ascii() {
        assert_eq!(quoted("it's\n\\ü"), r"$'it\047s\012\134\303\274'");
        let request = bash_request(&Cell {
            number: 7,
            code: "echo 1\necho 2".to_owned(),
            env: [("A".to_owned(), "x y".to_owned())].into(),
        });
        assert_eq!(request.lines().count(), 3);
        assert!(request.starts_with("{ __strongbox_begin 7 $'A=x y'; }"), "{request}");
    }

    #[test]
    fn what_cannot_be_run_is_said_before() {
        let env = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        assert_eq!(CodeLanguage::Bash.check("echo", &env("A", "b")), Ok(()));
        assert_eq!(CodeLanguage::Python.check("1\0", &env("a.b", "b")), Ok(()));
        for (language, code, env) in [
            (CodeLanguage::Python, "1", env("", "x")),
            (CodeLanguage::Python, "1", env("A=B", "x")),
            (CodeLanguage::JavaScript, "1", env("A", "\0")),
            (CodeLanguage::Bash, "1", env("a.b", "x")),
            (CodeLanguage::Bash, "1", env("1a", "x")),
            (CodeLanguage::Bash, "a\0b", BTreeMap::new()),
        ] {
            assert!(language.check(code, &env).is_err(), "{language:?} {code:?} {env:?}");
        }
    }
}
