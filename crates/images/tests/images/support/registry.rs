//! A real registry on the loopback: Debian's docker-registry, with everything in a directory of its own.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use box_images::Digest;

use super::http::send;
use super::picture::Picture;

const PROGRAM: &str = "/usr/bin/docker-registry";
/// The name and password of a registry that asks for one, as it wants to be shown them.
pub(crate) const BASIC: &str = "Basic YWxpYmFiYTpvcGVuc2VzYW1l";
/// The same, as the registry remembers it.
const HTPASSWD: &str = "alibaba:$2b$04$50OxwgZdeV4FUzJyZdJr.uQqJpLS4wY54H6jI.ISBNIZVjg1tSGTW\n";

pub(crate) struct Registry {
    pub(crate) address: String,
    directory: tempfile::TempDir,
    child: Child,
    authorization: Vec<(&'static str, &'static str)>,
}

impl Registry {
    /// A registry without authentication. Where there is none, the test is skipped.
    pub(crate) fn start() -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            skip(&format!("{PROGRAM} is missing; apt-get install docker-registry"));
            return None;
        }
        Some(Self::run("", Vec::new()))
    }

    /// A registry that requires a password.
    pub(crate) fn start_closed() -> Option<Self> {
        drop(Self::start()?);
        Some(Self::run("auth: {htpasswd: {realm: cave, path: DIRECTORY/htpasswd}}\n", vec![("Authorization", BASIC)]))
    }

    fn run(more: &str, authorization: Vec<(&'static str, &'static str)>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\nstorage: {{filesystem: {{rootdirectory: DIRECTORY/data}}}}\n\
             http: {{addr: '{address}'}}\n{more}"
        );
        let config = config.replace("DIRECTORY", directory.path().to_str().unwrap());
        fs::write(directory.path().join("config.yml"), config).unwrap();
        fs::write(directory.path().join("htpasswd"), HTPASSWD).unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(directory.path().join("config.yml"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let registry = Self { address, directory, child, authorization };
        for _ in 0..500 {
            if TcpStream::connect(&registry.address).is_ok() {
                return registry;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the registry does not start")
    }

    /// The full name of something in it.
    pub(crate) fn name(&self, rest: &str) -> String {
        format!("{}/{rest}", self.address)
    }

    /// Puts an image into it.
    pub(crate) fn push(&self, repository: &str, tag: &str, picture: &Picture) {
        for (digest, bytes) in &picture.blobs {
            let started = self.send("POST", &format!("/v2/{repository}/blobs/uploads/"), &[], b"");
            assert_eq!(started.status, 202, "{started:?}");
            let location = started.location.unwrap();
            let at = location.find("/v2/").unwrap();
            let path = format!("{}&digest={digest}", &location[at..]);
            let stored = self.send("PUT", &path, &[("Content-Type", "application/octet-stream")], bytes);
            assert_eq!(stored.status, 201, "{stored:?}");
        }
        self.push_manifest(repository, tag, super::picture::MANIFEST, &picture.manifest);
    }

    pub(crate) fn push_manifest(&self, repository: &str, tag: &str, kind: &str, manifest: &[u8]) {
        let stored =
            self.send("PUT", &format!("/v2/{repository}/manifests/{tag}"), &[("Content-Type", kind)], manifest);
        assert_eq!(stored.status, 201, "{stored:?}");
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> super::http::Reply {
        let headers: Vec<_> = headers.iter().chain(&self.authorization).copied().collect();
        send(&self.address, method, path, &headers, body)
    }

    /// Where it keeps a blob.
    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        let digits = digest.digits();
        let blobs = self.directory.path().join("data/docker/registry/v2/blobs/sha256");
        blobs.join(&digits[..2]).join(digits).join("data")
    }
}

/// Reports that the running test is skipped: what is missing, and how to get it.
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
fn skip(reason: &str) {
    let thread = std::thread::current();
    eprintln!("skipped: {}::{}: {reason}", env!("CARGO_PKG_NAME"), thread.name().unwrap_or("unnamed"));
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
