//! What can be typed. What it means is decided in [`crate::run::intent`].

use std::ffi::OsString;
use std::path::PathBuf;

use box_core::Network;
use box_host::network::Subnet;
use box_wire::User;
use clap::{Args, Parser, Subcommand};

use crate::config::BackendRequest;
use crate::values::{self, MountText, Requirement};
use crate::{audit, backends, client, config, image, langbot, profiles, serve, token};

const EXAMPLES: &str = "\
Examples:
  Run a command; it sees the host's programs, none of its files, and no network:
    strongbox run -- python3 -c 'print(6 * 7)'
  Let it work on a directory, with a deadline and more memory:
    strongbox run --workspace . --timeout 60 --memory 2g -- make test
  Look around inside, with network:
    strongbox run -it --network on -- bash
  See what this machine can enforce, and how to make it enforce more:
    strongbox doctor
  Start a server, and keep a box between commands:
    strongbox serve &
    strongbox exec demo -- sh -c 'echo words > note'
    strongbox exec demo -- cat note

Exit codes of `run`, `exec`, `shell`, `attach` and `logs -f`: the command's own, or
  124    the deadline passed
  125    strongbox itself failed, or was called wrongly
  126    the command cannot be executed
  127    the command does not exist in the box
  128+N  signal N ended the command; 137 is also what out of memory gives, and standard error says so
All other commands: 0, or 125 with the reason on standard error; docs/cli.md lists the exceptions.

Environment:
  STRONGBOX_BACKEND    where boxes live, as --backend
  STRONGBOX_STATE_DIR  where boxes and the server's state are kept, as --state-dir
  STRONGBOX_CONFIG     the configuration file, as --config
  STRONGBOX_URL        the server to ask, as --url
  STRONGBOX_TOKEN      the token to show it
  STRONGBOX_LOG        writes a log to standard error, e.g. `debug` or `box_native=trace`
  NO_COLOR             no colours

More: `strongbox COMMAND --help`, docs/cli.md, docs/config.md and README.md of the source tree.";

/// Runs commands in boxes that cannot hurt this machine
#[derive(Debug, Parser)]
#[command(name = "strongbox", version, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run one command in a box of its own
    ///
    /// The box is made, runs the command and is removed. Standard input, output and error are the command's own, and its
    /// exit code is passed on. By default it sees the host's programs read-only and none of its files, has no network,
    /// and gets one processor, 512 MiB of memory, 128 processes and 307 MiB of disk.
    #[command(override_usage = "strongbox run [OPTIONS] -- CMD [ARGS]...")]
    Run(Box<RunOptions>),
    /// Say what this machine can enforce, and the exact command that fixes what it cannot
    ///
    /// Every facility is really tried, and one box is made and removed. Exits with 0 when boxes can be made, else with 1.
    /// Without --backend it is the native one, and how the others stand is told as well.
    Doctor(DoctorOptions),
    /// Say which backends work here, what the others lack, and which one a server would use
    Backends(backends::BackendsOptions),
    /// List, fetch, import and remove images that boxes can stand on
    #[command(subcommand)]
    Image(image::ImageVerb),
    /// List the presets for `--profile`, those of the configuration included
    Profiles(profiles::ProfilesOptions),
    /// Serve sessions over HTTP and a unix socket
    Serve(Box<serve::ServeOptions>),
    /// Serve LangBot in the place of its own box runtime
    Box(Box<langbot::BoxOptions>),
    /// Show or check what the server is configured with
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// Make, list and revoke tokens
    #[command(subcommand)]
    Token(token::TokenVerb),
    /// Verify and read the audit log
    #[command(subcommand)]
    Audit(audit::AuditVerb),
    /// Run a command in a session
    ///
    /// The first command makes the session, later ones find it as it was left. Standard input, output and error are the
    /// command's own, and its exit code is passed on.
    #[command(override_usage = "strongbox exec [OPTIONS] SESSION -- CMD [ARGS]...")]
    Exec(Box<client::exec::ExecOptions>),
    /// Run code in a session, as in a notebook
    ///
    /// The first call makes the session. Names that the code defines are there for the next call in the same language.
    #[command(
        override_usage = "strongbox code [OPTIONS] SESSION [FILE]\n       strongbox code [OPTIONS] SESSION -c CODE"
    )]
    Code(Box<client::code::CodeOptions>),
    /// Open a terminal in a session
    Shell(Box<client::shell::ShellOptions>),
    /// Make, list, pause and remove sessions
    #[command(subcommand)]
    Session(client::session::SessionVerb),
    /// Save sessions, and list, show and delete what was saved
    #[command(subcommand)]
    Snapshot(client::snapshot::SnapshotVerb),
    /// Copy a session: a new box with the same files
    Fork(client::fork::ForkOptions),
    /// List and delete templates that were built for clients of E2B
    #[command(subcommand)]
    Template(client::template::TemplateVerb),
    /// List managed processes and commands
    Ps(client::ps::PsOptions),
    /// Start and stop programs that live on
    #[command(subcommand)]
    Process(client::process::ProcessVerb),
    /// Show what a command or process wrote
    Logs(client::logs::LogsOptions),
    /// End a command that runs, or send it a signal
    Kill(client::kill::KillOptions),
    /// Talk to a managed process
    Attach(client::attach::AttachOptions),
    /// Copy files into a session and out of it
    #[command(
        override_usage = "strongbox cp [OPTIONS] SESSION:PATH PATH|-\n       strongbox cp [OPTIONS] PATH|- SESSION:PATH"
    )]
    Cp(client::cp::CpOptions),
    /// List files of a session
    Ls(client::ls::LsOptions),
    /// Reach services of a session's box from this machine
    PortForward(client::port_forward::PortForwardOptions),
    /// List, show, install and remove skills
    #[command(subcommand)]
    Skill(client::skill::SkillVerb),
    /// Create, list, show and remove volumes
    #[command(subcommand)]
    Volume(client::volume::VolumeVerb),
    /// Prepare templates for clients of E2B
    #[command(subcommand)]
    E2b(client::e2b::E2bVerb),
    /// Add, list, try, watch and remove MCP servers
    #[command(subcommand)]
    Mcp(client::mcp::McpVerb),
    /// Say how the server stands
    Status(client::status::StatusOptions),
    /// List what went wrong lately
    Errors(client::errors::ErrorsOptions),
    /// Write a completion script for a shell to standard output
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub(crate) format: JsonOption,
    #[command(flatten)]
    pub(crate) engine: EngineOptions,
}

#[derive(Debug, Args)]
pub(crate) struct JsonOption {
    /// Write JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Signals: the first SIGINT, SIGTERM, SIGHUP or SIGQUIT is passed to the command, the second removes the box.
Exit codes and examples: `strongbox --help`.")]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    #[command(flatten)]
    pub(crate) files: FileOptions,
    #[command(flatten)]
    pub(crate) command: CommandOptions,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    #[command(flatten)]
    pub(crate) engine: EngineOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// Start from a preset; `strongbox profiles` lists them. What it locks cannot be set by other flags
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// What the box can reach: its own loopback (off), or everything but this machine's loopback (on)
    #[arg(long, value_name = "on|off", value_parser = values::network)]
    pub(crate) network: Option<Network>,
    /// Memory, without swap; in MiB, or with m, g or t
    #[arg(long, value_name = "SIZE", value_parser = values::size_mb, allow_hyphen_values = true)]
    pub(crate) memory: Option<u64>,
    /// Processors; fractions count
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub(crate) cpus: Option<f64>,
    /// Processes at once
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub(crate) pids: Option<u64>,
    /// What the box can store outside of mounts; in MiB, or with m, g or t
    #[arg(long, value_name = "SIZE", value_parser = values::size_mb, allow_hyphen_values = true)]
    pub(crate) disk: Option<u64>,
    /// Kill everything after this time; fractions count. Without it there is no deadline, unless the profile locks it
    #[arg(long, value_name = "SECONDS", value_parser = values::timeout_ms, allow_hyphen_values = true)]
    pub(crate) timeout: Option<u64>,
    /// Refuse to run where this is not enforced by the kernel: cpu, memory, pids, disk_bytes, disk_inodes, network,
    /// rootfs, syscalls, identity, kill, or all. Repeatable
    #[arg(long, value_name = "GUARANTEE", value_parser = values::requirement)]
    pub(crate) require: Vec<Requirement>,
    /// Run although nothing here enforces --memory, --cpus or --pids as typed; without it, that is refused
    #[arg(long)]
    pub(crate) allow_unenforced: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct FileOptions {
    /// Show a directory or file of this machine in the box, read-only unless rw is added. Repeatable
    #[arg(long, value_name = "SRC:DST[:ro|rw]", value_parser = values::mount)]
    pub(crate) mount: Vec<MountText>,
    /// Let the command work on this directory: as --mount DIR:/workspace:rw, or ro where the profile says so
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,
    /// Root file system: this machine's programs (host), a directory, a tar file, or the name of an image in a registry
    #[arg(long, value_name = "host|DIR|TAR|NAME", default_value = "host")]
    pub(crate) image: PathBuf,
    /// Let the command change its whole root; the changes go with the box
    #[arg(long, conflicts_with = "read_only")]
    pub(crate) writable_root: bool,
    /// Let the command write only to /workspace, /tmp, its home and mounts
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Keep what the box stores on disk instead of in its memory, as is done where --disk is too large for that
    #[arg(long)]
    pub(crate) keep_on_disk: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Command")]
pub(crate) struct CommandOptions {
    /// Pass standard input on even from a terminal; a pipe or file is always passed on
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Give the command a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Set a variable, or pass the caller's value on. Nothing else is inherited. Repeatable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<String>,
    /// Where to run it
    #[arg(short, long, value_name = "PATH", default_value = "/workspace")]
    pub(crate) workdir: String,
    /// Who runs it, inside the box
    #[arg(short, long, value_name = "UID[:GID]", value_parser = values::user)]
    pub(crate) user: Option<User>,
    /// The program and its arguments. For a command line: -- sh -c '…'
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) argv: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
pub(crate) struct ReportOptions {
    /// First say on standard error what the box enforces, and by what
    #[arg(long)]
    pub(crate) guarantees: bool,
    /// Last write one line of JSON to standard error: how it ended, what it used, what was enforced
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct EngineOptions {
    /// Where boxes live: native, podman, docker, nsjail or e2b, or auto for the first of backend_order that works here. Without it
    /// what the profile says, or native
    #[arg(long, value_name = "NAME", env = "STRONGBOX_BACKEND", hide_env_values = true)]
    pub(crate) backend: Option<BackendRequest>,
    /// Where boxes are kept
    #[arg(long, value_name = "DIR", env = "STRONGBOX_STATE_DIR", hide_env_values = true)]
    pub(crate) state_dir: Option<PathBuf>,
    /// How `--network on` is made, instead of the best that works here
    #[arg(long, value_name = "pasta|slirp4netns|veth")]
    pub(crate) network_method: Option<String>,
    /// Reserved network that the box may reach, such as 10.0.0.0/8. Can be repeated
    #[arg(long, value_name = "NETWORK")]
    pub(crate) network_reserved: Vec<Subnet>,
}
