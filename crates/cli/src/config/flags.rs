//! Keys that are set on the command line.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::example::{first_sentence, usual};
use super::key::{KEYS, Key};

/// A key that was set on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Flag {
    /// As it is typed.
    pub(super) name: &'static str,
    /// The key.
    pub(super) key: &'static str,
    /// What was typed.
    pub(super) text: String,
}

impl Flag {
    /// The flags of a table that were typed.
    pub(crate) fn given(table: &[(&'static str, &'static str, &Option<String>)]) -> Vec<Self> {
        let flag = |(name, key, text): &(&'static str, &'static str, &Option<String>)| {
            text.as_ref().map(|text| Self { name, key, text: text.clone() })
        };
        table.iter().filter_map(flag).collect()
    }
}

/// The flags of `strongbox serve` that set a key: those of the keys that have one.
#[derive(Debug, Clone)]
pub(crate) struct KeyFlags(pub(crate) Vec<Flag>);

impl Args for KeyFlags {
    fn augment_args(command: Command) -> Command {
        let argument = |key: &'static Key| {
            let (flag, value_name) = key.flag?;
            let usual = usual(key).map_or_else(String::new, |usual| format!("; else {usual}"));
            let help = format!("{}{usual}", first_sentence(&key.doc)).replace('`', "");
            Some(Arg::new(key.name.as_str()).long(flag.trim_start_matches('-')).value_name(value_name).help(help))
        };
        command.args(KEYS.iter().filter_map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KeyFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |key: &'static Key| {
            let text: &String = matches.get_one(&key.name)?;
            Some(Flag { name: key.flag?.0, key: &key.name, text: text.clone() })
        };
        Ok(Self(KEYS.iter().filter(|key| key.flag.is_some()).filter_map(typed).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
