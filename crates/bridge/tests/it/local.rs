//! What our own clients at the machine see of a bridge.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use app::{AppConnection, AppServer, AppServerExtras, AppServerParts, open};
use engine::Principal;
use testkit::app_client::owner_at_machine;
use testkit::server::{DEADLINE, Setup, run};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::Dialect;
use wire::native::{Request, RequestEnvelope, ServerFrame, ServerNotification};

use super::test_bridge::{BridgeOptions, TestBridge};
use super::test_receiver::{Behaviour, Receiver};

/// Waits until these are the others who see the session.
async fn until_others(line: &mut AppConnection, wanted: &[String]) {
    let mut last = None;
    let told = async {
        while last.as_deref() != Some(wanted) {
            if let ServerFrame::Notification(told) = line.frames.recv().await.unwrap()
                && let ServerNotification::View(view) = *told
                && let Some(state) = view.state
            {
                last = Some(state.others);
            }
        }
    };
    let in_time = tokio::time::timeout(DEADLINE, told).await.is_ok();
    assert!(in_time, "{wanted:?}, not {last:?}");
}

#[tokio::test]
async fn a_client_at_the_machine_sees_where_the_session_is_bridged_to_and_whether_it_is_connected() {
    run(Setup::offline(), async |server| {
        let mut client = server.older_client(Dialect::Ferret).await;
        let session = client.new_session().await;
        let parts = server.connection_parts(Principal::local());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let app = AppServer::new(AppServerParts {
            registry: parts.registry,
            rules: parts.rules,
            identity: parts.identity,
            devices: Arc::default(),
            extras: AppServerExtras { host: "laptop".into(), rule_store: None },
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let mut line = open(&app, owner_at_machine("terminal"));
        let request = Request::Watch { session, after: None };
        line.requests.send(RequestEnvelope { id: 1, request }).await.unwrap();
        until_others(&mut line, &[]).await;
        let mut receiver = Receiver::start(Behaviour::plain()).await;
        let world = TestBridge::start(server, &receiver.url, BridgeOptions::default());
        let socket = receiver.socket().await;
        let bridge = format!("bridge to {}", receiver.url);
        until_others(&mut line, std::slice::from_ref(&bridge)).await;
        receiver.inner.manner.socket.store(503, Ordering::SeqCst);
        drop(socket);
        until_others(&mut line, &[format!("{bridge} (not connected)")]).await;
        receiver.inner.manner.socket.store(101, Ordering::SeqCst);
        let _socket = receiver.socket().await;
        until_others(&mut line, std::slice::from_ref(&bridge)).await;
        world.close().await;
        until_others(&mut line, &[]).await;
        stop.cancel();
        tasks.close();
        tokio::time::timeout(DEADLINE, tasks.wait()).await.expect("all lines end");
    })
    .await;
}
