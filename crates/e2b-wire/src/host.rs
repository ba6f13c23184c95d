//! Names under which ports of sandboxes are reached: `{port}-{sandbox}.{domain}`.

use crate::SandboxId;

/// A port of a sandbox, as the name of a host says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxHost {
    /// Which port.
    pub port: u16,
    /// Of which sandbox.
    pub sandbox: SandboxId,
}

impl SandboxHost {
    /// Reads the first label of a host's name; nothing when that is another kind of name.
    pub fn parse(host: &str) -> Option<Self> {
        let (label, _) = host.split_once('.')?;
        let (port, sandbox) = label.split_once('-')?;
        let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok()).flatten()?;
        let is_id = |sandbox: &&str| !sandbox.contains('-');
        let sandbox = Some(sandbox).filter(is_id)?.to_ascii_lowercase().parse().ok()?;
        (port != 0).then_some(Self { port, sandbox })
    }

    /// The name below a domain.
    pub fn name(&self, domain: &str) -> String {
        format!("{}-{}.{domain}", self.port, self.sandbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_port_and_sandbox() {
        let host = SandboxHost::parse("49983-abc123.box.example:8443").unwrap();
        assert_eq!((host.port, host.sandbox.as_str()), (49983, "abc123"));
        assert_eq!(host.name("box.example"), "49983-abc123.box.example");
        assert_eq!(SandboxHost::parse("80-ABC.x"), SandboxHost::parse("80-abc.x"), "names of hosts have no capitals");
    }

    #[test]
    fn other_names_say_nothing() {
        for other in
            ["", "localhost", "80-abc", "box.example", "-abc.x", "0-abc.x", "99999-abc.x", "+80-abc.x", "80-a-b.x"]
        {
            assert_eq!(SandboxHost::parse(other), None, "{other}");
        }
    }
}
