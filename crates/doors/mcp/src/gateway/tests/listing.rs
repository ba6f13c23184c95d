use box_core::mcp::McpAccess;
use box_core::{Caller, TenantId};
use rmcp::ServiceExt;
use rmcp::model::{GetPromptRequestParams, ProtocolVersion};
use std::sync::Arc;

use super::*;
use crate::gateway::{Around, Gateway, View};
use crate::stdio::{Garbage, Stdio};
use crate::testing::{Client, Everything, TestGateway, connect};

#[tokio::test]
async fn tools_of_all_servers_stand_side_by_side() {
    let test_gateway = TestGateway::new();
    let (_, _one) = test_gateway.start("one", Everything::default()).await;
    let (_, _two) = test_gateway.start("two", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    let tools = client.list_all_tools().await.unwrap();
    assert_eq!(tools.len(), 24);
    assert!(tools.iter().any(|tool| tool.name == "one__echo") && tools.iter().any(|tool| tool.name == "two__fail"));
    assert_eq!(tools[0].description.as_deref(), Some("does it"));
    let prompts = client.list_all_prompts().await.unwrap();
    let names: Vec<_> = prompts.iter().map(|prompt| prompt.name.as_str()).collect();
    assert_eq!(names, ["one__greet", "two__greet"]);
    assert_eq!(prompts[0].description.as_deref(), Some("greets"));
    let resources = client.list_all_resources().await.unwrap();
    let uris: Vec<_> = resources.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(uris, ["mcp://one/file:///a/b?c#d", "mcp://two/file:///a/b?c#d"]);
    let templates = client.list_all_resource_templates().await.unwrap();
    assert_eq!(templates[1].uri_template, "mcp://two/file:///{path}");
}

#[tokio::test]
async fn one_server_is_shown_as_it_is() {
    let test_gateway = TestGateway::new();
    let (_, _one) = test_gateway.start("one", Everything::default()).await;
    let (_, _two) = test_gateway.start("two", Everything::default()).await;
    let client = test_gateway.client(Client::plain("c"), View::One("two".parse().unwrap())).await;
    let tools = client.list_all_tools().await.unwrap();
    assert_eq!((tools.len(), tools[0].name.as_ref()), (12, "echo"));
    assert_eq!(client.peer_info().unwrap().instructions.as_deref(), Some("Use everything."));
    assert_eq!(client.list_all_resources().await.unwrap()[0].uri, "file:///a/b?c#d");
    assert_eq!(text_of(&client, "fail").await, "it failed");
    assert!(call(&client, "two__fail").await.is_err());
}

#[tokio::test]
async fn tenants_do_not_see_each_others_servers() {
    let test_gateway = TestGateway::new();
    let (upstream, _running) = connect("one", Everything::default(), &test_gateway.tasks).await;
    let other: TenantId = "other".parse().unwrap();
    test_gateway.registry.insert(&other, upstream);
    let client = test_gateway.client(Client::plain("c"), View::All).await;
    assert!(client.list_all_tools().await.unwrap().is_empty());
    assert!(call(&client, "one__fail").await.is_err());
}

#[tokio::test]
async fn what_a_caller_may_not_use_is_not_there() {
    let test_gateway = TestGateway::new();
    let (_, _one) = test_gateway.start("one", Everything::default()).await;
    let (_, _two) = test_gateway.start("two", Everything::default()).await;
    let allow = vec!["one__e*".parse().unwrap(), "two".parse().unwrap()];
    let mcp = McpAccess::new(Some(allow), vec!["two__fail".parse().unwrap()]).unwrap();
    let around = Around::new(Arc::new(test_gateway.registry.clone()), test_gateway.tasks.clone());
    let gateway = Gateway::new(around, Caller { mcp, ..Caller::local() }, View::All);
    let (ours, theirs) = tokio::io::duplex(1 << 12);
    let (reader, writer) = tokio::io::split(ours);
    let serving = rmcp::serve_server(gateway, Stdio::new(reader, writer, Garbage::default()));
    let (serving, client) = tokio::join!(serving, Client::plain("c").serve(theirs));
    let (_serving, client) = (serving.unwrap(), client.unwrap());
    let tools = client.list_all_tools().await.unwrap();
    let of_one: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).filter(|name| name.starts_with("one")).collect();
    assert_eq!(of_one, ["one__echo", "one__elicit"]);
    assert_eq!(tools.len(), 13);
    for hidden in ["two__fail", "one__steps"] {
        let error = call(&client, hidden).await.unwrap_err().to_string();
        assert!(error.contains("no tool is called"), "{error}");
    }
    // Parts of both servers are hidden from it, and the gateway cannot know which resources belong to those parts.
    assert!(client.list_all_resources().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_server_does_not_list_is_not_called() {
    let test_gateway = TestGateway::new();
    let (upstream, _one) = test_gateway.start("one", Everything::default()).await;
    assert!(upstream.lists().tools.iter().all(|tool| tool.name != "hidden"));
    for (view, prefix) in [(View::All, "one__"), (View::One("one".parse().unwrap()), "")] {
        let client = test_gateway.client(Client::plain("c"), view).await;
        assert_eq!(text_of(&client, &format!("{prefix}fail")).await, "it failed");
        let error = call(&client, &format!("{prefix}hidden")).await.unwrap_err().to_string();
        assert!(error.contains("no tool is called"), "{error}");
        let prompt = GetPromptRequestParams::new(format!("{prefix}hidden"));
        let error = client.get_prompt(prompt).await.unwrap_err().to_string();
        assert!(error.contains("no prompt is called"), "{error}");
    }
}

#[tokio::test]
async fn every_version_of_the_protocol_is_spoken_on_both_sides() {
    let versions = ProtocolVersion::KNOWN_VERSIONS.iter().filter(|version| version.has_initialize());
    let versions: Vec<_> = versions.cloned().collect();
    assert_eq!(versions.first().map(ProtocolVersion::as_str), Some("2024-11-05"));
    for of_server in &versions {
        let test_gateway = TestGateway::new();
        let server = Everything { version: of_server.clone(), ..Everything::default() };
        let (upstream, _running) = test_gateway.start("one", server).await;
        assert_eq!(upstream.about().protocol_version, of_server.as_str());
        for of_client in &versions {
            let client = test_gateway.client(Client::plain("c").of_version(of_client.clone()), View::All).await;
            assert_eq!(client.peer_info().unwrap().protocol_version, *of_client);
            assert_eq!(text_of(&client, "one__fail").await, "it failed");
        }
    }
}
