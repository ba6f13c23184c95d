//! Lines for a shell in the box, made of words that strangers chose.

use box_wire::{Invalid, Program};

/// A word that the shell takes as it is.
pub fn quote(word: &str) -> Result<String, Invalid> {
    let quoted = shlex::try_quote(word);
    quoted.map(Into::into).map_err(|_| Invalid::new("argument", word, "no NUL characters"))
}

/// Runs a line in a login shell, in a directory that is made if it is not there. What the line is, only the shell in the box knows.
pub fn login_at(directory: &str, line: &str) -> Result<Program, Invalid> {
    let directory = quote(directory)?;
    let whole = format!("mkdir -p {directory} && cd {directory} && {line}");
    Ok(Program::Argv(vec!["sh".to_owned(), "-lc".to_owned(), whole]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words_whatever_they_hold() {
        let words = ["plain", "two words", "it's", "$(reboot)", "`id`", "a;b", "", "-n", "\"", "\\", "новое"];
        for word in words {
            let line = format!("printf %s {}", quote(word).unwrap());
            let said = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), word, "{line}");
        }
        assert_eq!(quote("a\0b").unwrap_err().field, "argument");
    }
}
