//! A page of the documentation as a list of examples: commands to paste, expected output, and how to run them.
//!
//! HTML comments right before a block say what to do besides pasting, or why the block is skipped:
//!
//! ```text
//! <!-- test: skip: REASON -->                          skip the block
//! <!-- test: skip `COMMAND`: REASON -->                skip the one command with this prefix
//! <!-- test: given `COMMANDS` -->                      prerequisites: run before the block
//! <!-- test: at `COMMAND` after `TEXT` press `KEYS` -->  end the command by hand: ^C, or a line such as `exit`
//! <!-- test: `COMMAND` exits N -->                     the command must fail; `any` if the code varies
//! <!-- test: output varies -->                         do not compare the output
//! <!-- test: run -->                                   a block of Python, run as a program
//! <!-- test: root: REASON -->                          the block is for root only
//! <!-- test: root `COMMAND`: REASON -->                the one command with this prefix is
//! <!-- test: with a registry -->                       the block is run apart, where packages can be installed; `$REGISTRY`
//!                                                      holds the options of `strongbox mcp add` that name it
//! <!-- test: with engines -->                          the block is run apart, among Docker and Podman
//! ```

use anyhow::{Context, Result, bail, ensure};

/// Blocks of commands. Python blocks run only if a comment says so.
const CONSOLE: &str = "console";
const PYTHON: &str = "python";

/// A block.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of its fence.
    pub(super) line: usize,
    /// Commands for the prerequisites of the block.
    pub(super) given: Vec<String>,
    pub(super) steps: Vec<Step>,
    /// Why it is skipped.
    pub(super) skip: Option<String>,
    /// Why an ordinary user cannot run it.
    pub(super) root: Option<String>,
    /// What it is run with.
    pub(super) place: Surroundings,
}

/// What a block is run with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Surroundings {
    /// Without any network.
    #[default]
    Alone,
    Registry,
    Engines,
}

/// One command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// As pasted, with its line breaks.
    pub(super) command: String,
    /// The expected lines.
    pub(super) output: Vec<String>,
    pub(super) exit: Exit,
    pub(super) keys: Option<Keys>,
    /// Why it is skipped.
    pub(super) skip: Option<String>,
    /// Why an ordinary user cannot run it.
    pub(super) root: Option<String>,
}

/// How a command must end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Exit {
    #[default]
    Success,
    Code(i32),
    Any,
}

/// Keys to type while a command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keys {
    /// Typed after this text appears.
    pub(super) after: String,
    pub(super) press: String,
}

#[derive(Debug)]
enum Marker {
    Skip(String),
    SkipStep(String, String),
    Root(String),
    RootStep(String, String),
    With(Surroundings),
    Given(String),
    Keys(String, Keys),
    Exits(String, Exit),
    Varies,
    Run,
}

/// The examples of a page, in order.
pub(super) fn blocks(text: &str) -> Result<Vec<Block>> {
    let (mut blocks, mut markers) = (Vec::new(), Vec::new());
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let place = || format!("line {}", at + 1);
        if let Some(marker) = line.strip_prefix("<!-- test: ") {
            let marker = marker.strip_suffix(" -->").with_context(place)?;
            markers.push(Marker::parse(marker).with_context(place)?);
        } else if let Some(language) = line.strip_prefix("```") {
            let inside: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            blocks.extend(block(at + 1, language, &inside, std::mem::take(&mut markers)).with_context(place)?);
        } else {
            ensure!(markers.is_empty(), "{}: a comment for the test must stand right before a block", place());
        }
    }
    Ok(blocks)
}

fn block(line: usize, language: &str, inside: &[&str], markers: Vec<Marker>) -> Result<Option<Block>> {
    let is_python = language == PYTHON && markers.iter().any(|marker| matches!(marker, Marker::Run));
    ensure!(
        is_python || language == CONSOLE || markers.is_empty(),
        "only blocks of commands have comments for the test"
    );
    ensure!(!["sh", "bash", "shell", "zsh"].contains(&language), "commands stand in blocks of `console`, after `$ `");
    if !is_python && language != CONSOLE {
        return Ok(None);
    }
    let steps = if is_python { vec![program(inside)] } else { commands(inside)? };
    let mut block = Block { line, steps, ..Block::default() };
    for marker in markers {
        block.apply(marker)?;
    }
    Ok(Some(block))
}

/// A block of Python: pasted into a file and run.
fn program(inside: &[&str]) -> Step {
    let command = format!("cat > example.py <<'END' && python3 example.py\n{}\nEND", inside.join("\n"));
    Step { command, ..Step::default() }
}

/// `$ ` begins a command, `# ` a root command; a trailing backslash continues it; its output follows.
fn commands(inside: &[&str]) -> Result<Vec<Step>> {
    let mut steps: Vec<Step> = Vec::new();
    for line in inside {
        match (line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")), steps.last_mut()) {
            (Some(command), _) => steps.push(Step { command: command.to_owned(), ..Step::default() }),
            (None, Some(step)) if step.command.ends_with('\\') => step.command.extend(["\n", line]),
            (None, Some(step)) => step.output.push((*line).to_owned()),
            (None, None) => bail!("the first line of a block must be a command: {line}"),
        }
    }
    ensure!(!steps.is_empty(), "a block without a command");
    Ok(steps)
}

impl Block {
    fn apply(&mut self, marker: Marker) -> Result<()> {
        match marker {
            Marker::Skip(reason) => self.skip = Some(reason),
            Marker::Given(commands) => self.given.push(commands),
            Marker::SkipStep(command, reason) => self.step(&command)?.skip = Some(reason),
            Marker::Root(reason) => self.root = Some(reason),
            Marker::RootStep(command, reason) => self.step(&command)?.root = Some(reason),
            Marker::With(place) => self.place = place,
            Marker::Keys(command, keys) => self.step(&command)?.keys = Some(keys),
            Marker::Exits(command, exit) => self.step(&command)?.exit = exit,
            Marker::Varies => self.steps.iter_mut().for_each(|step| step.output.clear()),
            Marker::Run => {}
        }
        Ok(())
    }

    fn step(&mut self, beginning: &str) -> Result<&mut Step> {
        let found = self.steps.iter_mut().find(|step| step.command.starts_with(beginning));
        found.with_context(|| format!("no command of the block begins with {beginning:?}"))
    }
}

impl Marker {
    fn parse(text: &str) -> Result<Self> {
        let unknown = || format!("unknown comment for the test: {text}");
        // Every second part was between backticks.
        let parts: Vec<&str> = text.split('`').map(str::trim).collect();
        let own = |text: &str| text.to_owned();
        Ok(match parts.as_slice() {
            ["run"] => Self::Run,
            ["output varies"] => Self::Varies,
            ["with a registry"] => Self::With(Surroundings::Registry),
            ["with engines"] => Self::With(Surroundings::Engines),
            [rest] => match rest.split_once(": ").with_context(unknown)? {
                ("skip", reason) => Self::Skip(own(reason)),
                ("root", reason) => Self::Root(own(reason)),
                _ => bail!(unknown()),
            },
            ["skip", command, reason] => {
                Self::SkipStep(own(command), own(reason.strip_prefix(": ").with_context(unknown)?))
            }
            ["root", command, reason] => {
                Self::RootStep(own(command), own(reason.strip_prefix(": ").with_context(unknown)?))
            }
            ["given", commands, ""] => Self::Given(own(commands)),
            ["at", command, "after", after, "press", press, ""] => {
                Self::Keys(own(command), Keys { after: own(after), press: own(press) })
            }
            ["", command, "exits any"] => Self::Exits(own(command), Exit::Any),
            ["", command, code] => {
                let code = code.strip_prefix("exits ").with_context(unknown)?;
                Self::Exits(own(command), Exit::Code(code.parse().with_context(unknown)?))
            }
            _ => bail!(unknown()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_what_they_say_are_told_apart() {
        let page = "Text\n```toml\nkey = 1\n```\n```console\n$ one \\\n    more\nsaid\n\n# two\n```\n";
        let blocks = blocks(page).expect("a page");
        let [block] = blocks.as_slice() else { panic!("{blocks:?}") };
        assert_eq!(block.line, 5);
        let of = |step: &Step| (step.command.clone(), step.output.len());
        assert_eq!(block.steps.iter().map(of).collect::<Vec<_>>(), [("one \\\n    more".into(), 2), ("two".into(), 0)]);
    }

    #[test]
    fn comments_say_how_a_block_is_run() {
        let page = "<!-- test: given `echo 1 > data` -->\n<!-- test: skip `three`: no network -->\n\
                    <!-- test: at `one` after `on port` press `^C` -->\n<!-- test: `two` exits 3 -->\n\
                    ```console\n$ one -f\n$ two\nsaid\n$ three\n```\n";
        let blocks = blocks(page).expect("a page");
        let block = &blocks[0];
        assert_eq!(block.given, ["echo 1 > data"]);
        assert_eq!(block.steps[0].keys, Some(Keys { after: "on port".into(), press: "^C".into() }));
        assert_eq!((block.steps[1].exit, block.steps[2].skip.as_deref()), (Exit::Code(3), Some("no network")));
    }

    #[test]
    fn comments_say_where_a_block_is_run() {
        let page = "<!-- test: root `one`: needs a cgroup -->\n<!-- test: with a registry -->\n```console\n$ one\n```\n\
                    <!-- test: root: needs root -->\n<!-- test: with engines -->\n```console\n$ two\n```\n";
        let blocks = blocks(page).expect("a page");
        assert_eq!(
            blocks.iter().map(|it| it.place).collect::<Vec<_>>(),
            [Surroundings::Registry, Surroundings::Engines]
        );
        assert_eq!((blocks[0].root.as_deref(), blocks[1].root.as_deref()), (None, Some("needs root")));
        assert_eq!(blocks[0].steps[0].root.as_deref(), Some("needs a cgroup"));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (page, why) in [
            ("<!-- test: maybe -->\n```console\n$ a\n```", "unknown comment"),
            ("<!-- test: skip -->\n```console\n$ a\n```", "unknown comment"),
            ("<!-- test: with luck -->\n```console\n$ a\n```", "unknown comment"),
            ("<!-- test: `b` exits 1 -->\n```console\n$ a\n```", "no command of the block"),
            ("<!-- test: skip: it moved -->\nText", "right before a block"),
            ("<!-- test: skip: it moved -->\n```toml\na = 1\n```", "only blocks of commands"),
            ("```console\na\n```", "must be a command"),
            ("```sh\na\n```", "blocks of `console`"),
        ] {
            let error = blocks(page).expect_err(why);
            assert!(format!("{error:#}").contains(why), "{page}: {error:#}");
        }
    }

    #[test]
    fn a_program_is_run_where_that_is_said() {
        let page = "```python\nprint(1)\n```\n<!-- test: run -->\n```python\nprint(2)\n```";
        let blocks = blocks(page).expect("a page");
        assert!(matches!(blocks.as_slice(), [block] if block.steps[0].command.contains("print(2)")), "{blocks:?}");
    }
}
