//! The first page of help: commands in groups, each with what it is for.

use clap::{Command, CommandFactory};

use crate::options::Cli;

/// Commands by what one wants to do. One that is missing here is missing from the page, which a test notices.
const GROUPS: [(&str, &[&str]); 4] = [
    ("One command in a box of its own", &["run", "doctor", "backends", "image", "profiles"]),
    ("A server, on its own machine", &["serve", "box", "config", "token", "audit"]),
    (
        "Sessions, by asking a server",
        &[
            "exec",
            "code",
            "shell",
            "session",
            "snapshot",
            "fork",
            "template",
            "ps",
            "process",
            "kill",
            "logs",
            "attach",
            "cp",
            "ls",
            "port-forward",
            "skill",
            "volume",
            "mcp",
            "e2b",
            "status",
            "errors",
        ],
    ),
    ("Other", &["completions", "help"]),
];

/// What can be typed, with its help.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let groups = groups(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}{{after-help}}"
    ))
}

fn groups(command: &Command) -> String {
    let about = |name: &str| match command.find_subcommand(name) {
        Some(found) => found.get_about().map(ToString::to_string).unwrap_or_default(),
        None => "Print this message or the help of the given command".to_owned(),
    };
    let line = |name: &&str| format!("  {name:<14}{}\n", about(name));
    let group = |(head, names): &(&str, &[&str])| format!("\n{head}:\n{}", names.iter().map(line).collect::<String>());
    GROUPS.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_every_name_is_a_command() {
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let command = Cli::command();
        let mut known: Vec<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        let mut sorted = listed.clone();
        sorted.sort_unstable();
        known.sort_unstable();
        assert_eq!(sorted, known);
    }

    #[test]
    fn every_command_that_does_something_shows_an_example() {
        fn check(command: &Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            if command.has_subcommands() {
                return command.get_subcommands().for_each(|inner| check(inner, &path));
            }
            let known = ["run", "doctor", "profiles", "completions", "resume"];
            let shows = command.get_after_help().is_some_and(|text| text.to_string().contains("strongbox "));
            assert!(shows || known.contains(&command.get_name()), "{path}");
        }
        Cli::command().get_subcommands().for_each(|verb| check(verb, "strongbox"));
    }

    #[test]
    fn the_parser_agrees_with_itself() {
        command().debug_assert();
    }
}
