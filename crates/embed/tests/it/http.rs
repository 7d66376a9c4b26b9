//! The HTTP door beside a program's own routes, served by axum itself.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use embed::{FunctionBackend, HttpDoorOptions, Stop, TurnContext};
use serde_json::json;
use testkit::http_client::HttpClient;
use tokio::net::TcpListener;

use crate::test_server::check_agent;

const TOKEN: &str = "a-token-that-nobody-guesses";

fn polite() -> FunctionBackend {
    FunctionBackend::new(|_, context: TurnContext| async move {
        context.text(context.new_message(), "hello").await?;
        Ok(Stop::EndTurn)
    })
}

/// CC5.
#[tokio::test]
async fn a_router_serves_the_same_sessions_beside_routes_of_ones_own() {
    check_agent(polite(), async |test_server| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = test_server.server.door(HttpDoorOptions::at(address, TOKEN)).unwrap();
        let routes = Router::new().route("/mine", get(async || "mine")).merge(door.router());
        let routes = routes.into_make_service_with_connect_info::<SocketAddr>();
        let stop = test_server.server.stopping().clone();
        let served = async {
            axum::serve(listener, routes).with_graceful_shutdown(stop.cancelled_owned()).await.unwrap();
        };
        let asked = async {
            let web = HttpClient::new(address, TOKEN);
            assert_eq!(web.get("/mine").await.text(), "mine");
            // Nobody is let in before the program says so.
            assert_eq!(web.get("/ready").await.status, 503);
            assert_eq!(web.post("/session", &json!({})).await.status, 503);
            door.open().await;
            assert_eq!(web.get("/ready").await.status, 200);
            assert_eq!(
                HttpClient { token: None, ..web.clone() }.post("/session", &json!({})).await.status,
                401
            );
            let made = web.post("/session", &json!({})).await.json();
            let session = made["session_id"].as_str().unwrap().to_owned();
            let mut client = test_server.client().await;
            client.load(&session).await;
            client.prompt(&session, "hello").await;
            let one = web.get(&format!("/session/{session}")).await.json();
            assert_eq!((&one["session_id"], &one["status"]), (&json!(session), &json!("idle")));
            let events = web.get(&format!("/sessions/{session}/messages")).await;
            assert!(events.text().contains("hello"), "{}", events.text());
            test_server.server.stopping().cancel();
            drop(client);
        };
        tokio::join!(served, asked);
    })
    .await;
}

/// Whoever comes in over HTTP works below the server's folder.
#[tokio::test]
async fn over_http_nobody_works_outside_the_servers_folder() {
    check_agent(polite(), async |test_server| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let door = test_server.server.door(HttpDoorOptions::at(address, TOKEN)).unwrap();
        door.open().await;
        let stop = test_server.server.stopping().clone();
        let served = async {
            axum::serve(listener, door.router())
                .with_graceful_shutdown(stop.cancelled_owned())
                .await
                .unwrap();
        };
        let asked = async {
            let web = HttpClient::new(address, TOKEN);
            let inside = web.post("/session", &json!({ "working_dir": test_server.home() })).await;
            assert!(inside.status < 300, "{}", inside.text());
            let outside = web.post("/session", &json!({ "working_dir": "/" })).await;
            assert!((400..500).contains(&outside.status), "{}", outside.text());
            test_server.server.stopping().cancel();
        };
        tokio::join!(served, asked);
    })
    .await;
}
