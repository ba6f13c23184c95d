mod script;

use super::*;

fn project(python: Option<Python>, node: Option<Node>) -> Project {
    Project { python, node, key: "k".into() }
}

fn secrets(entries: &[(&str, &str)]) -> Environment {
    entries.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect()
}

/// The plan for a server `s` that is mounted at `/workspace` and keeps things at `/kept`.
fn plan(command: &str, options: &BoxOptions, env: Environment, project: Option<&Project>) -> Plan {
    let (name, stdio) = ("s".parse().unwrap(), Stdio { env, ..Stdio::default() });
    let (mount, kept) = ("/workspace".parse().unwrap(), "/kept".parse().unwrap());
    Need { name: &name, stdio: &stdio, options, command, project, mount: &mount, kept: &kept }.plan().unwrap()
}

fn arguments(plan: &Plan) -> Option<String> {
    let argv = plan.program.as_ref()?.argv();
    assert_eq!((&argv[..2], argv[2], argv[3]), (&["sh", "-c"][..], SCRIPT, "prepare"));
    Some(argv[4..].join(" "))
}

fn value<'e>(env: &'e Environment, name: &str) -> Option<&'e str> {
    env.get(name).map(Secret::expose)
}

#[test]
fn what_is_done_is_in_the_arguments_and_the_script_is_always_the_same() {
    let (ro, rw) = (BoxOptions::default(), BoxOptions { host_path_mode: HostPathMode::Rw, ..BoxOptions::default() });
    let requirements = project(Some(Python::Requirements), None);
    let locked = project(None, Some(Node::Locked));
    let both = project(Some(Python::Both), Some(Node::Unlocked));
    let nothing = project(None, None);
    let table = [
        (
            "uvx",
            &ro,
            None,
            Some("/workspace /kept/servers/s/none in-place none none uvx /kept/tools 120"),
            "/workspace",
        ),
        (
            "npx",
            &ro,
            Some(&nothing),
            Some("/workspace /kept/servers/s/k in-place none none npx /kept/tools 120"),
            "/workspace",
        ),
        ("/workspace/server", &ro, Some(&nothing), None, "/workspace"),
        ("my-server", &ro, None, None, "/workspace"),
        (
            "python",
            &ro,
            Some(&requirements),
            Some("/workspace /kept/servers/s/k copy requirements none none /kept/tools 120"),
            "/kept/servers/s/k/source",
        ),
        (
            "python",
            &rw,
            Some(&requirements),
            Some("/workspace /kept/servers/s/k in-place requirements none none /kept/tools 120"),
            "/workspace",
        ),
        (
            "python",
            &ro,
            Some(&nothing),
            Some("/workspace /kept/servers/s/k in-place none none python /kept/tools 120"),
            "/workspace",
        ),
        (
            "node",
            &ro,
            Some(&locked),
            Some("/workspace /kept/servers/s/k copy none ci node /kept/tools 120"),
            "/kept/servers/s/k/source",
        ),
        (
            "my-server",
            &rw,
            Some(&both),
            Some("/workspace /kept/servers/s/k in-place requirements+package install none /kept/tools 120"),
            "/workspace",
        ),
    ];
    for (command, options, project, expected, root) in table {
        let plan = plan(command, options, Environment::new(), project);
        assert_eq!((arguments(&plan).as_deref(), plan.root.as_str()), (expected, root), "{command} {project:?}");
    }
}

#[test]
fn what_was_installed_comes_first_on_the_path_of_the_server() {
    let both = project(Some(Python::Package), Some(Node::Locked));
    let made = plan("python", &BoxOptions::default(), Environment::new(), Some(&both));
    let path = format!(
        "/kept/servers/s/k/venv/bin:/kept/servers/s/k/source/node_modules/.bin:{}:/kept/tools/bin",
        environment::PATH
    );
    assert_eq!(value(&made.env, "PATH"), Some(path.as_str()));
    assert_eq!(value(&made.env, "VIRTUAL_ENV"), Some("/kept/servers/s/k/venv"));
    let path = format!("{}:/kept/tools/bin", environment::PATH);
    assert_eq!(value(&made.program_env, "PATH"), Some(path.as_str()), "the script looks for the system's own");
    assert_eq!(value(&made.program_env, "VIRTUAL_ENV"), None);
    let own = plan("x", &BoxOptions::default(), secrets(&[("PATH", "/opt/bin")]), None);
    assert_eq!(value(&own.env, "PATH"), Some("/opt/bin:/kept/tools/bin"));
}

#[test]
fn caches_are_kept_and_the_definition_wins() {
    let made = plan("npx", &BoxOptions::default(), Environment::new(), None);
    for env in [&made.env, &made.program_env] {
        assert_eq!(value(env, "npm_config_cache"), Some("/kept/cache/npm"));
        assert_eq!(value(env, "XDG_CACHE_HOME"), Some("/kept/cache"), "pip and uv");
        assert_eq!(value(env, "UV_OFFLINE"), None);
    }
    let options = BoxOptions {
        network: Network::Off,
        env: secrets(&[("A", "of the box"), ("B", "of the box"), ("PIP_NO_INDEX", "0")]),
        ..BoxOptions::default()
    };
    let made = plan("npx", &options, secrets(&[("A", "of the server")]), None);
    assert_eq!((value(&made.env, "A"), value(&made.env, "B")), (Some("of the server"), Some("of the box")));
    assert_eq!((value(&made.env, "PIP_NO_INDEX"), value(&made.env, "UV_OFFLINE")), (Some("0"), Some("1")));
}

#[test]
fn secrets_reach_the_environment_and_nothing_that_is_shown() {
    let made = plan("python", &BoxOptions::default(), secrets(&[("KEY", "sesame")]), None);
    assert_eq!((value(&made.env, "KEY"), value(&made.program_env, "KEY")), (Some("sesame"), Some("sesame")));
    assert!(!format!("{made:?}").contains("sesame"));
    assert!(!made.program.unwrap().argv().concat().contains("sesame"));
}

#[test]
fn a_plan_fits_into_one_exec() {
    let made = plan("python", &BoxOptions::default(), Environment::new(), None);
    let request = box_wire::ExecRequest::new("x".parse().unwrap(), made.program.unwrap());
    assert!(request.validate().is_ok());
}

#[test]
fn a_definition_for_the_host_becomes_a_call_in_the_box() {
    use crate::definition::{Kind, ServerDefinition};
    use crate::workspace::{Inferred, Invocation, Programs, Workspace, infer, look_at_host};

    let directory = tempfile::tempdir().unwrap();
    let host = directory.path().canonicalize().unwrap().join("project");
    std::fs::create_dir(&host).unwrap();
    std::fs::write(host.join("requirements.txt"), "mcp\n").unwrap();
    std::fs::write(host.join("server.py"), "").unwrap();
    let host = host.to_str().unwrap();
    let definition = ServerDefinition::try_from(serde_json::json!({
        "name": "mine", "command": format!("{host}/.venv/bin/python3"), "args": [format!("{host}/server.py"), "-v"],
    }))
    .unwrap();
    let Kind::Stdio(stdio) = &definition.kind else { panic!("not stdio") };
    assert_eq!(infer(stdio, &look_at_host), Inferred::Directory(host.into()));

    let call = |guest: &GuestPath| {
        let workspace = Workspace::new(host, guest.clone(), &look_at_host).unwrap();
        Invocation::new(stdio, Some(&workspace), guest, Programs::OfHost, &look_at_host).unwrap()
    };
    let project = Project::examine(&box_core::SafeRoot::open_path(host.as_ref()).unwrap()).unwrap();
    let (mount, kept) = ("/workspace".parse().unwrap(), "/kept".parse().unwrap());
    let mounted = call(&mount);
    assert_eq!((mounted.command.as_str(), mounted.args[0].as_str()), ("python", "/workspace/server.py"));
    let plan = Need {
        name: &definition.name,
        stdio,
        options: &definition.options,
        command: &mounted.command,
        project: Some(&project),
        mount: &mount,
        kept: &kept,
    }
    .plan()
    .unwrap();
    let called = call(&plan.root);
    let root = format!("/kept/servers/mine/{}/source", project.key);
    assert_eq!((called.args, called.cwd.as_str()), (vec![format!("{root}/server.py"), "-v".to_owned()], root.as_str()));
}
