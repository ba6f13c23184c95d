//! Skills in sessions whose boxes are only written down. That real ones show them is a matter of the doors suite.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use box_wire::BoxId;

use super::*;
use crate::backend::{AgentStream, Backend, BackendName, Capabilities, Handle, Liveness, Stats};
use crate::service::tests::Memory;
use crate::session::SessionInfo;
use crate::{BoxSpec, Guarantees, ServiceConfig, TenantId};

/// A place where boxes are only written down.
#[derive(Debug)]
struct Paper {
    made: Mutex<Vec<BoxSpec>>,
    shares_filesystem: bool,
}

#[async_trait]
impl Backend for Paper {
    fn name(&self) -> BackendName {
        BackendName::Native
    }
    fn shares_filesystem(&self) -> bool {
        self.shares_filesystem
    }
    async fn probe(&self) -> Capabilities {
        Capabilities { available: true, findings: Vec::new() }
    }
    async fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        self.made.lock().unwrap().push(spec.clone());
        let (backend, guarantees) = (BackendName::Native, Guarantees::default());
        Ok(Handle::new(id.clone(), backend, guarantees, String::new()))
    }
    async fn adopt(&self, _handle: &Handle) -> Result<Liveness> {
        Ok(Liveness::Running)
    }
    async fn dial(&self, _handle: &Handle) -> Result<AgentStream> {
        Err(Error::Stopping)
    }
    async fn pause(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }
    async fn resume(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }
    async fn journal(&self, _handle: &Handle) -> Result<OwnedFd> {
        Ok(std::fs::File::open("/").unwrap().into())
    }
    async fn stats(&self, _handle: &Handle) -> Result<Stats> {
        Ok(Stats::default())
    }
    async fn destroy(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }
    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        Ok(Vec::new())
    }
}

/// Skills of the default tenant.
#[derive(Debug, Default)]
struct TestSkills {
    skills: Mutex<Vec<SkillInfo>>,
    root: PathBuf,
}

#[async_trait]
impl Skills for TestSkills {
    async fn list(&self, tenant: &TenantId) -> Result<Vec<SkillInfo>> {
        let all = self.skills.lock().unwrap().clone();
        Ok(if *tenant == TenantId::default() { all } else { Vec::new() })
    }
    async fn get(&self, tenant: &TenantId, name: &str) -> Result<Option<SkillInfo>> {
        Ok(self.list(tenant).await?.into_iter().find(|skill| skill.name == name))
    }
    async fn root(&self, _tenant: &TenantId) -> Result<PathBuf> {
        Ok(self.root.clone())
    }
}

/// A service with skills, and somebody who asks.
struct World {
    service: Service,
    backend: Arc<Paper>,
    test_skills: Arc<TestSkills>,
    caller: Caller,
    id: SessionId,
}

impl World {
    async fn with(skills: &[(&str, &str)], shares_filesystem: bool) -> Self {
        Self::at(Path::new("/skills"), skills, shares_filesystem).await
    }

    async fn at(root: &Path, skills: &[(&str, &str)], shares_filesystem: bool) -> Self {
        let backend = Arc::new(Paper { made: Mutex::default(), shares_filesystem });
        let given: Arc<dyn Backend> = Arc::clone(&backend) as _;
        let service = Service::open(given, Arc::new(Memory::default()), None, ServiceConfig::default()).await.unwrap();
        let test_skills = Arc::new(TestSkills { root: root.to_owned(), ..TestSkills::default() });
        let service = service.with_skills(Arc::clone(&test_skills) as _);
        let world = Self { service, backend, test_skills, caller: Caller::local(), id: "s".parse().unwrap() };
        for (name, root) in skills {
            world.install(name, root);
        }
        world
    }

    fn install(&self, name: &str, root: &str) {
        let (name, package_root, instructions) = (name.to_owned(), root.to_owned(), format!("do {name}"));
        let skill =
            SkillInfo { name, package_root, instructions, entry_file: "SKILL.md".into(), ..SkillInfo::default() };
        self.test_skills.skills.lock().unwrap().push(skill);
    }

    async fn session(&self) -> SessionInfo {
        let request = self.service.with_skill_mounts(&self.caller, &self.id, SessionRequest::default()).await.unwrap();
        self.service.create_session(&self.caller, &self.id, &request).await.unwrap().0
    }

    async fn activate(&self, name: &str) -> Result<Activation> {
        self.service.activate_skill(&self.caller, &self.id, &SessionRequest::default(), name).await
    }

    async fn line(&self, command: &str) -> Result<String> {
        self.service.skill_line(&self.caller, &self.id, None, None, command).await
    }

    /// Mounts of the box that was made last.
    fn mounts(&self) -> Vec<MountSpec> {
        self.backend.made.lock().unwrap().last().unwrap().mounts.clone()
    }

    fn boxes(&self) -> usize {
        self.backend.made.lock().unwrap().len()
    }
}

#[tokio::test]
async fn a_session_of_tools_shows_the_skills_of_its_tenant() {
    let world = World::with(&[("a", "/skills/one")], false).await;
    world.session().await;
    let expected = MountSpec {
        source: "/skills/one".into(),
        target: "/workspace/.skills/a".parse().unwrap(),
        mode: MountMode::Rw,
        origin: Origin::Skills("/skills".into()),
    };
    assert_eq!(world.mounts(), [expected]);
    let other = World { caller: Caller { tenant: "b".parse().unwrap(), ..Caller::local() }, ..world };
    other.session().await;
    assert!(other.mounts().is_empty());
    assert_eq!(other.activate("a").await.unwrap_err().code(), "skill_not_found");
}

#[tokio::test]
async fn the_backend_decides_whether_places_are_trusted() {
    for (shares_filesystem, expected) in [(true, 0), (false, 1)] {
        let world = World::with(&[("ghost", "/nonexistent/package")], shares_filesystem).await;
        world.session().await;
        assert_eq!(world.mounts().len(), expected, "{shares_filesystem}");
        assert_eq!(world.activate("ghost").await.map_err(|error| error.code()).is_ok(), !shares_filesystem);
    }
}

#[tokio::test]
async fn a_service_without_skills_mounts_none() {
    let backend: Arc<dyn Backend> = Arc::new(Paper { made: Mutex::default(), shares_filesystem: true });
    let service = Service::open(backend, Arc::new(Memory::default()), None, ServiceConfig::default()).await.unwrap();
    let (caller, id, request) = (Caller::local(), "s".parse().unwrap(), SessionRequest::default());
    assert_eq!(service.with_skill_mounts(&caller, &id, request.clone()).await.unwrap().rules.skills, None);
    let error = service.activate_skill(&caller, &id, &request, "a").await.unwrap_err();
    assert!(error.to_string().contains("no skill is installed"), "{error}");
}

#[tokio::test]
async fn an_activated_skill_can_be_used_and_others_cannot() {
    let world = World::with(&[("a", "/skills/a"), ("b", "/skills/b")], false).await;
    assert_eq!(world.line("ls").await.unwrap(), "ls", "also without a session");
    assert_eq!(world.line("ls .skills/a").await.unwrap_err().code(), "skill_not_activated");
    let told = world.activate(" a ").await.unwrap();
    assert_eq!((told.skill_name.as_str(), told.instructions.as_str()), ("a", "do a"));
    assert_eq!((told.path.as_str(), told.writable), ("/workspace/.skills/a", true));
    assert!(told.usage.contains("/workspace/.skills/a") && told.usage.contains("SKILL.md"), "{}", told.usage);
    assert_eq!(world.line("ls .skills/a").await.unwrap(), "ls .skills/a");
    assert_eq!(world.line("ls .skills/b").await.unwrap_err().code(), "skill_not_activated");
    world.activate("b").await.unwrap();
    assert_eq!(world.line("diff .skills/a .skills/b").await.unwrap_err().code(), "several_skills");
    assert_eq!(world.service.activated_skills(&world.caller, &world.id).unwrap().len(), 2);
    let error = world.activate("c").await.unwrap_err();
    assert!(error.to_string().contains("installed are a, b"), "{error}");
}

#[tokio::test]
async fn a_box_stays_until_a_skill_is_activated_that_it_does_not_show() {
    let world = World::with(&[("a", "/skills/a")], false).await;
    let first = world.session().await;
    world.activate("a").await.unwrap();
    world.install("late", "/skills/late");
    assert_eq!(world.session().await.backend_session_id, first.backend_session_id, "installing changes no box");
    assert_eq!(world.boxes(), 1);
    world.activate("late").await.unwrap();
    assert_eq!((world.boxes(), world.mounts().len()), (2, 2));
    assert_eq!(world.service.activated_skills(&world.caller, &world.id).unwrap().len(), 2, "both are active");
    world.activate("a").await.unwrap();
    assert_eq!(world.boxes(), 2);
}

#[tokio::test]
async fn a_skill_that_there_was_no_room_for_comes_in_when_it_is_activated() {
    let world = World::with(&[], false).await;
    (0..40).for_each(|number| world.install(&format!("s{number}"), "/skills/x"));
    world.session().await;
    let last: GuestPath = "/workspace/.skills/s39".parse().unwrap();
    assert!(!world.mounts().iter().any(|mount| mount.target == last));
    world.activate("s39").await.unwrap();
    assert!(world.mounts().iter().any(|mount| mount.target == last));
    assert_eq!(world.mounts().len(), limits::SKILLS_MOUNTED_MAX);
}

#[tokio::test]
async fn what_is_mounted_elsewhere_is_the_callers_own_affair() {
    let world = World::with(&[("a", "/skills/a")], false).await;
    let mount =
        |path: &str| ExtraMount { host_path: "/x".into(), mount_path: path.parse().unwrap(), mode: HostPathMode::Ro };
    let request = SessionRequest { extra_mounts: Some(vec![mount("/x")]), ..SessionRequest::default() };
    let request = world.service.with_skill_mounts(&world.caller, &world.id, request).await.unwrap();
    world.service.create_session(&world.caller, &world.id, &request).await.unwrap();
    let origins: Vec<Origin> = world.mounts().into_iter().map(|mount| mount.origin).collect();
    assert_eq!(origins, [Origin::Caller, Origin::Skills(Path::new("/skills").into())]);
}

#[tokio::test]
async fn a_profile_can_show_skills_read_only_and_lock_other_mounts() {
    let world = World::with(&[("a", "/skills/a")], false).await;
    let mut config = ServiceConfig::default();
    let locked = [crate::profile::LockedField::ExtraMounts].into();
    let careful =
        crate::Profile { name: "careful".into(), skills_mode: HostPathMode::Ro, locked, ..Default::default() };
    config.profiles.insert(careful);
    config.default_profile = "careful".to_owned();
    world.service.reload(config);
    assert!(!world.activate("a").await.unwrap().writable);
    assert_eq!(world.mounts().iter().map(|mount| mount.mode).collect::<Vec<_>>(), [MountMode::Ro]);
}

#[tokio::test]
async fn a_package_that_may_not_be_mounted_hides_no_other() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let paths = ["good", "bad"].map(|name| root.join(name));
    for path in &paths {
        std::fs::create_dir(path).unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(root.join("bad/socket")).unwrap();
    let named = ["good", "bad", "outside"];
    let texts = [paths[0].to_str().unwrap(), paths[1].to_str().unwrap(), "/usr"];
    let skills: Vec<(&str, &str)> = named.into_iter().zip(texts).collect();
    let world = World::at(&root, &skills, true).await;
    world.session().await;
    assert_eq!(world.mounts().iter().map(|mount| mount.target.name().to_owned()).collect::<Vec<_>>(), ["good"]);
    assert_eq!(world.activate("bad").await.unwrap_err().code(), "skill_stale");
}
