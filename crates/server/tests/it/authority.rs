//! Who may do what, through every door: the table in `engine::authority`, and nothing beside it.

use std::collections::BTreeMap;

use access::devices::Visitor;
use engine::{
    APPROVAL, Act, AskId, CallerKind, Content, ListQuery, MODE, OpenError, PageRequest, PermissionAnswer,
    Principal, Sender, Seq, ServerTransport, SessionId, Standing, SurfaceId, ToolServer,
};
use serde_json::{Value, json};
use server::ConnectionParts;
use service::{Caller, NewSessionOptions, Service, ServiceError, ServiceRules};
use testkit::server::{OlderClient, Server, Setup, run};
use wire::native::{Decision, Request, Role};
use wire::{Dialect, DialectSelection, EventRange};

use crate::rest::door::{CI, Door, MASTER};
use testkit::app_client::AppHarness;

/// What somebody was told who was not let: nothing, or why.
type Refused = Option<String>;

/// The door decides as the table does, and gives its reason.
fn check(door: &str, kind: CallerKind, act: Act, refused: &Refused) {
    match kind.may(act) {
        Ok(()) => {
            let texts = CallerKind::ALL.into_iter().filter_map(|kind| kind.may(act).err());
            let said = refused.as_deref().unwrap_or_default();
            assert!(
                texts.into_iter().all(|text| !said.contains(&*text.0)),
                "{door}: {kind:?} may {act:?}, and was told {said:?}"
            );
        }
        Err(why) => {
            assert_eq!(refused.as_deref(), Some(&*why.0), "{door}: {kind:?} may not {act:?}, and is told why")
        }
    }
}

/// Every command of the service, tried on one session.
async fn tried(
    service: &Service,
    caller: &Caller,
    id: &SessionId,
    act: Act,
) -> Option<Result<(), ServiceError>> {
    let new = NewSessionOptions::default;
    let server = ToolServer {
        name: "tools".into(),
        transport: ServerTransport::Child {
            command: "true".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
        },
    };
    Some(match act {
        Act::List => service.list(caller, ListQuery::all(caller.principal.clone()), None).await.map(drop),
        Act::Read => {
            service.row(caller, id).await.ok()?;
            service.part(caller, id, EventRange::default()).await.ok()?;
            service.read(caller, id, Seq::START, PageRequest::USUAL).await.map(drop)
        }
        Act::ReadOffer => service.folder(caller, None).await.map(drop),
        Act::Create => service.create(caller, new()).await.map(drop),
        Act::Fork => service.fork(caller, id, new()).await.map(drop),
        Act::Import => service.import(caller, Vec::new()).await.map(drop),
        Act::Open => service.load(caller, id, None).await.map(drop),
        Act::Prompt => {
            let prompt = vec![Content::text("/status")];
            service.prompt(caller, id, &caller.sender, prompt, |_| ()).await.map(drop)
        }
        Act::Cancel => service.cancel(caller, id, None).await.map(drop),
        Act::ChangeSetting => service.change(caller, id, &MODE.into(), &"ask".into(), |_| ()).await.map(drop),
        Act::SetApproval => {
            service.change(caller, id, &APPROVAL.into(), &"read-only".into(), |_| ()).await.map(drop)
        }
        Act::Allow | Act::Deny => {
            let handle = service.open(caller, id).await.ok()?;
            let answer =
                if act == Act::Allow { PermissionAnswer::AllowOnce } else { PermissionAnswer::DenyOnce };
            service.answer(caller, &handle, AskId(99), answer).await.map(drop)
        }
        Act::Rename => service.rename(caller, id, "a title").await,
        Act::Move => service.move_to(caller, id, ".".as_ref()).await.map(drop),
        Act::Close => service.close(caller, id).await.map(drop),
        Act::Delete => service.delete(caller, id).await.map(drop),
        Act::NameServer => {
            let new = NewSessionOptions { servers: vec![server], ..new() };
            service.create(caller, new).await.map(drop)
        }
        // A door asks the service by name.
        Act::ReviewChanges
        | Act::FindFiles
        | Act::ReadRules
        | Act::ChangeFiles
        | Act::Extension
        | Act::ManageServers
        | Act::RotateToken
        | Act::ListDevices
        | Act::RevokeDevice
        | Act::OwnDevice
        | Act::AdmitDevice
        | Act::ChangeRules
        | Act::ReadAudit
        | Act::Consent(_) => service.check(caller, act, Some(id)),
    })
}

#[tokio::test]
async fn the_service_decides_as_the_table_does_for_every_command_and_caller() {
    run(Setup::offline(), async |server| {
        let parts = server.connection_parts(Principal::local());
        let rules = ServiceRules { home_dir: server.workspace(), ..parts.rules };
        let service = Service::new(parts.registry, rules);
        let owner = Caller::new(CallerKind::Owner, Principal::local(), Sender::new(SurfaceId(1), "owner"));
        for kind in CallerKind::ALL {
            let own = service.create(&owner, NewSessionOptions::default()).await.unwrap().id().clone();
            let other = service.create(&owner, NewSessionOptions::default()).await.unwrap().id().clone();
            let caller = Caller::new(kind, Principal::local(), Sender::new(SurfaceId(2), "caller"));
            let caller = caller.of_session(own.clone());
            // The session is there until the end.
            let last = [Act::Close, Act::Delete];
            let acts = Act::ALL.into_iter().filter(|act| !last.contains(act)).chain(last);
            for act in acts {
                if kind.is_for_one_session(act) && act != Act::List {
                    let elsewhere = tried(&service, &caller, &other, act).await;
                    let hidden =
                        matches!(elsewhere, None | Some(Err(ServiceError::Open(OpenError::NotFound(_)))));
                    assert!(hidden, "{kind:?} {act:?} in another session: {elsewhere:?}");
                }
                let Some(done) = tried(&service, &caller, &own, act).await else {
                    assert!(kind.may(act).is_err() || kind.may(Act::Open).is_err(), "{kind:?} {act:?}");
                    continue;
                };
                let refused = match done {
                    Err(ServiceError::Forbidden(why)) => Some(why.to_string()),
                    Err(ServiceError::ToolServer(why)) => Some(why),
                    // Not beginning a session comes before naming its servers.
                    _ => None,
                };
                if act == Act::NameServer && kind.may(Act::Create).is_err() {
                    assert!(refused.is_some(), "{kind:?}");
                } else {
                    check("service", kind, act, &refused);
                }
            }
        }
    })
    .await;
}

fn visitor(kind: CallerKind) -> Option<Visitor> {
    let (role, principal) = match kind {
        CallerKind::Owner | CallerKind::OwnerElsewhere => (Role::Owner, Principal::local()),
        CallerKind::NamedClient => (Role::Owner, Principal("ci".into())),
        CallerKind::Driver => (Role::Driver, Principal::local()),
        CallerKind::Approver => (Role::Approver, Principal::local()),
        CallerKind::Viewer => (Role::Viewer, Principal::local()),
        CallerKind::SessionToken | CallerKind::BridgeDriver | CallerKind::BridgeApprover => return None,
    };
    let standing = Standing::owner_if(kind == CallerKind::Owner);
    Some(Visitor { principal, name: "somebody".into(), role, device: None, remote: None, standing })
}

fn app_requests() -> Vec<(Act, Request)> {
    let session = || "no-such-session".to_owned();
    let text = || "x".to_owned();
    let set = |setting: &str| Request::Set { session: session(), setting: setting.into(), value: text() };
    vec![
        (Act::List, Request::Sessions { before: None, search: None }),
        (Act::Read, Request::Watch { session: session(), after: None }),
        (Act::Read, Request::EarlierRows { session: session(), before: 1 }),
        (Act::Read, Request::FullRow { session: session(), row: 1 }),
        (Act::ReadOffer, Request::Offer { folder: None }),
        (Act::ReviewChanges, Request::Changes { session: session() }),
        (Act::FindFiles, Request::FindFiles { session: session(), text: text() }),
        (Act::ReadRules, Request::Rules),
        (Act::OwnDevice, Request::Presence { at: None, visible: true }),
        (
            Act::Allow,
            Request::Answer { session: session(), ask: 1, decision: Decision::AllowOnce, text: None },
        ),
        (Act::Create, Request::Open { folder: Some("/no/such/folder".into()), settings: BTreeMap::new() }),
        (
            Act::Prompt,
            Request::Prompt { session: session(), key: text(), text: text(), pictures: Vec::new() },
        ),
        (Act::Cancel, Request::Cancel { session: session(), turn: None }),
        (Act::ChangeSetting, set("mode")),
        (Act::SetApproval, set("approval")),
        (Act::Rename, Request::Rename { session: session(), title: text() }),
        (Act::Delete, Request::Delete { session: session() }),
        (Act::ChangeFiles, Request::Keep { session: session(), path: text(), hunk: None }),
        (Act::ChangeFiles, Request::Revert { session: session(), path: text(), hunk: None }),
        (Act::ChangeRules, Request::Forget { rule: text() }),
        (Act::ListDevices, Request::Devices),
        (Act::AdmitDevice, Request::Invite { role: Role::Viewer }),
        (Act::RevokeDevice, Request::Revoke { device: text() }),
    ]
}

#[tokio::test]
async fn our_own_clients_are_let_as_the_table_says() {
    run(Setup::offline(), async |server| {
        let house = AppHarness::new(server);
        for kind in CallerKind::ALL {
            let Some(visitor) = visitor(kind) else { continue };
            let mut client = house.client_of(visitor).await;
            for (act, request) in app_requests() {
                let answer = client.ask(request).await;
                let refused = answer.err().filter(|wrong| wrong.code == "forbidden");
                check("app", kind, act, &refused.map(|wrong| wrong.message));
            }
        }
        house.close().await;
    })
    .await;
}

fn routes(id: &str) -> Vec<(Act, &'static str, String, Value)> {
    let none = || Value::Null;
    vec![
        (Act::List, "GET", "/sessions".into(), none()),
        (Act::Read, "GET", format!("/session/{id}"), none()),
        (Act::Read, "GET", format!("/sessions/{id}/messages"), none()),
        (Act::Read, "GET", format!("/sessions/{id}/transcript"), none()),
        (Act::Create, "POST", "/session".into(), json!({})),
        (Act::Create, "POST", "/sessions".into(), json!({})),
        (Act::Fork, "POST", format!("/sessions/{id}/fork"), json!({})),
        (Act::Prompt, "POST", format!("/session/{id}/message"), json!({ "text": "/status" })),
        (Act::Prompt, "POST", format!("/sessions/{id}/prompt"), json!({ "prompt": "/status" })),
        (Act::Cancel, "POST", format!("/session/{id}/cancel"), json!({})),
        (Act::Rename, "PATCH", format!("/sessions/{id}"), json!({ "title": "a title" })),
        (Act::RotateToken, "POST", format!("/session/{id}/rotate-token"), json!({})),
        (
            Act::Allow,
            "POST",
            "/tool/approve".into(),
            json!({ "session_id": id, "permission_id": format!("r1.{id}"), "approved": true }),
        ),
        (Act::Delete, "DELETE", format!("/session/{id}"), none()),
    ]
}

/// A test's request has no connection, so nobody is at the machine.
#[tokio::test]
async fn rest_clients_are_let_as_the_table_says() {
    run(Setup::offline(), async |server| {
        let door = Door::open(server);
        for (kind, token) in [
            (CallerKind::OwnerElsewhere, Some(MASTER)),
            (CallerKind::NamedClient, Some(CI)),
            (CallerKind::SessionToken, None),
        ] {
            for index in 0..routes("x").len() {
                let maker = token.unwrap_or(MASTER);
                let made = door.post("/session", json!({})).by(maker).answer().await;
                let made = made.is(axum::http::StatusCode::CREATED);
                let id = made["session_id"].as_str().unwrap();
                let token = token.unwrap_or(made["session_token"].as_str().unwrap());
                let (act, method, path, body) = routes(id).swap_remove(index);
                let ask = match method {
                    "GET" => door.get(path.clone()),
                    "DELETE" => door.delete(path.clone()),
                    method => door.send(method, path.clone(), body),
                };
                let answer = ask.by(token).answer().await;
                let refused = matches!(answer.status.as_u16(), 401 | 403);
                assert_eq!(
                    refused,
                    kind.may(act).is_err(),
                    "{kind:?} {act:?} {method} {path}: {}",
                    answer.text
                );
            }
        }
        door.close().await;
    })
    .await;
}

async fn rpc(server: &mut Server, kind: CallerKind, dialect: Dialect) -> OlderClient {
    let principal = if kind == CallerKind::NamedClient { Principal("ci".into()) } else { Principal::local() };
    let parts = server.connection_parts(principal);
    let rules = ServiceRules { home_dir: server.workspace(), ..parts.rules.clone() };
    let mut client = server.connect_older_with(ConnectionParts {
        kind,
        rules,
        dialect: DialectSelection::Only(dialect),
        ..parts
    });
    let hello = if dialect == Dialect::Acp { json!({ "protocolVersion": 1 }) } else { json!({}) };
    client.call("initialize", hello).await;
    client
}

#[tokio::test]
async fn json_rpc_clients_are_let_as_the_table_says() {
    run(Setup::offline(), async |server| {
        for kind in [CallerKind::Owner, CallerKind::OwnerElsewhere, CallerKind::NamedClient] {
            let mut client = rpc(server, kind, Dialect::Ferret).await;
            let id = client.new_session().await;
            let cwd = server.workspace();
            for (act, method, params) in [
                (Act::List, "session/list", json!({})),
                (Act::Create, "session/new", json!({ "cwd": cwd })),
                (Act::Open, "session/load", json!({ "sessionId": id })),
                (Act::Prompt, "session/message", json!({ "sessionId": id, "message": "/status" })),
                (Act::SetApproval, "session/setApproval", json!({ "sessionId": id, "preset": "read-only" })),
                (Act::Cancel, "session/cancel", json!({ "sessionId": id })),
            ] {
                let sent = client.send(method, params).await;
                let refused = client.reply(sent).await.err().map(|refused| refused.message);
                check("json-rpc", kind, act, &refused);
            }
        }
    })
    .await;
}

/// The older dialects name no tool servers; the official one does.
#[tokio::test]
async fn tool_servers_are_named_by_whom_the_table_says() {
    run(Setup::offline(), async |server| {
        for kind in [CallerKind::Owner, CallerKind::OwnerElsewhere, CallerKind::NamedClient] {
            let mut client = rpc(server, kind, Dialect::Acp).await;
            let program = json!([{ "name": "tools", "command": "true", "args": [], "env": [] }]);
            let sent =
                client.send("session/new", json!({ "cwd": server.workspace(), "mcpServers": program })).await;
            let refused = client.reply(sent).await.err().map(|refused| refused.message);
            check("official json-rpc", kind, Act::NameServer, &refused);
        }
    })
    .await;
}
