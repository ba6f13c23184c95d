//! The tools that a server may show if only approved ones are allowed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::hexadecimal::sha256;
use box_core::mcp::{McpHeldTool, McpToolChange};
use rmcp::model::Tool;
use serde_json::Value;

use crate::text::clean;

/// Characters of a fingerprint.
const FINGERPRINT_CHARS: usize = 32;
/// Characters of the description of a held tool.
const DESCRIPTION_CHARS_MAX: usize = 500;

/// Tools by name, each with a fingerprint of its definition.
pub(crate) type Fingerprints = BTreeMap<String, String>;

/// Approved tools of one server. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pins(Arc<Mutex<Fingerprints>>);

impl Pins {
    /// Approves only these tools.
    pub(crate) fn new(approved: Fingerprints) -> Self {
        Self(Arc::new(Mutex::new(approved)))
    }

    /// The approved tools.
    pub(crate) fn approved(&self) -> Fingerprints {
        self.lock().clone()
    }

    /// Replaces the approved tools.
    pub(crate) fn replace(&self, approved: Fingerprints) {
        *self.lock() = approved;
    }

    /// Tools that match their approval, and those that wait for approval.
    pub(super) fn split(&self, offered: &[Tool]) -> (Vec<Tool>, Vec<McpHeldTool>) {
        let approved = self.lock();
        let (mut shown, mut held) = (Vec::new(), Vec::new());
        for tool in offered {
            let fingerprint = fingerprint(tool);
            let change = match approved.get(tool.name.as_ref()) {
                Some(known) if *known == fingerprint => {
                    shown.push(tool.clone());
                    continue;
                }
                Some(_) => McpToolChange::Changed,
                None => McpToolChange::Added,
            };
            let description = clean(tool.description.as_deref().unwrap_or_default(), DESCRIPTION_CHARS_MAX);
            held.push(McpHeldTool { name: tool.name.to_string(), change, description, fingerprint });
        }
        (shown, held)
    }

    fn lock(&self) -> MutexGuard<'_, Fingerprints> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fingerprints of tools.
pub(crate) fn fingerprints(tools: &[Tool]) -> Fingerprints {
    tools.iter().map(|tool| (tool.name.to_string(), fingerprint(tool))).collect()
}

/// Fingerprint of a tool's definition. Object keys are sorted, because some servers change their order with each start.
fn fingerprint(tool: &Tool) -> String {
    let mut whole = serde_json::to_value(tool).unwrap_or_default();
    sort(&mut whole);
    sha256(whole.to_string().as_bytes())[..FINGERPRINT_CHARS].to_owned()
}

fn sort(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(sort),
        Value::Object(fields) => {
            let mut sorted: Vec<_> = std::mem::take(fields).into_iter().collect();
            sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
            for (_, value) in &mut sorted {
                sort(value);
            }
            fields.extend(sorted);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::object;
    use serde_json::json;

    use super::*;

    fn tool(name: &str, description: &str, schema: Value) -> Tool {
        Tool::new(name.to_owned(), description.to_owned(), Arc::new(object(schema)))
    }

    #[test]
    fn a_tool_is_held_when_anything_that_is_said_of_it_differs() {
        let first = [tool("a", "reads", json!({"x": 1, "y": 2})), tool("b", "writes", json!({}))];
        let pins = Pins::new(fingerprints(&first));
        assert_eq!(pins.split(&first), (first.to_vec(), Vec::new()));
        let same = tool("a", "reads", json!({"y": 2, "x": 1}));
        for other in [tool("a", "reads\u{202e}!", json!({"x": 1, "y": 2})), tool("a", "reads", json!({"x": 1}))] {
            let (shown, held) = pins.split(&[other.clone(), first[1].clone()]);
            assert_eq!(shown, first[1..]);
            assert_eq!((held[0].name.as_str(), held[0].change), ("a", McpToolChange::Changed));
            pins.replace(fingerprints(std::slice::from_ref(&other)));
            assert_eq!(pins.split(&[other, first[1].clone()]).1[0].change, McpToolChange::Added);
            pins.replace(fingerprints(&first));
        }
        assert_eq!(pins.split(std::slice::from_ref(&same)), (vec![same], Vec::new()), "only the order differs");
    }
}
