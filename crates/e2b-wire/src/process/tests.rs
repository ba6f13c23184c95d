use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::*;

fn survives<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T, text: &str) {
    assert_eq!(serde_json::to_string(message).unwrap(), text);
    assert_eq!(&serde_json::from_str::<T>(text).unwrap(), message);
}

fn read<T: DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_start_is_read_as_clients_write_it() {
    let text = r#"{"process":{"cmd":"/bin/bash","args":["-l","-c","cat"],"envs":{"E":"V"},"cwd":"/tmp"},"stdin":true}"#;
    let process = ProcessConfig {
        cmd: "/bin/bash".to_owned(),
        args: ["-l", "-c", "cat"].map(ToOwned::to_owned).to_vec(),
        envs: [("E".to_owned(), "V".to_owned())].into(),
        cwd: Some("/tmp".to_owned()),
    };
    let start = StartRequest { process, stdin: Some(true), ..StartRequest::default() };
    survives(&start, text);
    let pty = StartRequest {
        pty: Some(Pty { size: Some(PtySize { cols: 80, rows: 24 }) }),
        tag: Some("t".to_owned()),
        ..StartRequest::default()
    };
    survives(&pty, r#"{"process":{},"pty":{"size":{"cols":80,"rows":24}},"tag":"t"}"#);
}

#[test]
fn what_is_not_there_or_null_is_as_usual_and_what_nobody_knows_is_passed_over() {
    assert_eq!(read::<StartRequest>(json!({})), StartRequest::default());
    let nulls = json!({ "process": { "cmd": null, "args": null, "envs": null, "cwd": null }, "pty": null, "x": [1] });
    assert_eq!(read::<StartRequest>(nulls), StartRequest::default());
    assert_eq!(read::<ProcessRequest>(json!({ "process": null })), ProcessRequest::default());
    assert_eq!(read::<EventMessage>(json!({ "event": { "later": {} } })).event, Event::Unknown);
    assert_eq!(read::<StreamInput>(json!({})), StreamInput::Unknown);
}

#[test]
fn events_are_written_as_clients_read_them() {
    let message = |event| EventMessage { event };
    survives(&message(Event::Start(Started { pid: 30347 })), r#"{"event":{"start":{"pid":30347}}}"#);
    survives(&message(Event::Data(Data::Stdout(b"hi\nx\n".to_vec()))), r#"{"event":{"data":{"stdout":"aGkKeAo="}}}"#);
    survives(&message(Event::Data(Data::Stderr(vec![0xff]))), r#"{"event":{"data":{"stderr":"/w=="}}}"#);
    survives(&message(Event::Data(Data::Pty(Vec::new()))), r#"{"event":{"data":{"pty":""}}}"#);
    survives(&message(Event::Keepalive), r#"{"event":{"keepalive":{}}}"#);
    let well = Ended { exited: true, status: "exit status 0".to_owned(), ..Ended::default() };
    survives(&message(Event::End(well)), r#"{"event":{"end":{"exited":true,"status":"exit status 0"}}}"#);
    let text = r#"{"event":{"end":{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}}}"#;
    let (status, error) = ("signal: killed".to_owned(), Some("signal: killed".to_owned()));
    survives(&message(Event::End(Ended { exit_code: -1, exited: false, status, error })), text);
}

#[test]
fn names_may_have_underscores_and_numbers_may_be_text() {
    assert_eq!(read::<Ended>(json!({ "exit_code": "7" })).exit_code, 7);
    assert_eq!(read::<Selector>(json!({ "pid": "12" })), Selector::Pid(12));
    assert_eq!(read::<PtySize>(json!({ "cols": "9", "rows": null })), PtySize { cols: 9, rows: 0 });
    for bad in [json!({ "pid": -1 }), json!({ "pid": 1.5 }), json!({ "pid": "x" }), json!({ "pid": 1_u64 << 40 })] {
        assert!(serde_json::from_value::<Selector>(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn a_process_is_meant_by_number_or_by_name() {
    survives(&ProcessRequest { process: Selector::Pid(7) }, r#"{"process":{"pid":7}}"#);
    survives(&ProcessRequest { process: Selector::Tag("t".to_owned()) }, r#"{"process":{"tag":"t"}}"#);
    survives(&ProcessRequest::default(), r#"{"process":{}}"#);
}

#[test]
fn signals_have_names_and_numbers() {
    let of = |signal: serde_json::Value| read::<SendSignalRequest>(json!({ "signal": signal })).signal;
    assert_eq!((of(json!("SIGNAL_SIGKILL")), of(json!(9))), (Signal::Kill, Signal::Kill));
    assert_eq!((of(json!("SIGNAL_SIGTERM")), of(json!(15))), (Signal::Term, Signal::Term));
    assert_eq!(
        (of(json!(null)), of(json!(0)), of(json!(2))),
        (Signal::Unspecified, Signal::Unspecified, Signal::Other(2))
    );
    assert!(serde_json::from_value::<Signal>(json!("KILL")).is_err());
    survives(&Signal::Kill, r#""SIGNAL_SIGKILL""#);
}

#[test]
fn input_is_for_a_pipe_or_a_terminal() {
    let send = SendInputRequest { process: Selector::Pid(1), input: Input::Stdin(b"a".to_vec()) };
    survives(&send, r#"{"process":{"pid":1},"input":{"stdin":"YQ=="}}"#);
    survives(&StreamInput::Start(Selector::Pid(1)), r#"{"start":{"process":{"pid":1}}}"#);
    survives(&StreamInput::Data(Input::Pty(b"a".to_vec())), r#"{"data":{"input":{"pty":"YQ=="}}}"#);
    survives(&StreamInput::Keepalive, r#"{"keepalive":{}}"#);
}

#[test]
fn a_list_echoes_what_was_asked_for() {
    let config = ProcessConfig { cmd: "sleep".to_owned(), ..ProcessConfig::default() };
    let list = ListResponse { processes: vec![ProcessInfo { config, pid: 3, tag: None }] };
    survives(&list, r#"{"processes":[{"config":{"cmd":"sleep"},"pid":3}]}"#);
    survives(&ListResponse::default(), "{}");
}

proptest! {
    #[test]
    fn no_text_breaks_a_reader(text in r#"[{}\[\]":,a-z0-9]{0,60}"#) {
        let _ = serde_json::from_str::<StartRequest>(&text);
        let _ = serde_json::from_str::<StreamInput>(&text);
        let _ = serde_json::from_str::<EventMessage>(&text);
    }

    #[test]
    fn output_comes_out_as_it_went_in(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let event = EventMessage { event: Event::Data(Data::Stderr(bytes)) };
        let text = serde_json::to_string(&event).unwrap();
        prop_assert_eq!(serde_json::from_str::<EventMessage>(&text).unwrap(), event);
    }
}
