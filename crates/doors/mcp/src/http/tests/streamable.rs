use futures_util::future::join_all;
use rmcp::model::{CallToolResponse, InputResponses, ProtocolVersion, SubscriptionFilter};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService, ServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;

use super::*;
use crate::testing::{Client, Heard};

impl Served {
    fn transport(&self, path: &str, subject: &str) -> StreamableHttpClientTransport<reqwest::Client> {
        let config = StreamableHttpClientTransportConfig::with_uri(self.url(path)).auth_header(subject);
        StreamableHttpClientTransport::with_client(self.http.clone(), config)
    }

    async fn client(&self, path: &str, client: Client) -> RunningService<RoleClient, Client> {
        client.serve(self.transport(path, "local")).await.unwrap()
    }

    /// A request by hand.
    fn post(&self, path: &str, subject: &str) -> reqwest::RequestBuilder {
        self.http
            .post(self.url(path))
            .bearer_auth(subject)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
    }

    /// A session by hand, and its name.
    async fn begin(&self, path: &str, subject: &str) -> String {
        let params =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let answer = self.post(path, subject).body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.headers()["mcp-session-id"].to_str().unwrap().to_owned()
    }
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

#[tokio::test]
async fn servers_and_our_own_tools_are_reached_over_http() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let all = served.client("/mcp", Client::plain("c")).await;
    assert_eq!(text(&call(&all, "one__fail").await), "it failed");
    let one = served.client("/mcp/one", Client::plain("c")).await;
    assert_eq!(text(&call(&one, "fail").await), "it failed");
    let own = served.client("/mcp/box?session=work", Client::plain("c")).await;
    let told = call(&own, "session_info").await.structured_content.unwrap();
    assert_eq!((told["session_id"].as_str(), told["subject"].as_str()), (Some("work"), Some("local")));
    assert_eq!(served.door.sessions(), 3);
}

#[tokio::test]
async fn calls_of_our_own_tools_are_counted_as_those_of_box() {
    let served = Served::new().await;
    let own = served.client("/mcp/box", Client::plain("c")).await;
    call(&own, "session_info").await;
    call(&own, "process_start").await;
    let numbers = served.test_gateway.registry.tally().unwrap().numbers();
    let calls: Vec<_> = numbers.calls.iter().map(|calls| (calls.server.as_str(), calls.outcome, calls.count)).collect();
    assert_eq!(calls, [("box", "ok", 1), ("box", "tool_error", 1)]);
}

#[tokio::test]
async fn mcp_behind_an_address_changes_nothing_unless_a_server_is_called_so() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    for (path, tool) in [("/mcp/mcp", "one__fail"), ("/mcp/one/mcp", "fail"), ("/one/mcp", "fail")] {
        let client = served.client(path, Client::plain("c")).await;
        assert_eq!(text(&call(&client, tool).await), "it failed", "{path}");
    }
    for path in ["/mcp/box/mcp?session=work", "/box/mcp?session=work"] {
        let own = served.client(path, Client::plain("c")).await;
        let told = call(&own, "session_info").await.structured_content.unwrap();
        assert_eq!(told["session_id"].as_str(), Some("work"), "{path}");
    }
    assert_eq!(served.post("/two/mcp", "local").body(LIST).send().await.unwrap().status(), 404);
    let (_, _mcp) = served.test_gateway.start("mcp", Everything::default()).await;
    let one = served.client("/mcp/mcp", Client::plain("c")).await;
    assert_eq!(text(&call(&one, "fail").await), "it failed", "the server has its name");
}

#[tokio::test]
async fn progress_questions_and_news_reach_the_client_over_http() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let (client, mut heard) = Client::new("ada");
    let client = served.client("/mcp", client).await;
    assert_eq!(text(&call(&client, "one__steps").await), "done");
    assert_eq!(text(&call(&client, "one__elicit").await), "{\"name\":\"ada\"}");
    assert_eq!(text(&call(&client, "one__sample").await), "model of ada");
    assert_eq!(text(&call(&client, "one__grow").await), "grown");
    let mut steps = 0;
    loop {
        match heard.recv().await.unwrap() {
            Heard::Progress(_) => steps += 1,
            Heard::Tools => break,
            _ => {}
        }
    }
    assert_eq!(steps, 5);
    assert!(client.list_all_tools().await.unwrap().iter().any(|tool| tool.name == "one__grown_0"));
}

#[tokio::test]
async fn a_client_of_the_newest_version_needs_no_session() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let preferred_versions = vec![ProtocolVersion::LATEST];
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions };
    let client = Client::plain("c").serve_with_lifecycle(served.transport("/mcp", "local"), lifecycle).await.unwrap();
    assert_eq!(client.peer_info().unwrap().protocol_version, ProtocolVersion::LATEST);
    assert_eq!(client.list_all_tools().await.unwrap().len(), 12);
    let mut listening = client.listen(SubscriptionFilter::builder().tools_list_changed().build()).await.unwrap();
    assert_eq!(text(&call(&client, "one__grow").await), "grown");
    assert!(listening.next().await.unwrap().is_some());
    assert_eq!(served.door.sessions(), 0);
}

#[tokio::test]
async fn a_client_of_the_newest_version_comes_back_with_what_an_older_server_asks_for() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let begin = |client: Client, subject: &'static str| {
        let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
        client.serve_with_lifecycle(served.transport("/mcp", subject), lifecycle)
    };
    let ada = begin(Client::new("ada").0, "ada").await.unwrap();
    let request = |tool: &'static str| CallToolRequestParams::new(tool);
    for (tool, told) in
        [("one__elicit", "{\"name\":\"ada\"}"), ("one__sample", "model of ada"), ("one__roots", "file:///ada")]
    {
        assert_eq!(text(&ada.call_tool(request(tool)).await.unwrap()), told);
    }
    let (first, second) = tokio::join!(ada.call_tool(request("one__elicit")), ada.call_tool(request("one__elicit")));
    assert_eq!(text(&first.unwrap()), text(&second.unwrap()));
    // Nobody else can come back for a call, and nobody twice.
    let CallToolResponse::InputRequired(needed) = ada.call_tool_once(request("one__elicit")).await.unwrap() else {
        panic!("nothing is needed")
    };
    let responses = InputResponses::from([("1".to_owned(), json!({"action": "accept", "content": {"name": "eve"}}))]);
    let back = request("one__elicit").with_request_state(needed.request_state.unwrap()).with_input_responses(responses);
    let bob = begin(Client::new("bob").0, "bob").await.unwrap();
    let error = bob.call_tool_once(back.clone()).await.unwrap_err().to_string();
    assert!(error.contains("none that waits"), "{error}");
    assert!(matches!(ada.call_tool_once(back.clone()).await.unwrap(), CallToolResponse::Complete(_)));
    assert!(ada.call_tool_once(back).await.is_err());
}

#[tokio::test]
async fn a_server_behind_another_door_is_a_server_too() {
    let far = Served::new().await;
    let (_, _one) = far.test_gateway.start("one", Everything::default()).await;
    let near = Served::new().await;
    let headers = [("Authorization".to_owned(), "Bearer local".to_owned())];
    let remote = crate::upstream::Remote::new(&far.url("/mcp/one"), headers).unwrap();
    let upstream =
        crate::upstream::Upstream::over_http("far".parse().unwrap(), &remote, &near.test_gateway.tasks).await.unwrap();
    near.test_gateway.registry.insert(&Caller::local().tenant, upstream);
    let (client, mut heard) = Client::new("ada");
    let client = near.client("/mcp", client).await;
    assert_eq!(text(&call(&client, "far__steps").await), "done");
    assert_eq!(text(&call(&client, "far__elicit").await), "{\"name\":\"ada\"}");
    assert_eq!(text(&call(&client, "far__big").await).len(), 10 << 20);
    assert_eq!(text(&call(&client, "far__grow").await), "grown");
    while heard.recv().await.unwrap() != Heard::Tools {}
}

#[tokio::test]
async fn what_a_server_of_the_newest_version_needs_passes_as_it_is() {
    let far = Served::new().await;
    let (_, _one) = far.test_gateway.start("one", Everything::default()).await;
    let near = Served::new().await;
    let headers = [("Authorization".to_owned(), "Bearer local".to_owned())];
    let remote = crate::upstream::Remote::new(&far.url("/mcp/one"), headers).unwrap();
    let upstream =
        crate::upstream::Upstream::over_http("far".parse().unwrap(), &remote, &near.test_gateway.tasks).await.unwrap();
    assert!(upstream.for_client(true).is_new() && !upstream.for_client(false).is_new());
    near.test_gateway.registry.insert(&Caller::local().tenant, upstream);
    let begin = async |served: &Served, path: &str, client: Client| {
        let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
        client.serve_with_lifecycle(served.transport(path, "local"), lifecycle).await.unwrap()
    };
    let ada = begin(&near, "/mcp", Client::new("ada").0).await;
    assert_eq!(text(&ada.call_tool(CallToolRequestParams::new("far__elicit")).await.unwrap()), "{\"name\":\"ada\"}");
    let elicit = CallToolRequestParams::new("far__elicit");
    let CallToolResponse::InputRequired(needed) = ada.call_tool_once(elicit).await.unwrap() else {
        panic!("nothing is needed")
    };
    // The state belongs to the far server, which also accepts it from a direct client.
    let responses = InputResponses::from([("1".to_owned(), json!({"action": "accept", "content": {"name": "eve"}}))]);
    let back = CallToolRequestParams::new("elicit")
        .with_request_state(needed.request_state.unwrap())
        .with_input_responses(responses);
    let direct = begin(&far, "/mcp/one", Client::new("eve").0).await;
    let CallToolResponse::Complete(told) = direct.call_tool_once(back).await.unwrap() else { panic!("more is needed") };
    assert_eq!(text(&told), "{\"name\":\"eve\"}");
    // The far server learns only what the client of this call supports.
    let plain = begin(&near, "/mcp", Client::plain("bob")).await;
    let error = plain.call_tool(CallToolRequestParams::new("far__elicit")).await.unwrap_err().to_string();
    assert!(error.contains("does not offer elicitation"), "{error}");
    let mut listening = ada.listen(SubscriptionFilter::builder().tools_list_changed().build()).await.unwrap();
    assert_eq!(text(&call(&ada, "far__grow").await), "grown");
    assert!(listening.next().await.unwrap().is_some());
}

#[tokio::test]
async fn a_client_of_before_is_asked_for_what_a_server_of_the_newest_version_needs() {
    let far = Served::new().await;
    let (_, _one) = far.test_gateway.start("one", Everything::default()).await;
    let near = Served::new().await;
    let headers = [("Authorization".to_owned(), "Bearer local".to_owned())];
    let remote = crate::upstream::Remote::new(&far.url("/mcp/one"), headers).unwrap();
    let newest = crate::upstream::Beginning::Discovery;
    let upstream =
        crate::upstream::Upstream::begin_http("far".parse().unwrap(), newest, &remote, &near.test_gateway.tasks)
            .await
            .unwrap();
    upstream.listen_for_changes();
    assert!(upstream.for_client(false).is_new(), "it is spoken with in no other way");
    near.test_gateway.registry.insert(&Caller::local().tenant, upstream);
    let (ada, mut heard) = Client::new("ada");
    let ada = near.client("/mcp", ada).await;
    assert_eq!(text(&call(&ada, "far__steps").await), "done");
    assert_eq!(text(&call(&ada, "far__elicit").await), "{\"name\":\"ada\"}");
    assert_eq!(text(&call(&ada, "far__sample").await), "model of ada");
    assert_eq!(text(&call(&ada, "far__roots").await), "file:///ada");
    let plain = near.client("/mcp", Client::plain("bob")).await;
    let error = plain.call_tool(CallToolRequestParams::new("far__elicit")).await.unwrap_err().to_string();
    assert!(error.contains("does not offer elicitation"), "{error}");
    assert_eq!(text(&call(&ada, "far__grow").await), "grown");
    while heard.recv().await.unwrap() != Heard::Tools {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_at_once_pass_over_http() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let client = served.client("/mcp", Client::plain("c")).await;
    for result in join_all((0..1000).map(|_| call(&client, "one__fail"))).await {
        assert_eq!(text(&result), "it failed");
    }
}

#[tokio::test]
async fn a_session_is_there_only_for_the_caller_and_the_address_that_began_it() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let session = served.begin("/mcp", "ada").await;
    assert!(session.len() == 64 && session != served.begin("/mcp", "ada").await);
    let list = |path: &'static str, subject: &'static str, session: &str| {
        served.post(path, subject).header("mcp-session-id", session).body(LIST).send()
    };
    assert_eq!(list("/mcp", "ada", &session).await.unwrap().status(), 200);
    let refused = list("/mcp", "bob", &session).await.unwrap();
    assert_eq!(refused.status(), 404);
    let told: serde_json::Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
    assert!(told["error"]["message"].as_str().unwrap().contains("Session not found"), "{told}");
    assert_eq!(list("/mcp/box", "ada", &session).await.unwrap().status(), 404);
    assert_eq!(list("/mcp/one", "ada", &session).await.unwrap().status(), 404);
    let delete = |subject: &'static str| {
        served.http.delete(served.url("/mcp")).bearer_auth(subject).header("mcp-session-id", &session).send()
    };
    assert_eq!(delete("bob").await.unwrap().status(), 204);
    assert_eq!(list("/mcp", "ada", &session).await.unwrap().status(), 200);
    assert_eq!(delete("ada").await.unwrap().status(), 204);
    assert_eq!(list("/mcp", "ada", &session).await.unwrap().status(), 404);
}

#[tokio::test]
async fn for_a_new_session_the_one_that_was_unused_longest_ends() {
    let served = Served::new().await;
    let first = served.begin("/mcp/box", "ada").await;
    let of_bob = served.begin("/mcp/box", "bob").await;
    for _ in 0..128 {
        served.begin("/mcp/box", "ada").await;
    }
    let list = |subject: &'static str, session: String| {
        served.post("/mcp/box", subject).header("mcp-session-id", session).body(LIST).send()
    };
    assert_eq!(list("ada", first).await.unwrap().status(), 404);
    assert_eq!(list("bob", of_bob).await.unwrap().status(), 200);
    assert_eq!(served.door.sessions(), 129);
}

#[tokio::test]
async fn who_may_not_come_in_is_told_why() {
    let served = Served::at_pace(Pace { requests_per_sec: 0.001, burst: 2.0 }).await;
    let status = |path: &'static str, subject: &'static str| served.post(path, subject).body(LIST).send();
    assert_eq!(status("/mcp", "nobody").await.unwrap().status(), 401);
    assert_eq!(status("/mcp", "reader").await.unwrap().status(), 403);
    assert_eq!(status("/mcp/nothing", "ada").await.unwrap().status(), 404);
    assert_eq!(status("/mcp/a__b", "ada").await.unwrap().status(), 404);
    assert_eq!(served.post("/mcp", "bob").body(vec![b' '; MESSAGE_BYTES_MAX + 1]).send().await.unwrap().status(), 413);
    let visited = served.http.get(served.url("/mcp")).header("accept", "text/html").send().await.unwrap();
    assert_eq!(visited.status(), 406);
    served.begin("/mcp", "bob").await;
    let refused = status("/mcp", "bob").await.unwrap();
    assert_eq!(refused.status(), 429);
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() > 1);
}

#[tokio::test]
async fn a_closed_door_ends_its_sessions() {
    let served = Served::new().await;
    let (upstream, running) = served.test_gateway.start("one", Everything::default()).await;
    let client = served.client("/mcp", Client::plain("c")).await;
    assert_eq!(text(&call(&client, "one__fail").await), "it failed");
    served.door.close().await;
    assert_eq!(served.door.sessions(), 0);
    assert_eq!(served.post("/mcp", "ada").body(LIST).send().await.unwrap().status(), 503);
    upstream.close();
    drop((client, running));
    served.test_gateway.tasks.close();
    served.test_gateway.tasks.wait().await;
}

#[tokio::test]
async fn a_client_that_accepts_only_json_gets_json() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let session = served.begin("/mcp/one", "local").await;
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "steps", "_meta": {"progressToken": 1}}});
    let answer = served.http.post(served.url("/mcp/one")).bearer_auth("local").header("accept", "application/json");
    let answer = answer.header("content-type", "application/json").header("mcp-session-id", session);
    let answer = answer.body(call.to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let told: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!((&told["id"], &told["result"]["content"][0]["text"]), (&json!(2), &json!("done")));
}

#[tokio::test]
async fn an_answer_is_json_unless_something_comes_before_it() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let session = served.begin("/mcp/one", "local").await;
    let call = async |tool: &str| {
        let params = json!({"name": tool, "_meta": {"progressToken": 1}});
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        let request = served.post("/mcp/one", "local").header("mcp-session-id", &session).body(call.to_string());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        (answer.headers()["content-type"].to_str().unwrap().to_owned(), answer.text().await.unwrap())
    };
    let (kind, told) = call("big").await;
    assert_eq!(kind, "application/json");
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["result"]["content"][0]["text"].as_str().unwrap().len(), 10 << 20);
    let (kind, told) = call("steps").await;
    assert_eq!(kind, "text/event-stream");
    let messages = told.lines().filter_map(|line| line.strip_prefix("data:")).filter(|data| !data.trim().is_empty());
    let messages: Vec<serde_json::Value> = messages.map(|data| serde_json::from_str(data).unwrap()).collect();
    assert_eq!(messages.len(), 6, "{told}");
    assert_eq!(messages[5]["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn a_client_of_the_newest_version_is_answered_when_it_pings() {
    let served = Served::new().await;
    let ping = async |body: &'static str| {
        let request = served.post("/mcp/box", "local").header("mcp-protocol-version", "2026-07-28");
        let answer = request.header("mcp-method", "ping").body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, told) = ping(r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}"#).await;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((status, &told["id"], told["result"].is_object()), (200, &json!("a"), true));
    assert_eq!(ping(LIST).await.0, 400);
}

#[tokio::test]
async fn an_unknown_server_is_answered_with_those_that_exist() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let answer = served.post("/mcp/two", "local").body(LIST).send().await.unwrap();
    assert_eq!(answer.status(), 404);
    let told = answer.text().await.unwrap();
    assert!(told.contains("no MCP server is called two: there is one;"), "{told}");
}
