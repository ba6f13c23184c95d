//! Lists of many servers: in time, and page by page.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::PaginatedRequestParams;

use crate::upstream::{Failure, Upstream};

/// Most tools, prompts or resources on one page.
const PAGE_MAX: usize = 1000;
/// Longest that one server is waited for when resources of all are listed.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// What a server lists, or nothing if it does not do so in time: one slow server must not hide all others.
pub(super) async fn in_time<T>(server: &Upstream, listing: impl Future<Output = Result<Vec<T>, Failure>>) -> Vec<T> {
    if let Ok(Ok(listed)) = tokio::time::timeout(LIST_TIMEOUT, listing).await {
        return listed;
    }
    tracing::warn!(mcp.server = %server.name(), "a server does not list its resources; they are left out");
    Vec::new()
}

/// One page of a list, and where the next one begins.
pub(super) fn page<T>(
    items: Vec<T>,
    request: Option<PaginatedRequestParams>,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let start = match request.and_then(|request| request.cursor) {
        None => 0,
        Some(cursor) => {
            cursor.parse().map_err(|_| ErrorData::invalid_params("unknown cursor; start over without one", None))?
        }
    };
    let rest = items.len().saturating_sub(start);
    let next = (rest > PAGE_MAX).then(|| (start + PAGE_MAX).to_string());
    Ok((items.into_iter().skip(start).take(PAGE_MAX).collect(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cursor: &str) -> PaginatedRequestParams {
        PaginatedRequestParams::default().with_cursor(Some(cursor.to_owned()))
    }

    #[test]
    fn long_lists_come_in_pages() {
        let items: Vec<usize> = (0..2500).collect();
        let (first, next) = page(items.clone(), None).unwrap();
        assert_eq!((first.len(), next.as_deref()), (1000, Some("1000")));
        let (last, next) = page(items.clone(), Some(at("2000"))).unwrap();
        assert_eq!((last.len(), last[0], next), (500, 2000, None));
        assert!(page(items.clone(), Some(at("9999999"))).unwrap().0.is_empty());
        assert!(page(items, Some(at("x"))).is_err());
    }
}
