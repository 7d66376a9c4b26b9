//! `/metrics` as a scraper sees it.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use engine::Timestamp;
use metrics::{MessageOutcome, Metrics, OPEN_METRICS, PLAIN_TEXT};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const DEADLINE: Duration = Duration::from_secs(60);

async fn get(accept: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let metrics = Metrics::new("1.2.3", Timestamp(1_700_000_000_500));
    metrics.message("initialize", MessageOutcome::Ok);
    let serving = async { axum::serve(listener, server::http::metrics::routes::<()>(metrics)).await };
    let asking = async {
        let mut stream = TcpStream::connect(address).await.expect("the server");
        let request = format!("GET /metrics HTTP/1.1\r\nhost: x\r\n{accept}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    };
    tokio::select! {
        _ = serving => unreachable!("the server goes on"),
        answer = tokio::time::timeout(DEADLINE, asking) => answer.expect("an answer in time"),
    }
}

/// V3.
#[tokio::test]
async fn a_scrape_shows_what_was_counted_in_this_process() {
    let answer = get("").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains(&format!("content-type: {PLAIN_TEXT}\r\n")), "{answer}");
    assert!(answer.contains("bernstein_acp_messages_total{method=\"initialize\",outcome=\"ok\"} 1\n"));
}

#[tokio::test]
async fn a_scraper_that_asks_for_the_newer_form_gets_it() {
    let answer = get("accept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1\r\n").await;
    assert!(answer.contains(&format!("content-type: {OPEN_METRICS}\r\n")), "{answer}");
    assert!(answer.ends_with("# EOF\n"));
}
