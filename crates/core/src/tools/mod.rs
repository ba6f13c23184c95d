//! The tools of an agent: commands and files, in the session that its query belongs to, with answers that a model can read.
//!
//! A door hands over the name of a tool, what the model wrote, and what the program around the model knows of the query. Which session
//! that means is decided here ([`session_id_of`]) and never by the model. What the model can set right (a file that is not there, a text
//! that does not match) is an answer with `ok: false`; what it cannot is an error, as of every other call.

mod activate;
mod catalogue;
mod code;
mod exec;
mod files;
mod parameters;
mod query;
mod result;
mod scope;

use async_recursion::async_recursion as boxed;
use box_wire::GuestPath;
use serde_json::Value;

use crate::session::{ChangedMounts, DoorRules, SessionId, SessionRequest};
use crate::{Caller, Error, Result, Scope, Service};

pub use catalogue::{Tool, catalogue};
pub use query::QueryContext;
pub use scope::{DEFAULT_TEMPLATE, check_template, session_id_of};

use activate::Activate;
use catalogue::ToolName;
use code::Code;
use exec::Command;
use files::FileTool;
use parameters::Parameters;

impl Service {
    /// Runs a tool for an agent, in the session of its query, which is made if it does not exist.
    #[boxed]
    pub async fn tool(&self, caller: &Caller, name: &str, parameters: Value, query: &QueryContext) -> Result<Value> {
        let caller = &Caller { query_id: query.query_id.clone(), ..caller.clone().for_tools() };
        let session = session_id_of(&self.settings(), query);
        Ok(result::without_images(self.run_tool(caller, session, name, parameters).await?))
    }

    /// Runs a tool for an agent, in a session of the caller's choice, which is made if it does not exist. The answer can have
    /// `images`, a list of `media_type` and `data` in base64, which the caller shows to the model as images.
    #[boxed]
    pub async fn tool_in(&self, caller: &Caller, session: &SessionId, name: &str, parameters: Value) -> Result<Value> {
        self.run_tool(&caller.clone().for_tools(), Ok(session.clone()), name, parameters).await
    }

    async fn run_tool(
        &self,
        caller: &Caller,
        session: Result<SessionId>,
        name: &str,
        parameters: Value,
    ) -> Result<Value> {
        let tool = ToolName::find(name).ok_or_else(|| Error::ToolNotFound {
            tool: name.chars().take(crate::limits::TOOL_NAME_CHARS_MAX).collect(),
            known: catalogue::names(),
        })?;
        caller.require(match tool {
            ToolName::Exec | ToolName::RunCode | ToolName::Activate => Scope::Exec,
            _ => Scope::Files,
        })?;
        let session = session?;
        caller.check_session(&session)?;
        let asked = ToolRequest::take(tool, parameters);
        let (asked, ignored) = self.noting_tool(caller, &session, asked).await?;
        let request = self.with_skill_mounts(caller, &session, request()).await?;
        let context = ToolContext { service: self, caller, session, request };
        let told = match asked {
            ToolRequest::Command(command) => command.run(&context).await?,
            ToolRequest::Code(code) => code.run(&context).await?,
            ToolRequest::Files(op) => op.run(&context).await?,
            ToolRequest::Skill(skill) => skill.run(&context).await?,
        };
        Ok(result::with_ignored(told, ignored))
    }
}

/// What a tool asks of a session: nothing that the operator has not decided, and that new skills do not stand in its way.
fn request() -> SessionRequest {
    let rules = DoorRules { changed_mounts: ChangedMounts::Keep, ..DoorRules::default() };
    SessionRequest { rules, ..SessionRequest::default() }
}

/// What a model asked for, understood.
#[derive(Debug)]
enum ToolRequest {
    Command(Command),
    Code(Code),
    Files(FileTool),
    Skill(Activate),
}

impl ToolRequest {
    /// Understands parameters, and says which of them are none.
    fn take(tool: ToolName, parameters: Value) -> Result<(Self, Vec<String>)> {
        let mut parameters = Parameters::new(parameters)?;
        let asked = match FileTool::take(tool, &mut parameters)? {
            Some(op) => Self::Files(op),
            None if tool == ToolName::RunCode => Self::Code(Code::take(&mut parameters)?),
            None if tool == ToolName::Activate => Self::Skill(Activate::take(&mut parameters)?),
            None => Self::Command(Command::take(&mut parameters)?),
        };
        Ok((asked, parameters.rest()))
    }
}

/// What every tool works with.
#[derive(Debug)]
struct ToolContext<'a> {
    service: &'a Service,
    caller: &'a Caller,
    session: SessionId,
    request: SessionRequest,
}

impl ToolContext<'_> {
    /// Where the session works, or will.
    fn root(&self) -> Result<GuestPath> {
        self.service.workplace(self.caller, &self.session, &self.request)
    }
}
