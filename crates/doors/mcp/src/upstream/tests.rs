//! Servers that do not do what they should, by hand.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::*;

/// A server of which every word is written by the test.
struct ByHand {
    stream: BufReader<DuplexStream>,
}

impl ByHand {
    /// A server, and the future of a connection to it.
    fn new(tasks: &TaskTracker) -> (Self, impl Future<Output = Result<Upstream, ConnectError>> + use<>) {
        let (ours, theirs) = tokio::io::duplex(1 << 12);
        let (reader, writer) = tokio::io::split(ours);
        let tasks = tasks.clone();
        let connecting = async move {
            Upstream::over_streams("odd".parse().unwrap(), Beginning::Handshake, (reader, writer), None, &tasks).await
        };
        (Self { stream: BufReader::new(theirs) }, connecting)
    }

    async fn read(&mut self) -> Value {
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn say(&mut self, message: Value) {
        self.stream.get_mut().write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// The handshake, with noise around it.
    async fn begin(&mut self, capabilities: Value) {
        self.stream.get_mut().write_all(b"Starting up...\n").await.unwrap();
        let initialize = self.read().await;
        assert_eq!(initialize["method"], "initialize");
        assert_eq!(initialize["params"]["capabilities"], json!({"roots": {}, "sampling": {}, "elicitation": {}}));
        let result = json!({
            "protocolVersion": "2024-11-05", "capabilities": capabilities, "serverInfo": {"name": "odd\u{7}", "version": "1"}
        });
        self.say(json!({"jsonrpc": "2.0", "id": initialize["id"], "result": result})).await;
        assert_eq!(self.read().await["method"], "notifications/initialized");
    }
}

#[tokio::test]
async fn a_server_without_tools_is_not_asked_for_them() {
    let tasks = TaskTracker::new();
    let (mut server, connecting) = ByHand::new(&tasks);
    let (upstream, ()) = tokio::join!(connecting, server.begin(json!({})));
    let upstream = upstream.unwrap();
    assert_eq!(upstream.about().name, "odd");
    assert_eq!((upstream.garbage_lines(), upstream.tool_names()), (1, Vec::new()));
    // Roots are asked for before anybody calls; nobody can be asked for an answer.
    server.say(json!({"jsonrpc": "2.0", "id": "r", "method": "roots/list"})).await;
    assert_eq!(server.read().await, json!({"jsonrpc": "2.0", "id": "r", "result": {"roots": []}}));
    server.say(json!({"jsonrpc": "2.0", "id": 9, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})).await;
    let refused = server.read().await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("no call is on its way"), "{refused}");
}

#[tokio::test]
async fn a_server_that_ends_before_it_is_ready_is_no_server() {
    let tasks = TaskTracker::new();
    let (server, connecting) = ByHand::new(&tasks);
    drop(server);
    assert!(matches!(connecting.await, Err(ConnectError::Handshake(_))));
    let (mut server, connecting) = ByHand::new(&tasks);
    let (upstream, ()) = tokio::join!(connecting, async {
        server.begin(json!({"tools": {}})).await;
        assert_eq!(server.read().await["method"], "tools/list");
        drop(server);
    });
    assert!(matches!(upstream, Err(ConnectError::List(_))), "{upstream:?}");
    tasks.close();
    tasks.wait().await;
}

#[tokio::test]
async fn whoever_gives_up_connecting_leaves_nothing_behind() {
    let tasks = TaskTracker::new();
    let (mut server, connecting) = ByHand::new(&tasks);
    {
        let mut connecting = std::pin::pin!(connecting);
        let listing = async {
            server.begin(json!({"tools": {}})).await;
            server.read().await["method"].clone()
        };
        tokio::select! {
            _ = &mut connecting => panic!("connected without an answer"),
            method = listing => assert_eq!(method, "tools/list"),
        }
    }
    assert_eq!(server.stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
    tasks.close();
    tasks.wait().await;
}

#[tokio::test]
async fn a_server_that_lists_for_ever_is_cut_short() {
    let tasks = TaskTracker::new();
    let (mut server, connecting) = ByHand::new(&tasks);
    let listing = async {
        server.begin(json!({"tools": {}})).await;
        for page in 0.. {
            let mut line = String::new();
            if server.stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return page;
            }
            let request: Value = serde_json::from_str(&line).unwrap();
            let tools: Vec<_> =
                (0..100).map(|number| json!({"name": format!("t{page}_{number}"), "inputSchema": {}})).collect();
            let result = json!({"tools": tools, "nextCursor": "again"});
            server.say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
        }
        0
    };
    let connected = async {
        let upstream = connecting.await.unwrap();
        let listed = upstream.tool_names().len();
        upstream.close();
        listed
    };
    let (listed, pages) = tokio::join!(connected, listing);
    assert_eq!((listed, pages), (lists::ITEMS_MAX, 11));
}

/// Time stands still until nobody can do anything any more, so that waiting for it means that the server is not read.
#[tokio::test(start_paused = true)]
async fn a_server_that_asks_without_listening_is_not_read_any_more() {
    let ping = |id: u32| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let take_back =
        |id: u32| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    for takes_back in [false, true] {
        let tasks = TaskTracker::new();
        let (mut server, connecting) = ByHand::new(&tasks);
        let (upstream, ()) = tokio::join!(connecting, server.begin(json!({})));
        let upstream = upstream.unwrap();
        let mut asked = 0;
        let asking = async {
            while asked < 20_000 {
                server.say(ping(asked)).await;
                // Once the answer is on its way, taking the request back changes nothing.
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                if takes_back {
                    server.say(take_back(asked)).await;
                }
                asked += 1;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(1), asking).await.is_err(), "all requests were taken");
        assert!(!upstream.is_closed());
        upstream.close();
    }
}

#[tokio::test]
async fn requests_that_a_server_takes_back_make_room_again() {
    let tasks = TaskTracker::new();
    let (mut server, connecting) = ByHand::new(&tasks);
    let (upstream, ()) = tokio::join!(connecting, server.begin(json!({})));
    let _upstream = upstream.unwrap();
    for id in 0..1000 {
        server.say(json!({"jsonrpc": "2.0", "id": id, "method": "odd/custom"})).await;
        server.say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})).await;
    }
    server.say(json!({"jsonrpc": "2.0", "id": "last", "method": "ping"})).await;
    while server.read().await["id"] != "last" {}
}

/// As above: what still waits when time goes on waits for the server to read.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_is_kept_few_large_requests_for() {
    use rmcp::model::{CallToolRequest, CallToolRequestParams, object};
    let tasks = TaskTracker::new();
    let (mut server, connecting) = ByHand::new(&tasks);
    let (upstream, ()) = tokio::join!(connecting, server.begin(json!({})));
    let upstream = upstream.unwrap();
    let call = |bytes: usize| {
        let params = CallToolRequestParams::new("x").with_arguments(object(json!({"x": "y".repeat(bytes)})));
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        tokio::time::timeout(
            Duration::from_secs(1),
            upstream.begin(request, ClientId::next(), RequestMetaObject::default()),
        )
    };
    let mut begun = Vec::new();
    for _ in 0..LARGE_CALLS_MAX {
        begun.push(call(SMALL_BYTES_MAX).await.unwrap().unwrap());
    }
    assert!(call(SMALL_BYTES_MAX).await.is_err());
    assert!(call(10).await.is_ok());
    begun.pop();
    assert!(call(SMALL_BYTES_MAX).await.is_ok());
    upstream.close();
    assert!(matches!(call(10).await, Ok(Err(Failure::Closed))));
}
