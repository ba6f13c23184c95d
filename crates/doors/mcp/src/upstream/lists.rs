//! The tools and prompts of a server, as they are shown to others: fetched page by page, bounded, and with their texts cleaned.

use std::sync::Arc;

use box_core::mcp::McpHeldTool;
use rmcp::model::{
    ClientRequest, JsonObject, ListPromptsRequest, ListPromptsResult, ListToolsRequest, ListToolsResult,
    PaginatedRequestParams, Prompt, PromptArgument, ServerResult, Tool,
};
use rmcp::{Peer, RoleClient, ServiceError};
use serde::Serialize;

use crate::text::{DESCRIPTION_CHARS_MAX, TITLE_CHARS_MAX, clean, clean_option, clean_schema};

/// Most tools, and most prompts, of one server. A model can make nothing of more.
pub(super) const ITEMS_MAX: usize = 1024;
/// Most pages that are asked for: a server may go on for ever.
const PAGES_MAX: usize = 128;
/// Largest schema, in bytes of JSON.
const SCHEMA_BYTES_MAX: usize = 128 << 10;
/// Longest name of a tool or prompt, in characters.
const NAME_CHARS_MAX: usize = 128;
/// Most arguments of a prompt.
const ARGUMENTS_MAX: usize = 64;

/// What a server offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lists {
    /// Tools visible to clients, by the server's own names.
    pub(crate) tools: Arc<Vec<Tool>>,
    /// All its tools.
    pub(crate) offered: Arc<Vec<Tool>>,
    /// Tools that are hidden until approved.
    pub(crate) held: Arc<Vec<McpHeldTool>>,
    /// Its prompts.
    pub(crate) prompts: Arc<Vec<Prompt>>,
}

/// Asks for all tools.
pub(super) async fn tools(peer: &Peer<RoleClient>) -> Result<Vec<Tool>, ServiceError> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let request = ListToolsRequest { params: page(cursor), ..Default::default() };
        let answer = peer.send_request(ClientRequest::ListToolsRequest(request)).await?;
        let ServerResult::ListToolsResult(ListToolsResult { tools: more, next_cursor, .. }) = answer else {
            return Err(ServiceError::UnexpectedResponse);
        };
        tools.extend(more.into_iter().filter_map(shown_tool));
        cursor = next_cursor;
        if cursor.is_none() || tools.len() >= ITEMS_MAX {
            break;
        }
    }
    tools.truncate(ITEMS_MAX);
    Ok(first_of_each(tools, |tool| tool.name.to_string()))
}

/// Asks for all prompts.
pub(super) async fn prompts(peer: &Peer<RoleClient>) -> Result<Vec<Prompt>, ServiceError> {
    let mut prompts = Vec::new();
    let mut cursor = None;
    for _ in 0..PAGES_MAX {
        let request = ListPromptsRequest { params: page(cursor), ..Default::default() };
        let answer = peer.send_request(ClientRequest::ListPromptsRequest(request)).await?;
        let ServerResult::ListPromptsResult(ListPromptsResult { prompts: more, next_cursor, .. }) = answer else {
            return Err(ServiceError::UnexpectedResponse);
        };
        prompts.extend(more.into_iter().filter_map(shown_prompt));
        cursor = next_cursor;
        if cursor.is_none() || prompts.len() >= ITEMS_MAX {
            break;
        }
    }
    prompts.truncate(ITEMS_MAX);
    Ok(first_of_each(prompts, |prompt| prompt.name.clone()))
}

/// The parameters that ask for a page.
pub(super) fn page(cursor: Option<String>) -> Option<PaginatedRequestParams> {
    cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)))
}

/// Of several with one name only the first could ever be called.
fn first_of_each<T>(mut items: Vec<T>, name: impl Fn(&T) -> String) -> Vec<T> {
    let mut seen = std::collections::HashSet::new();
    items.retain(|item| seen.insert(name(item)));
    items
}

/// A tool as it is shown; none when its name or its schema is impossible.
fn shown_tool(mut tool: Tool) -> Option<Tool> {
    if !is_name(&tool.name) || !is_small(&tool.input_schema) || !is_of_object(&tool.input_schema) {
        return None;
    }
    tool.title = clean_option(tool.title, TITLE_CHARS_MAX);
    tool.description = tool.description.map(|text| clean(&text, DESCRIPTION_CHARS_MAX).into());
    let mut input = clean_schema(&tool.input_schema);
    input.entry("type").or_insert_with(|| "object".into());
    tool.input_schema = Arc::new(input);
    tool.output_schema =
        tool.output_schema.filter(|schema| is_small(schema) && is_of_object(schema) && schema.contains_key("type"));
    tool.output_schema = tool.output_schema.map(|schema| Arc::new(clean_schema(&schema)));
    if let Some(annotations) = &mut tool.annotations {
        annotations.title = clean_option(annotations.title.take(), TITLE_CHARS_MAX);
    }
    // Icons are addresses that a client fetches: a server in a box without a network would reach out by them.
    tool.icons = None;
    tool.meta = tool.meta.filter(|meta| is_small(&meta.0));
    Some(tool)
}

fn shown_prompt(mut prompt: Prompt) -> Option<Prompt> {
    if !is_name(&prompt.name) {
        return None;
    }
    prompt.title = clean_option(prompt.title, TITLE_CHARS_MAX);
    prompt.description = clean_option(prompt.description, DESCRIPTION_CHARS_MAX);
    prompt.arguments =
        prompt.arguments.map(|arguments| arguments.into_iter().take(ARGUMENTS_MAX).map(shown_argument).collect());
    prompt.icons = None;
    prompt.meta = prompt.meta.filter(|meta| is_small(&meta.0));
    Some(prompt)
}

fn shown_argument(mut argument: PromptArgument) -> PromptArgument {
    argument.name = clean(&argument.name, NAME_CHARS_MAX);
    argument.title = clean_option(argument.title, TITLE_CHARS_MAX);
    argument.description = clean_option(argument.description, DESCRIPTION_CHARS_MAX);
    argument
}

/// Whether a schema is one of an object, or does not say. Clients refuse a whole list for one tool whose schema is of anything else.
fn is_of_object(schema: &JsonObject) -> bool {
    schema.get("type").is_none_or(|of| of == "object")
}

/// Names as the protocol recommends them, and slashes, which servers use too.
fn is_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.bytes().all(good)
}

fn is_small(object: &JsonObject) -> bool {
    is_short(object, SCHEMA_BYTES_MAX)
}

/// Whether something has at most so many bytes as JSON. No more than those are looked at.
pub(super) fn is_short(value: &impl Serialize, bytes_max: usize) -> bool {
    serde_json::to_writer(Counter { left: bytes_max }, value).is_ok()
}

/// Counts bytes, and fails when they are too many.
struct Counter {
    left: usize,
}

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::object;
    use serde_json::json;

    use super::*;

    fn tool(name: &str, schema: serde_json::Value) -> Tool {
        Tool::new(name.to_owned(), "what it\u{200b} does\u{1b}", Arc::new(object(schema)))
    }

    #[test]
    fn texts_of_a_tool_are_cleaned() {
        let shown = shown_tool(tool("a.b/c", json!({"type": "object", "description": "x\u{202e}"}))).unwrap();
        assert_eq!(shown.description.as_deref(), Some("what it does"));
        assert_eq!(shown.input_schema["description"], "x");
    }

    #[test]
    fn a_schema_is_always_that_of_an_object() {
        assert_eq!(shown_tool(tool("a", json!({}))).unwrap().input_schema["type"], "object");
        assert!(shown_tool(tool("a", json!({"type": "array"}))).is_none());
        let mut odd = tool("a", json!({"type": "object"}));
        odd.output_schema = Some(Arc::new(object(json!({"type": "string"}))));
        assert_eq!(shown_tool(odd).unwrap().output_schema, None);
    }

    #[test]
    fn impossible_tools_are_left_out() {
        assert!(shown_tool(tool("", json!({}))).is_none());
        assert!(shown_tool(tool("a b", json!({}))).is_none());
        assert!(shown_tool(tool("é", json!({}))).is_none());
        assert!(shown_tool(tool(&"x".repeat(129), json!({}))).is_none());
        assert!(shown_tool(tool("x", json!({"enum": ["y".repeat(SCHEMA_BYTES_MAX)]}))).is_none());
    }

    #[test]
    fn of_two_tools_with_one_name_the_first_is_shown() {
        let tools = vec![tool("a", json!({"title": "1"})), tool("b", json!({})), tool("a", json!({"title": "2"}))];
        let kept = first_of_each(tools, |tool| tool.name.to_string());
        assert_eq!(kept.len(), 2);
        assert_eq!(kept[0].input_schema["title"], "1");
    }
}
