//! The resources of a server. Unlike tools they may change at any time and in great number, so they are asked for when somebody wants them.

use rmcp::model::{
    ClientRequest, ListResourceTemplatesRequest, ListResourcesRequest, Resource, ResourceTemplate, ServerResult,
};

use super::lists::page;
use super::{Failure, Upstream};
use crate::text::{DESCRIPTION_CHARS_MAX, TITLE_CHARS_MAX, clean, clean_option};

/// Most resources, and most templates, of one server that are listed.
const RESOURCES_MAX: usize = 4096;
/// Most pages that are asked for.
const PAGES_MAX: usize = 64;
/// Longest address of a resource, in bytes.
const URI_BYTES_MAX: usize = 8192;

impl Upstream {
    /// Asks for all resources.
    pub(crate) async fn resources(&self) -> Result<Vec<Resource>, Failure> {
        let mut resources = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let request = ListResourcesRequest { params: page(cursor), ..Default::default() };
            let answer = self.ask(ClientRequest::ListResourcesRequest(request)).await?;
            let ServerResult::ListResourcesResult(listed) = answer else { return Err(Failure::Unexpected) };
            resources.extend(listed.resources.into_iter().filter_map(shown));
            cursor = listed.next_cursor;
            if cursor.is_none() || resources.len() >= RESOURCES_MAX {
                break;
            }
        }
        resources.truncate(RESOURCES_MAX);
        Ok(resources)
    }

    /// Asks for all templates of resources.
    pub(crate) async fn templates(&self) -> Result<Vec<ResourceTemplate>, Failure> {
        let mut templates = Vec::new();
        let mut cursor = None;
        for _ in 0..PAGES_MAX {
            let request = ListResourceTemplatesRequest { params: page(cursor), ..Default::default() };
            let answer = self.ask(ClientRequest::ListResourceTemplatesRequest(request)).await?;
            let ServerResult::ListResourceTemplatesResult(listed) = answer else { return Err(Failure::Unexpected) };
            templates.extend(listed.resource_templates.into_iter().filter_map(shown_template));
            cursor = listed.next_cursor;
            if cursor.is_none() || templates.len() >= RESOURCES_MAX {
                break;
            }
        }
        templates.truncate(RESOURCES_MAX);
        Ok(templates)
    }
}

fn shown(mut resource: Resource) -> Option<Resource> {
    if !is_uri(&resource.uri) {
        return None;
    }
    resource.name = clean(&resource.name, TITLE_CHARS_MAX);
    resource.title = clean_option(resource.title, TITLE_CHARS_MAX);
    resource.description = clean_option(resource.description, DESCRIPTION_CHARS_MAX);
    resource.mime_type = clean_option(resource.mime_type, TITLE_CHARS_MAX);
    resource.icons = None;
    Some(resource)
}

fn shown_template(mut template: ResourceTemplate) -> Option<ResourceTemplate> {
    if !is_uri(&template.uri_template) {
        return None;
    }
    template.name = clean(&template.name, TITLE_CHARS_MAX);
    template.title = clean_option(template.title, TITLE_CHARS_MAX);
    template.description = clean_option(template.description, DESCRIPTION_CHARS_MAX);
    template.mime_type = clean_option(template.mime_type, TITLE_CHARS_MAX);
    template.icons = None;
    Some(template)
}

/// Whether it can be an address: a scheme, and nothing that cannot be seen.
fn is_uri(uri: &str) -> bool {
    uri.len() <= URI_BYTES_MAX && uri.contains(':') && !uri.chars().any(char::is_control)
}
