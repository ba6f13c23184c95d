//! The profile of a box that is made by hand. Whoever types is the operator, so what a profile locks is not overridden in
//! silence: the flag is refused.

use box_core::session::UnknownImage;
use box_core::{Image, LockedField, Profile};
use box_wire::Invalid;

use crate::config::{Config, PlaceOptions};
use crate::fault::Fault;

/// A profile, with what its image means here.
#[derive(Debug)]
pub(super) struct Preset {
    /// The profile.
    pub(super) profile: Profile,
    /// Its root file system.
    pub(super) image: Image,
}

impl Preset {
    /// The profile of that name. The configuration is read only for one that is not built in: a command needs none.
    pub(super) fn named(name: Option<&str>) -> Result<Self, Fault> {
        let built_in = name.map_or_else(|| Some(Profile::default()), Profile::built_in);
        match (built_in, name) {
            (Some(profile), _) => Ok(Self { profile, image: Image::Host }),
            (None, name) => {
                let place = PlaceOptions::default();
                Self::configured(name.unwrap_or_default(), &place.settings(&place.flags())?.config()?)
            }
        }
    }

    fn configured(name: &str, config: &Config) -> Result<Self, Fault> {
        let Ok(profile) = config.profiles.get(name) else {
            let known: Vec<_> =
                config.profiles.iter().map(|known| format!("{} ({})", known.name, known.about)).collect();
            let invalid = Invalid::new("profile", name, "the name of a profile");
            return Err(Fault::from(invalid).hint(format!("the profiles are: {}", known.join("; "))));
        };
        let image = config.image_policy().decide(&profile.image, UnknownImage::Refused)?;
        Ok(Self { profile: profile.clone(), image })
    }

    /// What was typed, or what the profile has. What is locked cannot be typed, unless it says the same.
    pub(super) fn choose<T: PartialEq>(
        &self,
        field: LockedField,
        flag: &str,
        typed: Option<T>,
        own: T,
    ) -> Result<T, Fault> {
        self.profile.choose(field, typed, own).map_err(|field| self.refusal(field, flag))
    }

    /// The deadline. A command that is typed has none, unless the profile locks it.
    pub(super) fn timeout_ms(&self, typed: Option<u64>) -> Result<Option<u64>, Fault> {
        match self.profile.locked_deadline_sec() {
            Some(locked) => self.choose(LockedField::TimeoutSec, "--timeout", typed, locked * 1000).map(Some),
            None => Ok(typed),
        }
    }

    /// The flag that raises a limit, unless the profile locks that setting.
    pub(super) fn fix(&self, field: LockedField, flag: &str) -> String {
        if self.profile.locks(field) {
            format!("the profile {} locks it; use another one with --profile", self.profile.name)
        } else {
            format!("raise it with {flag}")
        }
    }

    fn refusal(&self, field: LockedField, flag: &str) -> Fault {
        let name = &self.profile.name;
        Fault::new(format!("{flag} cannot be used: the profile {name} locks {field}"))
            .hint("leave it out, or choose another profile; `strongbox profiles` shows what each locks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Settings};

    fn preset(locked: LockedField) -> Preset {
        let profile = Profile { name: "p".into(), locked: [locked].into(), ..Profile::default() };
        Preset { profile, image: Image::Host }
    }

    #[test]
    fn a_flag_for_what_is_locked_is_refused_unless_it_says_the_same() {
        let preset = preset(LockedField::Cpus);
        let choose = |field, typed| preset.choose(field, "--cpus", typed, 1);
        assert_eq!(choose(LockedField::Cpus, None).unwrap(), 1);
        assert_eq!(choose(LockedField::Cpus, Some(1)).unwrap(), 1);
        assert_eq!(choose(LockedField::MemoryMb, Some(2)).unwrap(), 2, "not locked");
        let fault = choose(LockedField::Cpus, Some(2)).unwrap_err();
        assert_eq!(fault.message, "--cpus cannot be used: the profile p locks cpus");
    }

    #[test]
    fn a_command_has_a_deadline_only_when_one_is_typed_or_locked() {
        let free = preset(LockedField::Cpus);
        assert_eq!((free.timeout_ms(None).unwrap(), free.timeout_ms(Some(5)).unwrap()), (None, Some(5)));
        let held = preset(LockedField::TimeoutSec);
        assert_eq!(held.timeout_ms(None).unwrap(), Some(30_000));
        assert!(held.timeout_ms(Some(5)).is_err());
    }

    #[test]
    fn a_profile_of_the_configuration_brings_its_image() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[profiles.mine]\ncpus = 2\nimage = \"small\"\n[images]\nsmall = \"dir:/srv/small\"\n";
        std::fs::write(file.path(), text).unwrap();
        let config = Settings::load(Some(file.path()), &Environment::default(), &[]).unwrap().config().unwrap();
        let preset = Preset::configured("mine", &config).unwrap();
        assert_eq!((preset.profile.cpus, preset.image), (2.0, Image::Directory("/srv/small".into())));
        let fault = Preset::configured("nonexistent", &config).unwrap_err();
        assert!(fault.hint.unwrap().contains("mine (as default"), "{}", fault.message);
    }
}
