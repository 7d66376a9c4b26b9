//! The people of a hub and their routes, with a clock that tests set, and browsers that keep cookies.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use access::Refusal;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use engine::{Clock, Timestamp};
use hub::authenticator::{HubAuthenticator, HubVisitor, MachineToken};
use hub::people::{People, PeopleOptions, PushOptions, routes};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use store::sql::{Db, PostgresDb, SqliteDb, Statement};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::ReplyError;
use wire::native::hub_requests::{HubReplyBody, HubRequest, PersonView};

pub const PUBLIC: &str = "https://hub.example.org";
pub const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// No wait of a test is longer.
pub const DEADLINE: Duration = Duration::from_secs(60);

thread_local! {
    /// The PostgreSQL database of the next hub of this thread, if it is not to use a file.
    pub static ON_POSTGRES: Cell<Option<String>> = const { Cell::new(None) };
}

pub struct TestClock(AtomicI64);

impl TestClock {
    pub fn advance_ms(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

pub struct TestHub {
    pub db: Arc<dyn Db>,
    pub clock: Arc<TestClock>,
    pub people: Arc<People>,
    router: Router,
    _folder: TempDir,
}

impl TestHub {
    pub async fn open() -> Self {
        Self::open_at(PUBLIC).await
    }

    pub async fn open_at(public_url: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let db: Arc<dyn Db> = match ON_POSTGRES.take() {
            Some(url) => Arc::new(PostgresDb::connect(&url, None).await.unwrap()),
            None => Arc::new(SqliteDb::open(&folder.path().join("hub.db")).unwrap()),
        };
        let mirrors = "CREATE TABLE IF NOT EXISTS mirrors (session TEXT PRIMARY KEY, person TEXT NOT NULL)";
        db.run(vec![Statement::new(mirrors, [])], Vec::new()).await.unwrap();
        let clock = Arc::new(TestClock(AtomicI64::new(1_700_000_000_000)));
        let people = node(&db, clock.clone(), "one", public_url, None).await;
        Self { router: routes(Arc::clone(&people)), db, clock, people, _folder: folder }
    }

    /// One more node on the same database.
    pub async fn node(&self, name: &str) -> Arc<People> {
        node(&self.db, self.clock.clone(), name, PUBLIC, None).await
    }

    pub async fn node_with(&self, name: &str, push: PushOptions) -> Arc<People> {
        node(&self.db, self.clock.clone(), name, PUBLIC, Some(push)).await
    }

    pub async fn send(&self, request: Request) -> Response {
        let service = TowerToHyperService::new(self.router.clone());
        let Ok(answer) = hyper::service::Service::call(&service, request).await;
        answer
    }

    /// The first admin, in a browser of theirs.
    pub async fn admin(&self) -> Browser {
        let link = self.people.setup_link().await.unwrap().unwrap();
        let mut browser = Browser::default();
        let (status, _) = browser.follow(self, &link).await;
        assert_eq!(status, StatusCode::OK);
        browser
    }

    /// Somebody whom the admin invites, in a browser of theirs.
    pub async fn person(&self, admin: &Browser, name: &str) -> Browser {
        self.invited(admin, name, false).await
    }

    pub async fn invited(&self, admin: &Browser, name: &str, is_admin: bool) -> Browser {
        // People are listed in the order in which they came.
        self.clock.advance_ms(1);
        let invite = HubRequest::InvitePerson { name: name.into(), admin: is_admin };
        let HubReplyBody::InvitedPerson { url, .. } = admin.ask(self, invite).await.unwrap() else {
            panic!("no invitation")
        };
        let mut browser = Browser::default();
        let (status, body) = browser.follow(self, &url).await;
        assert_eq!((status, &body["person"]), (StatusCode::OK, &json!(name)));
        browser
    }

    /// Stores a session of this person, as the relay would.
    pub async fn session(&self, owner: &Browser, session: &str) {
        let person = owner.id(self).await;
        let sql = "INSERT INTO mirrors (session, person) VALUES ($1, $2)";
        self.db.run(vec![Statement::new(sql, [session.into(), person.into()])], Vec::new()).await.unwrap();
    }

    pub async fn machine(&self, token: &str) -> Result<MachineToken, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
        self.people.machine(&headers).await
    }

    /// The audit entries, in order.
    pub async fn audit(&self) -> Vec<String> {
        let sql = "SELECT what FROM hub_audit";
        let found = self.db.run(vec![Statement::new(sql, [])], Vec::new()).await.unwrap();
        found[0].rows.iter().map(|row| row.text(0).unwrap().to_string()).collect()
    }
}

/// In place of the relay's function: a test has a table of mirrors with two columns.
fn forget_mirrors(person: &hub::authenticator::PersonId) -> Vec<Statement> {
    vec![Statement::new("DELETE FROM mirrors WHERE person = $1", [person.0.clone().into()])]
}

async fn node(
    db: &Arc<dyn Db>,
    clock: Arc<TestClock>,
    name: &str,
    public_url: &str,
    push: Option<PushOptions>,
) -> Arc<People> {
    let options = PeopleOptions {
        public_url: public_url.into(),
        behind_proxy: true,
        clock,
        node: name.into(),
        forgets: forget_mirrors,
        push,
    };
    People::open(Arc::clone(db), options).await.unwrap()
}

/// Runs a node's upkeep task for the duration of a test.
pub async fn with_upkeep(people: &Arc<People>, test: impl Future<Output = ()>) {
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    tasks.spawn(Arc::clone(people).run_upkeep(stop.clone()));
    test.await;
    stop.cancel();
    tasks.close();
    tokio::time::timeout(DEADLINE, tasks.wait()).await.unwrap();
}

/// Waits until a visitor or a machine is revoked.
pub async fn until_revoked(revoked: &CancellationToken) {
    tokio::time::timeout(DEADLINE, revoked.cancelled()).await.unwrap();
}

/// What a browser has of the hub.
#[derive(Clone, Default)]
pub struct Browser {
    pub cookies: BTreeMap<String, String>,
    /// The proofs that its pages send beside the cookies: of its sign-in, and of a shared session.
    pub proofs: BTreeMap<bool, String>,
}

impl Browser {
    /// Opens a link: the page sends what stands after the `#`.
    pub async fn follow(&mut self, test_hub: &TestHub, link: &str) -> (StatusCode, Value) {
        let code = link.split_once('#').unwrap().1;
        self.post(test_hub, "/ui/enter", json!({ "code": code, "name": "a test" })).await
    }

    pub async fn post(&mut self, test_hub: &TestHub, path: &str, body: Value) -> (StatusCode, Value) {
        self.post_from(test_hub, path, body, &[("origin", PUBLIC)]).await
    }

    pub async fn post_from(
        &mut self,
        test_hub: &TestHub,
        path: &str,
        body: Value,
        headers: &[(&str, &str)],
    ) -> (StatusCode, Value) {
        let mut request = Request::post(path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !self.cookies.is_empty() {
            request = request.header("cookie", self.cookie());
        }
        if !self.proofs.is_empty() {
            let proofs: Vec<&str> = self.proofs.values().map(String::as_str).collect();
            request = request.header("x-ropewalk-proof", proofs.join(", "));
        }
        let answer = test_hub.send(request.body(Body::from(body.to_string())).unwrap()).await;
        let status = answer.status();
        for set in answer.headers().get_all(SET_COOKIE) {
            let set = set.to_str().unwrap();
            assert!(
                set.contains("; HttpOnly; SameSite=Strict; Path=/; ") && set.ends_with("; Secure"),
                "{set}"
            );
            let (name, value) = set.split_once(';').unwrap().0.split_once('=').unwrap();
            assert!(name.starts_with("__Host-"), "{name}");
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if let Some(proof) = body["proof"].as_str() {
            self.proofs.insert(body["session"].is_string(), proof.to_owned());
        }
        (status, body)
    }

    fn cookie(&self) -> String {
        let pairs: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("; ")
    }

    /// The headers of a WebSocket that one of our pages opens.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("origin", PUBLIC.parse().unwrap());
        headers.insert("upgrade", "websocket".parse().unwrap());
        headers.insert("cookie", self.cookie().parse().unwrap());
        let proofs: String = self.proofs.values().map(|proof| format!(", proof.{proof}")).collect();
        headers.insert("sec-websocket-protocol", format!("ropewalk.v1{proofs}").parse().unwrap());
        headers
    }

    pub async fn arrive(&self, people: &Arc<People>) -> Result<HubVisitor, Refusal> {
        people.visitor(&self.headers()).await
    }

    pub async fn visitor(&self, test_hub: &TestHub) -> HubVisitor {
        self.arrive(&test_hub.people).await.unwrap()
    }

    pub async fn ask(&self, test_hub: &TestHub, request: HubRequest) -> Result<HubReplyBody, ReplyError> {
        let visitor = self.visitor(test_hub).await;
        test_hub.people.answer(&visitor, request).await.unwrap()
    }

    /// The code of a refusal.
    pub async fn refused(&self, test_hub: &TestHub, request: HubRequest) -> String {
        self.ask(test_hub, request).await.unwrap_err().code
    }

    pub async fn view(&self, test_hub: &TestHub) -> PersonView {
        test_hub.people.view(&self.visitor(test_hub).await).await.unwrap().unwrap()
    }

    pub async fn id(&self, test_hub: &TestHub) -> String {
        self.view(test_hub).await.id
    }

    /// A new token of this person.
    pub async fn token(&self, test_hub: &TestHub, until: Option<i64>) -> (String, String) {
        let make = HubRequest::MakeToken { name: "laptop".into(), until };
        match self.ask(test_hub, make).await.unwrap() {
            HubReplyBody::Token { secret, token } => (secret, token.id),
            other => panic!("{other:?}"),
        }
    }
}

/// The status and the error code of a refusal over HTTP.
pub fn code(answer: &(StatusCode, Value)) -> (u16, &str) {
    (answer.0.as_u16(), answer.1["error"].as_str().unwrap_or_default())
}
