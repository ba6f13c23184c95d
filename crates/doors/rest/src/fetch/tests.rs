//! Fetching from a server of our own.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Answers every request with the next of these, over and over.
async fn server(answers: &'static [&'static str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for answer in answers.iter().cycle() {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    format!("http://{address}/a/skill.zip")
}

fn allowing() -> SkillsConfig {
    SkillsConfig { allow_urls: true, allow_loopback_urls: true, ..SkillsConfig::default() }
}

fn code(failure: &Failure) -> String {
    serde_json::to_value(failure.body(None)).unwrap()["error"]["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_archive_is_fetched_with_its_name() {
    let url = server(&["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nzip"]).await;
    assert_eq!(archive(&allowing(), &url).await.unwrap(), (b"zip".to_vec(), "skill.zip".to_owned()));
}

#[tokio::test]
async fn nothing_is_fetched_unless_the_operator_allows_it() {
    let url = server(&["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nzip"]).await;
    assert_eq!(code(&archive(&SkillsConfig::default(), &url).await.unwrap_err()), "urls_not_allowed");
    let public = SkillsConfig { allow_loopback_urls: false, ..allowing() };
    assert_eq!(code(&archive(&public, &url).await.unwrap_err()), "validation_error");
    for url in [
        "http://169.254.169.254/latest",
        "https://10.0.0.1/x",
        "http://1.1.1.1/",
        "file:///etc/passwd",
        "https://[fd00::1]/",
    ] {
        assert_eq!(code(&archive(&allowing(), url).await.unwrap_err()), "validation_error", "{url}");
    }
}

#[tokio::test]
async fn a_redirection_is_looked_at_like_an_address() {
    let url = server(&[
        "HTTP/1.1 302 Found\r\nlocation: /b/other.zip\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nzip",
    ])
    .await;
    assert_eq!(archive(&allowing(), &url).await.unwrap().1, "skill.zip");
    for (answer, expected) in [
        ("HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n", "validation_error"),
        ("HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\ncontent-length: 0\r\n\r\n", "validation_error"),
        ("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", "validation_error"),
        ("HTTP/1.1 302 Found\r\nlocation: /again\r\ncontent-length: 0\r\n\r\n", "fetch_failed"),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "fetch_failed"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\nzip", "fetch_failed"),
        ("nonsense\r\n\r\n", "fetch_failed"),
    ] {
        let url = server(Box::leak(Box::new([answer]))).await;
        assert_eq!(code(&archive(&allowing(), &url).await.unwrap_err()), expected, "{answer}");
    }
}
