//! A shell on a terminal, into which lines are pasted.

use anyhow::{Context, Result, bail, ensure};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::page::{Exit, Keys, Step};

/// The prompt of the shell, around the exit code of the last command.
const PROMPT: &str = "@-ready-@";

/// Sets the prompt. The terminal may echo this line, so it does not contain the prompt itself.
const SET_UP: &str =
    "stty -echo; set -o pipefail; PS1= PS2= PROMPT_COMMAND='printf \"\\n@-%s-@%s@-%s-@\\n\" ready $? ready'\n";

/// The shell, and the output of its terminal.
pub(super) struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    screen: Receiver<Vec<u8>>,
    /// Output not yet examined.
    pending: String,
    /// A command that takes longer has hung.
    time_max: Duration,
}

impl Terminal {
    /// Starts the shell. The command must end in the arguments to run on a terminal of its own.
    pub(super) fn start(mut command: Command, time_max: Duration) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let keyboard = child.stdin.take().context("no standard input")?;
        let mut output = child.stdout.take().context("no standard output")?;
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut piece = vec![0; 64 * 1024];
            while let Ok(length @ 1..) = output.read(&mut piece) {
                if sender.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut terminal = Self { child, keyboard, screen, pending: String::new(), time_max };
        terminal.keyboard.write_all(SET_UP.as_bytes())?;
        terminal.prompt(None).context("starting the shell")?;
        Ok(terminal)
    }

    /// Pastes a command, waits for the next prompt, and checks its output and exit code.
    pub(super) fn run(&mut self, step: &Step) -> Result<()> {
        self.keyboard.write_all(format!("{}\n", step.command).as_bytes())?;
        let (mut said, exit_code) = self.prompt(step.keys.as_ref())?;
        if is_background(&step.command) {
            // Continue when the command says that it runs.
            said.push_str(&self.wait_for("a word from the background", |text| text.lines().any(is_word_of_a_job))?);
        }
        let is_interrupted = step.keys.as_ref().is_some_and(|keys| keys.press == "^C");
        let is_as_meant = match step.exit {
            Exit::Success => exit_code == 0 || is_interrupted,
            Exit::Code(code) => exit_code == code,
            Exit::Any => true,
        };
        ensure!(is_as_meant, "exit code {exit_code}:\n{said}");
        missing(&step.output, &said).map_or(Ok(()), |line| bail!("{line:?} is not in what it said:\n{said}"))
    }

    /// Ends background jobs and the shell.
    pub(super) fn end(mut self) -> Result<()> {
        let last = "trap '' TERM; kill $(jobs -p) 2>/dev/null; wait; exit 0\n";
        self.keyboard.write_all(last.as_bytes())?;
        let deadline = Instant::now() + self.time_max;
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "what ran in the background does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Waits for the next prompt, and types the keys on the way.
    fn prompt(&mut self, keys: Option<&Keys>) -> Result<(String, i32)> {
        let mut before = String::new();
        if let Some(keys) = keys {
            before = self
                .wait_for(&format!("{:?}", keys.after), |text| text.contains(&keys.after) || text.contains(PROMPT))?;
            ensure!(!before.contains(PROMPT), "it ended before {:?} appeared:\n{before}", keys.after);
            let typed = if keys.press == "^C" { "\u{3}".to_owned() } else { format!("{}\n", keys.press) };
            self.keyboard.write_all(typed.as_bytes())?;
        }
        let text = before + &self.wait_for("the end of the command", |text| text.matches(PROMPT).count() == 2)?;
        let mut parts = text.splitn(3, PROMPT);
        let (Some(said), Some(code), Some(behind)) = (parts.next(), parts.next(), parts.next()) else {
            bail!("no prompt: {text}");
        };
        behind.clone_into(&mut self.pending);
        Ok((said.to_owned(), code.parse().with_context(|| format!("an exit code: {code:?}"))?))
    }

    /// Reads output until the condition holds.
    fn wait_for(&mut self, what: &str, is_enough: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + self.time_max;
        while !is_enough(&self.pending) {
            match self.screen.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.pending.push_str(&String::from_utf8_lossy(&bytes).replace('\r', "")),
                Err(RecvTimeoutError::Timeout) => bail!("waited in vain for {what}:\n{}", self.pending),
                Err(RecvTimeoutError::Disconnected) => bail!("the shell ended:\n{}", self.pending),
            }
        }
        Ok(std::mem::take(&mut self.pending))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Only the failed part is left.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The command that runs a shell on its own terminal; other arguments may precede it.
pub(super) fn shell() -> [&'static str; 4] {
    ["script", "-qefc", "bash --noprofile --norc --noediting -i", "/dev/null"]
}

/// In its own process, killed with this one.
#[cfg(test)]
fn plain() -> Command {
    let mut command = crate::run::mortal(shell()[0]);
    command.args(&shell()[1..]);
    command
}

fn is_background(command: &str) -> bool {
    let code = command.split(" #").next().unwrap_or_default().trim_end();
    code.ends_with('&') && !code.ends_with("&&")
}

/// Whether a line is from a program, and not a job message of the shell.
fn is_word_of_a_job(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with('[')
}

/// The first expected line that is missing. They come in this order; `…` stands for any text, and spaces do not count.
fn missing<'a>(expected: &'a [String], said: &str) -> Option<&'a str> {
    let mut lines = said.lines().map(dense);
    expected.iter().map(String::as_str).find(|line| {
        let wanted = dense(line);
        !wanted.is_empty() && !lines.any(|line| matches(&wanted, &line))
    })
}

fn dense(line: &str) -> String {
    line.chars().filter(|character| !character.is_whitespace()).collect()
}

fn matches(wanted: &str, line: &str) -> bool {
    let mut parts = wanted.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(command: &str) -> Step {
        Step { command: command.into(), ..Step::default() }
    }

    #[test]
    fn commands_share_a_shell_and_fail_with_what_they_said() {
        let mut terminal = Terminal::start(plain(), Duration::from_mins(1)).expect("a shell");
        terminal.run(&step("NAME=value")).expect("set");
        terminal.run(&Step { output: vec!["the value".into()], ..step("echo the $NAME") }).expect("still set");
        terminal.run(&Step { exit: Exit::Code(3), ..step("(exit 3)") }).expect("meant to fail");
        terminal.run(&step("(exit 3) | cat")).expect_err("a pipeline fails with any of its commands");
        let error = terminal.run(&step("echo why; false")).expect_err("it fails");
        assert!(error.to_string().contains("why"), "{error}");
        let error = terminal.run(&Step { output: vec!["two".into()], ..step("echo one") }).expect_err("it differs");
        assert!(error.to_string().contains("\"two\""), "{error}");
        terminal.end().expect("it ends");
    }

    #[test]
    fn output_is_compared_by_line_without_spaces() {
        let said = "noise\n{ \"a\": 1, \"b\": [2, 3] }\nend";
        let missing = |expected: &[&str]| {
            let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
            super::missing(&expected, said).map(str::to_owned)
        };
        assert_eq!(missing(&["{\"a\": 1, …3]}", "", "end"]), None);
        assert_eq!(missing(&["end", "noise"]), Some("noise".into()));
        assert_eq!(missing(&["{\"a\": 1"]), Some("{\"a\": 1".into()));
        assert_eq!(missing(&["{…4…}"]), Some("{…4…}".into()));
    }
}
