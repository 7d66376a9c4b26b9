//! Requests to a router in this process: no socket, no client.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;

/// Headers of a request; a name may come several times.
pub fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_static(value));
    }
    headers
}

/// What the router answers.
pub async fn send(router: &Router, request: Request) -> (StatusCode, String) {
    let service = TowerToHyperService::new(router.clone());
    let Ok(answer) = hyper::service::Service::call(&service, request).await;
    let answer: Response = answer;
    let status = answer.status();
    let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

/// A `GET` with a token.
pub fn ask(path: &str, token: &str) -> Request {
    let request = Request::builder().uri(path).header("host", "127.0.0.1");
    request.header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap()
}

/// A `POST` of JSON with the token that opens everything.
pub fn post(path: &str, body: impl Into<Body>) -> Request {
    let mut request = ask(path, "master").map(|_| body.into());
    *request.method_mut() = Method::POST;
    request.headers_mut().insert("content-type", "application/json; charset=utf-8".parse().unwrap());
    request
}

/// The word for what was refused.
pub fn code(text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap();
    value["error"].as_str().unwrap().to_owned()
}
