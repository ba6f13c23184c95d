//! The REST door: one file for each resource, one short handler for each thing that can be asked.

pub(crate) mod exec_body;
pub(crate) mod execs;
pub(crate) mod files;
pub(crate) mod input;
pub(crate) mod managed;
pub(crate) mod mcp;
pub(crate) mod mcp_body;
pub(crate) mod old_form;
pub(crate) mod output;
pub(crate) mod pages;
pub(crate) mod ports;
pub(crate) mod process_body;
pub(crate) mod processes;
pub(crate) mod profiles;
pub(crate) mod service;
pub(crate) mod session_body;
pub(crate) mod sessions;
pub(crate) mod skill_archives;
pub(crate) mod skill_body;
pub(crate) mod skills;
pub(crate) mod streams;
pub(crate) mod tools;
pub(crate) mod views;
