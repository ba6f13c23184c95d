//! The environment and the words of a command that `sudo` runs, as Debian's `sudo` makes them.

use super::accounts::Account;
use super::options::{Keep, Options, Shell};

/// The `PATH` for programs of root, whatever the caller's is.
const PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables of the caller that are kept, besides names with the prefix [`USUAL_BEGINNING`].
const USUAL: [&[u8]; 7] = [b"TERM", b"COLORTERM", b"LANG", b"LANGUAGE", b"DISPLAY", b"LS_COLORS", b"TZ"];
const USUAL_BEGINNING: &[u8] = b"LC_";

/// A variable and its value.
pub(super) type Variable = (Vec<u8>, Vec<u8>);

/// The environment of the command. `caller` is that of the caller, who is `invoker`.
pub(super) fn environment(
    caller: Vec<Variable>,
    options: &Options,
    target: &Account,
    invoker: &Account,
    command: &[Vec<u8>],
) -> Vec<Variable> {
    let is_usual = |name: &[u8]| USUAL.contains(&name) || name.starts_with(USUAL_BEGINNING);
    let is_kept = |name: &[u8]| match &options.keep {
        Keep::All => true,
        Keep::Named(names) => is_usual(name) || names.iter().any(|wanted| wanted == name),
        Keep::Usual => is_usual(name),
    };
    let mut kept: Vec<Variable> = caller.into_iter().filter(|(name, _)| is_kept(name)).collect();
    let keeps_home = !options.sets_home && options.shell != Shell::Login && has(&kept, b"HOME");
    let home: Option<(&[u8], Vec<u8>)> = (!keeps_home).then(|| (b"HOME".as_slice(), target.home.clone()));
    let (uid, gid) = (invoker.uid.to_string(), invoker.gid.to_string());
    let set: [(&[u8], Vec<u8>); 8] = [
        (b"PATH", PATH.to_vec()),
        (b"SHELL", target.shell.clone()),
        (b"LOGNAME", target.name.clone()),
        (b"USER", target.name.clone()),
        (b"SUDO_COMMAND", command.join(&b' ')),
        (b"SUDO_USER", invoker.name.clone()),
        (b"SUDO_UID", uid.into_bytes()),
        (b"SUDO_GID", gid.into_bytes()),
    ];
    for (name, value) in set.into_iter().chain(home) {
        put(&mut kept, name, value);
    }
    for (name, value) in &options.variables {
        put(&mut kept, name, value.clone());
    }
    kept
}

fn has(variables: &[Variable], wanted: &[u8]) -> bool {
    variables.iter().any(|(name, _)| name == wanted)
}

fn put(variables: &mut Vec<Variable>, wanted: &[u8], value: Vec<u8>) {
    variables.retain(|(name, _)| name != wanted);
    variables.push((wanted.to_vec(), value));
}

/// The program and the words that it is called with. `shell` is the caller's, if it has one.
pub(super) fn command(options: &Options, target: &Account, shell: Option<Vec<u8>>) -> (Vec<u8>, Vec<Vec<u8>>) {
    let program = match options.shell {
        Shell::None => {
            let program = options.command.first().cloned().unwrap_or_default();
            return (program, options.command.clone());
        }
        Shell::Plain => shell.filter(|shell| !shell.is_empty()).unwrap_or_else(|| target.shell.clone()),
        Shell::Login => target.shell.clone(),
    };
    let name = match options.shell {
        Shell::Login => [b"-".as_slice(), program.rsplit(|byte| *byte == b'/').next().unwrap_or_default()].concat(),
        _ => program.clone(),
    };
    let mut words = vec![name];
    if !options.command.is_empty() {
        let line: Vec<Vec<u8>> = options.command.iter().map(|word| quoted(word)).collect();
        words.extend([b"-c".to_vec(), line.join(&b' ')]);
    }
    (program, words)
}

/// A word as a shell reads it. `sudo` leaves `$` as it is.
fn quoted(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-$".contains(&byte) || !byte.is_ascii();
    word.iter().flat_map(|&byte| if is_plain(byte) { vec![byte] } else { vec![b'\\', byte] }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::accounts::Accounts;
    use super::super::options::parse;
    use super::*;

    fn account(name: &str) -> Account {
        let users = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/sh\n";
        Accounts::of(users, "").user(name.as_bytes()).unwrap()
    }

    fn made(line: &str) -> (String, String) {
        let words = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let options = parse(words).unwrap();
        let caller = ["PATH=/opt/bin", "HOME=/home/user", "TERM=xterm", "LC_ALL=C", "SECRET=s", "LD_PRELOAD=x"];
        let variable = |entry: &&str| {
            let (name, value) = entry.split_once('=').unwrap();
            (name.as_bytes().to_vec(), value.as_bytes().to_vec())
        };
        let caller = caller.iter().map(variable).collect();
        let (program, words) = command(&options, &account("root"), Some(b"/bin/zsh".to_vec()));
        let environment = environment(caller, &options, &account("root"), &account("user"), &options.command);
        let entry = |(name, value): &Variable| [name.as_slice(), b"=", value].concat();
        let text = |parts: Vec<Vec<u8>>| String::from_utf8(parts.join(&b'\n')).unwrap();
        (text(environment.iter().map(entry).collect()), text([vec![program], words].concat()))
    }

    #[test]
    fn only_the_usual_of_the_callers_environment_is_kept() {
        let (environment, words) = made("A=1 id -u");
        assert_eq!(
            environment,
            "TERM=xterm\nLC_ALL=C\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nSHELL=/bin/bash\n\
             LOGNAME=root\nUSER=root\nSUDO_COMMAND=id -u\nSUDO_USER=user\nSUDO_UID=1000\nSUDO_GID=1000\nHOME=/root\nA=1"
        );
        assert_eq!(words, "id\nid\n-u");
    }

    #[test]
    fn more_is_kept_when_asked_for() {
        let all = made("-E id").0;
        assert!(all.contains("SECRET=s") && all.contains("HOME=/home/user") && !all.contains("/opt/bin"), "{all}");
        assert!(made("-E -H id").0.contains("HOME=/root"));
        let named = made("--preserve-env=SECRET id").0;
        assert!(named.contains("SECRET=s") && !named.contains("LD_PRELOAD"), "{named}");
        assert!(made("PATH=/opt id").0.ends_with("PATH=/opt"));
    }

    #[test]
    fn a_shell_gets_the_command_as_one_line() {
        assert_eq!(made("-s").1, "/bin/zsh\n/bin/zsh");
        assert_eq!(made("-i").1, "/bin/bash\n-bash");
        assert_eq!(made("-i echo $HOME a;b").1, "/bin/bash\n-bash\n-c\necho $HOME a\\;b");
    }
}
