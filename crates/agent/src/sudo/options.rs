//! The command line of `sudo`: the options that scripts use. Others are refused, never ignored.

/// How a command line is written.
pub(super) const USAGE: &str =
    "usage: sudo [-EHnS] [-u USER] [-g GROUP] [-i | -s] [VAR=VALUE]... [--] [COMMAND [ARGUMENT]...]
       sudo -v | -k | -l";

/// A parsed command line.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) action: Action,
    /// Name or number of the user; root when there is none.
    pub(super) user: Option<Vec<u8>>,
    pub(super) group: Option<Vec<u8>>,
    pub(super) keep: Keep,
    pub(super) sets_home: bool,
    pub(super) shell: Shell,
    /// Variables to set, with their values.
    pub(super) variables: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) command: Vec<Vec<u8>>,
}

/// The action.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    #[default]
    Run,
    /// Nothing: passwords are not used, so there are none to remember or forget.
    Nothing,
    List,
    Help,
    Version,
}

/// Variables of the caller that are kept besides the usual ones.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum Keep {
    #[default]
    Usual,
    Named(Vec<Vec<u8>>),
    All,
}

/// Whether a shell runs the command, or is it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shell {
    #[default]
    None,
    /// That of the caller, in its working directory.
    Plain,
    /// That of the user, as after a login.
    Login,
}

/// Reads a command line. The error says what is wrong with it.
pub(super) fn parse(arguments: Vec<Vec<u8>>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = arguments.into_iter().peekable();
    while let Some(argument) = rest.next_if(|argument| is_option_or_variable(argument)) {
        if argument == b"--" {
            break;
        }
        let mut value = |inline: Option<&[u8]>, option: &str| {
            let next = || rest.next();
            inline.map(<[u8]>::to_vec).or_else(next).ok_or_else(|| format!("option {option} needs a value"))
        };
        if let Some(long) = argument.strip_prefix(b"--") {
            let (name, inline) = split(long).map_or((long, None), |(name, value)| (name, Some(value)));
            options.take_long(name, inline, &mut value)?;
        } else if let Some(letters) = argument.strip_prefix(b"-") {
            options.take_letters(letters, &mut value)?;
        } else if let Some((name, value)) = split(&argument) {
            options.variables.push((name.to_vec(), value.to_vec()));
        }
    }
    options.command = rest.collect();
    options.check()
}

fn is_option_or_variable(argument: &[u8]) -> bool {
    let is_name = |name: &[u8]| {
        let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        name.first().is_some_and(|byte| !byte.is_ascii_digit()) && name.iter().all(is_letter)
    };
    (argument.starts_with(b"-") && argument.len() > 1) || split(argument).is_some_and(|(name, _)| is_name(name))
}

/// The two sides of the first `=`.
fn split(argument: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = argument.iter().position(|byte| *byte == b'=')?;
    Some((&argument[..at], &argument[at + 1..]))
}

impl Options {
    fn take_letters(
        &mut self,
        letters: &[u8],
        value: &mut impl FnMut(Option<&[u8]>, &str) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        for (index, letter) in letters.iter().enumerate() {
            let inline = Some(&letters[index + 1..]).filter(|rest| !rest.is_empty());
            match letter {
                b'u' => self.user = Some(value(inline, "-u")?),
                b'g' => self.group = Some(value(inline, "-g")?),
                _ => {
                    self.take_letter(*letter)?;
                    continue;
                }
            }
            // What followed the letter was its value.
            break;
        }
        Ok(())
    }

    fn take_letter(&mut self, letter: u8) -> Result<(), String> {
        match letter {
            // Passwords are not used, so there are none to read or to avoid.
            b'n' | b'S' => {}
            b'E' => self.keep = Keep::All,
            b'H' => self.sets_home = true,
            b'i' => self.shell = Shell::Login,
            b's' => self.shell = Shell::Plain,
            b'v' | b'k' | b'K' => self.action = Action::Nothing,
            b'l' => self.action = Action::List,
            b'h' => self.action = Action::Help,
            b'V' => self.action = Action::Version,
            _ => return Err(format!("unknown option -{}\n{USAGE}", char::from(letter).escape_default())),
        }
        Ok(())
    }

    fn take_long(
        &mut self,
        name: &[u8],
        inline: Option<&[u8]>,
        value: &mut impl FnMut(Option<&[u8]>, &str) -> Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        let letter = match (name, inline) {
            (b"user", _) => {
                self.user = Some(value(inline, "--user")?);
                return Ok(());
            }
            (b"group", _) => {
                self.group = Some(value(inline, "--group")?);
                return Ok(());
            }
            (b"preserve-env", Some(names)) => {
                self.keep = Keep::Named(names.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect());
                return Ok(());
            }
            (b"preserve-env", None) => b'E',
            (b"non-interactive", None) => b'n',
            (b"stdin", None) => b'S',
            (b"set-home", None) => b'H',
            (b"login", None) => b'i',
            (b"shell", None) => b's',
            (b"validate", None) => b'v',
            (b"reset-timestamp", None) => b'k',
            (b"remove-timestamp", None) => b'K',
            (b"list", None) => b'l',
            (b"help", None) => b'h',
            (b"version", None) => b'V',
            _ => return Err(format!("unknown option --{}\n{USAGE}", name.escape_ascii())),
        };
        self.take_letter(letter)
    }

    fn check(mut self) -> Result<Self, String> {
        // `sudo -k COMMAND` runs the command.
        if self.action == Action::Nothing && !self.command.is_empty() {
            self.action = Action::Run;
        }
        if self.action == Action::Run && self.command.is_empty() && self.shell == Shell::None {
            return Err(format!("no command\n{USAGE}"));
        }
        if self.command.first().is_some_and(Vec::is_empty) {
            return Err("the command is empty".to_owned());
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[&str]) -> Result<Options, String> {
        parse(line.iter().map(|argument| argument.as_bytes().to_vec()).collect())
    }

    fn words(line: &[&str]) -> Vec<Vec<u8>> {
        line.iter().map(|word| word.as_bytes().to_vec()).collect()
    }

    #[test]
    fn the_first_word_that_is_no_option_begins_the_command() {
        let options = read(&["-nE", "A=b=c", "-u", "user", "apt-get", "-y", "install", "X=1"]).unwrap();
        assert_eq!(options.command, words(&["apt-get", "-y", "install", "X=1"]));
        assert_eq!(options.variables, [(b"A".to_vec(), b"b=c".to_vec())]);
        assert_eq!((options.keep, options.user), (Keep::All, Some(b"user".to_vec())));
        assert_eq!(read(&["--", "-x"]).unwrap().command, words(&["-x"]));
        assert_eq!(read(&["./a=b", "c"]).unwrap().command, words(&["./a=b", "c"]), "not a name");
        assert_eq!(read(&["-"]).unwrap().command, words(&["-"]));
    }

    #[test]
    fn values_stand_in_the_same_word_or_in_the_next() {
        for line in [&["-uman", "id"][..], &["-Hu", "man", "id"], &["--user=man", "id"], &["--user", "man", "id"]] {
            assert_eq!(read(line).unwrap().user.as_deref(), Some(b"man".as_slice()), "{line:?}");
        }
        let named = read(&["--preserve-env=A,B", "id"]).unwrap().keep;
        assert_eq!(named, Keep::Named(words(&["A", "B"])));
        assert_eq!(read(&["-u"]).unwrap_err(), "option -u needs a value");
    }

    #[test]
    fn what_is_not_known_is_refused_and_said() {
        for line in
            [&["-b", "id"][..], &["-nb", "id"], &["--background", "id"], &["--login=x"], &["-R", "/", "id"], &[]]
        {
            assert!(read(line).unwrap_err().contains("usage: sudo"), "{line:?}");
        }
        assert!(read(&[""]).is_err());
    }

    #[test]
    fn nothing_is_asked_so_nothing_is_remembered() {
        for line in [&["-v"][..], &["-k"], &["-K"], &["-nv"]] {
            assert_eq!(read(line).unwrap().action, Action::Nothing, "{line:?}");
        }
        assert_eq!(read(&["-k", "id"]).unwrap().action, Action::Run);
        assert_eq!(read(&["-l"]).unwrap().action, Action::List);
        assert_eq!(read(&["-i"]).unwrap().shell, Shell::Login);
    }
}
