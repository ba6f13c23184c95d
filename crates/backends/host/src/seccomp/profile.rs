//! The table once more, in the form that container engines take: the outer wall around the agent and its commands.
//!
//! It is as wide as the widest of them needs, which is the agent. The exact table is the inner wall: a program that each command
//! installs for itself. Where both refuse, the kernel returns the error of the one that was installed last, so commands
//! never see an error of this one.

use box_core::SyscallSet;
use serde_json::{Value, json};

use super::compile::{Answer, Condition, Decision, Rule};
use super::{names, table};

/// Calls that the agent makes and its commands may not: it forks commands straight into descriptors of them.
const AGENT: [&str; 1] = ["clone3"];

/// What an engine's container may call, as the JSON document that Docker and Podman take for a profile.
pub fn engine_profile(set: SyscallSet) -> String {
    let mut always: Vec<&str> = AGENT.to_vec();
    let mut rules = Vec::new();
    for (number, decision) in table::decisions(set) {
        let Some(name) = names::name(number.into()) else { continue };
        match decision {
            Decision::Always(Answer::Allow) | Decision::ByArguments { otherwise: Answer::Allow, .. } => {
                always.push(name);
            }
            Decision::Always(Answer::Error(_)) => {}
            Decision::ByArguments { rules: given, .. } => {
                rules.extend(given.iter().filter(|rule| rule.answer == Answer::Allow).map(|rule| allow(name, rule)));
            }
        }
    }
    always.sort_unstable();
    rules.insert(0, json!({ "names": always, "action": "SCMP_ACT_ALLOW" }));
    let profile = json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": libc::ENOSYS,
        // With both tables here, numbers of x32 come as far as the inner wall, which answers that there are none.
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X32"],
        "syscalls": rules,
    });
    profile.to_string()
}

fn allow(name: &str, rule: &Rule) -> Value {
    let condition = |condition: &Condition| {
        let Condition { argument, mask, value } = condition;
        json!({ "index": argument, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" })
    };
    let conditions: Vec<Value> = rule.when.iter().map(condition).collect();
    json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": conditions })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(set: SyscallSet) -> Vec<String> {
        let profile: Value = serde_json::from_str(&engine_profile(set)).unwrap();
        let rules = profile["syscalls"].as_array().unwrap().clone();
        rules.iter().map(|rule| rule["names"][0].as_str().unwrap().to_owned()).chain(all(&rules[0])).collect()
    }

    fn all(rule: &Value) -> Vec<String> {
        rule["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_call_of_the_table_has_a_name_that_engines_know() {
        for set in [SyscallSet::Default, SyscallSet::Debug] {
            for number in table::decisions(set).into_keys() {
                assert!(names::name(number.into()).is_some(), "{number}");
            }
        }
    }

    #[test]
    fn the_outer_wall_lets_through_what_the_inner_one_does_and_what_the_agent_needs() {
        let calls = allowed(SyscallSet::Default);
        let has = |name: &str| calls.iter().any(|call| call == name);
        for name in ["read", "execve", "clone", "clone3", "seccomp", "landlock_restrict_self", "socket", "ioctl"] {
            assert!(has(name), "{name}");
        }
        for name in ["mount", "setns", "unshare", "bpf", "keyctl", "ptrace", "io_uring_setup", "open_by_handle_at"] {
            assert!(!has(name), "{name}");
        }
        assert!(allowed(SyscallSet::Debug).iter().any(|call| call == "ptrace"));
    }

    #[test]
    fn the_profile_of_an_engine() {
        let profile: Value = serde_json::from_str(&engine_profile(SyscallSet::Default)).unwrap();
        insta::assert_json_snapshot!(profile);
    }
}
