//! The environment that a command has before its caller adds to it. Nothing of the host's is in it.

use box_wire::User;

use crate::limits::WORKSPACE;

/// Where programs are looked for.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What every command of `user` starts from, whatever door it came through, where everybody but root is at home in `/workspace`.
pub fn base(user: User) -> Vec<(String, String)> {
    at_home(user, WORKSPACE)
}

/// The same where everybody but root is at home in `workspace`.
pub fn at_home(user: User, workspace: &str) -> Vec<(String, String)> {
    // Only root has a home of its own in every box; everybody can write to the work place.
    let (name, home) = if user.uid == 0 { ("root", "/root") } else { ("user", workspace) };
    [("PATH", PATH), ("HOME", home), ("USER", name), ("LOGNAME", name), ("LANG", "C.UTF-8")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// Sets a variable, replacing an earlier value so that no name appears twice.
pub fn set(env: &mut Vec<(String, String)>, name: &str, value: &str) {
    env.retain(|(earlier, _)| earlier != name);
    env.push((name.to_owned(), value.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_value_replaces_an_earlier_one() {
        let mut env = base(User::ROOT);
        let entries = env.len();
        set(&mut env, "HOME", "/elsewhere");
        assert_eq!(env.len(), entries);
        assert_eq!(env.iter().find(|(name, _)| name == "HOME").unwrap().1, "/elsewhere");
    }

    #[test]
    fn every_entry_passes_the_check_at_the_edge() {
        for user in [User::ROOT, User { uid: 1000, gid: 1000 }] {
            for (name, value) in base(user) {
                box_wire::exec::check_env(&name, &value).unwrap();
            }
        }
    }
}
