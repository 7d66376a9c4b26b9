//! Devices that nobody looks at are told, by way of a push service that checks everything it gets.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use access::devices::push::{PushAddressPolicy, PushParts, Vapid};
use access::devices::{Code, Devices, SignInOutcome, Visitor, push};
use engine::{Clock, Principal, Standing, Timestamp};
use serde_json::{Value, json};
use testkit::Script;
use testkit::push_service::{PushService, PushServiceReply, Received};
use testkit::server::{Client, Server, Setup, run};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::{PushSubscription, ReplyBody, ReplyError, Request, Role};

/// Where the clock of the devices stands.
const NOON: i64 = 1_700_000_000_000;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp(NOON)
    }
}

fn public(address: IpAddr) -> bool {
    !address.is_loopback()
}

/// Devices with an office, beside a server whose sessions it follows.
struct TestPush {
    hall: Arc<Devices>,
    service: PushService,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl TestPush {
    /// Runs a test in which a model asks twice for leave, and then speaks.
    async fn check(loopback: bool, test: impl AsyncFnOnce(&mut Server, &mut TestPush)) {
        let folder = tempfile::tempdir().unwrap();
        let vapid = Vapid::load_or_create(&folder.path().join("push.key"), "mailto:ops@example.com").unwrap();
        let reach = PushAddressPolicy { allows: public, loopback };
        let (push, sender) = push::open(PushParts { vapid, allowed: reach, clock: Arc::new(FixedClock) });
        let hall = Arc::new(Devices::open(None, Arc::new(FixedClock)));
        hall.set_push(Arc::clone(&push));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(sender.run(Arc::clone(&hall), stop.clone()));
        let mut fixture = TestPush { hall, service: PushService::start().await, stop, tasks };

        let touch = || testkit::call("shell", r#"{"command":"echo x >> made"}"#);
        let script = Script::new([
            vec![touch()],
            vec![testkit::say("so be it")],
            vec![touch()],
            vec![testkit::say("again")],
            vec![testkit::fail("the model broke")],
        ]);
        let setup = Setup { followers: vec![push], ..Setup::script(&script) };
        run(setup, async |server| test(server, &mut fixture).await).await;
        fixture.stop.cancel();
        fixture.tasks.close();
        tokio::time::timeout(testkit::server::DEADLINE, fixture.tasks.wait()).await.unwrap();
        assert_eq!(fixture.service.arrived(), None, "a test looks at every push");
    }

    fn owner() -> Visitor {
        let name = "terminal".into();
        Visitor {
            principal: Principal::local(),
            name,
            role: Role::Owner,
            device: None,
            remote: None,
            standing: Standing::OwnerAtMachine,
        }
    }

    /// A device that was let in, and has not asked for anything.
    async fn device(&self, role: Role) -> Visitor {
        let ReplyBody::Invited(invitation) =
            self.ask(&Self::owner(), Request::Invite { role }).await.unwrap()
        else {
            panic!("no invitation");
        };
        let code = Code::read(invitation.url.split_once("#").unwrap().1);
        let Ok(SignInOutcome::Knocking { knock, .. }) = self.hall.enter(&code, "phone", None).await else {
            panic!("nobody knocks");
        };
        let (_, knocks) = self.hall.devices_and_knocks(&Principal::local());
        let admit = Request::Admit { knock: knocks[0].id.clone(), role: Some(role) };
        self.ask(&Self::owner(), admit).await.unwrap();
        match self.hall.wait(&knock, None).await {
            Ok(SignInOutcome::In { visitor, .. }) => visitor,
            other => panic!("{other:?}"),
        }
    }

    /// One that wants pushes.
    async fn phone(&self, role: Role) -> Visitor {
        let visitor = self.device(role).await;
        let subscription = Some(self.service.subscribe());
        self.ask(&visitor, Request::Push { subscription }).await.unwrap();
        visitor
    }

    async fn ask(&self, visitor: &Visitor, request: Request) -> Result<ReplyBody, ReplyError> {
        self.hall.answer(visitor, request).await
    }

    async fn refused(&self, visitor: &Visitor, request: Request) -> String {
        self.ask(visitor, request).await.unwrap_err().message
    }

    async fn looks(&self, visitor: &Visitor, visible: bool) {
        self.ask(visitor, Request::Presence { at: None, visible }).await.unwrap();
    }

    async fn kind(&mut self) -> String {
        kind(&self.service.next().await)
    }
}

fn kind(received: &Received) -> String {
    received.payload["kind"].as_str().unwrap().to_owned()
}

/// A turn that waits for leave.
struct Asking {
    client: Client,
    session: String,
    turn: u64,
    ask: Value,
}

impl Asking {
    async fn begin(server: &mut Server) -> Self {
        let mut client = server.client().await;
        let session = client.new_session().await;
        let turn = client.send_prompt(&session, "go").await;
        let ask = client.next_ask().await;
        Self { client, session, turn, ask }
    }

    async fn answered(&mut self) {
        self.client.answer(&self.ask, "reject_once").await;
        assert_eq!(self.client.stop_reason(self.turn).await, "end_turn");
    }

    async fn again(&mut self) {
        self.turn = self.client.send_prompt(&self.session, "go").await;
        self.ask = self.client.next_ask().await;
    }
}

#[tokio::test]
async fn an_ask_reaches_a_device_that_nobody_looks_at_and_is_cleared_when_it_is_answered_elsewhere() {
    TestPush::check(true, async |server, fixture| {
        let _phone = fixture.phone(Role::Driver).await;
        let mut asking = Asking::begin(server).await;
        let asked = fixture.service.next().await;
        assert_eq!(asked.payload, json!({ "v": 1, "kind": "ask", "session": asking.session, "ask": 1 }));
        assert_eq!((asked.urgency.as_deref(), asked.ttl.as_deref()), (Some("high"), Some("86400")));
        assert_eq!(Some(asked.key.as_str()), fixture.hall.push_key());
        let (until, now) = (asked.claims["exp"].as_i64().unwrap(), NOON / 1000);
        assert!(until > now && until <= now + 24 * 3600, "{until}");
        assert_eq!(asked.claims["sub"], "mailto:ops@example.com");

        asking.answered().await;
        let cleared = fixture.service.next().await;
        assert_eq!(cleared.payload, json!({ "v": 1, "kind": "clear", "session": asking.session, "ask": 1 }));
        assert_eq!(cleared.topic, asked.topic);
        assert_eq!(cleared.bytes, asked.bytes, "the push service cannot tell them apart by their length");
        assert!(!format!("{asked:?}{cleared:?}").contains("made"), "no command, no path");
    })
    .await;
}

#[tokio::test]
async fn a_device_that_somebody_looks_at_is_told_nothing() {
    TestPush::check(true, async |server, fixture| {
        let (looking, away) = (fixture.phone(Role::Driver).await, fixture.phone(Role::Driver).await);
        fixture.looks(&looking, true).await;
        let mut asking = Asking::begin(server).await;
        let asked = fixture.service.next().await;
        assert_eq!(asked.path, "/push/2");
        asking.answered().await;
        assert_eq!(fixture.service.next().await.path, "/push/2");

        fixture.looks(&looking, false).await;
        fixture.looks(&away, true).await;
        asking.again().await;
        assert_eq!(fixture.service.next().await.path, "/push/1");
        asking.answered().await;
        assert_eq!(fixture.service.next().await.path, "/push/1");
    })
    .await;
}

#[tokio::test]
async fn a_device_that_was_told_is_cleared_even_if_somebody_looks_at_it_or_it_wants_quiet() {
    TestPush::check(true, async |server, fixture| {
        let phone = fixture.phone(Role::Driver).await;
        let mut asking = Asking::begin(server).await;
        assert_eq!(fixture.kind().await, "ask");
        fixture.looks(&phone, true).await;
        fixture.ask(&phone, Request::Mute { until: Some(NOON + 1) }).await.unwrap();
        asking.answered().await;
        assert_eq!(fixture.kind().await, "clear");
    })
    .await;
}

#[tokio::test]
async fn a_muted_device_is_told_nothing_until_its_time_is_over() {
    TestPush::check(true, async |server, fixture| {
        let (muted, other) = (fixture.phone(Role::Driver).await, fixture.phone(Role::Driver).await);
        fixture.ask(&muted, Request::Mute { until: Some(NOON + 1) }).await.unwrap();
        let mut asking = Asking::begin(server).await;
        assert_eq!(fixture.service.next().await.path, "/push/2");
        asking.answered().await;
        assert_eq!(fixture.service.next().await.path, "/push/2");

        fixture.ask(&muted, Request::Mute { until: Some(NOON) }).await.unwrap();
        fixture.ask(&other, Request::Push { subscription: None }).await.unwrap();
        asking.again().await;
        assert_eq!(fixture.service.next().await.path, "/push/1");
        asking.answered().await;
        assert_eq!(fixture.kind().await, "clear");
    })
    .await;
}

#[tokio::test]
async fn whoever_may_not_answer_hears_only_how_turns_end() {
    TestPush::check(true, async |server, fixture| {
        let _viewer = fixture.phone(Role::Viewer).await;
        let mut asking = Asking::begin(server).await;
        // The turn takes longer than anybody stays to look at it.
        server.clock().advance(Duration::from_secs(11));
        asking.answered().await;
        let ended = fixture.service.next().await;
        assert_eq!(ended.payload, json!({ "v": 1, "kind": "ended", "session": asking.session }));
        assert_eq!(ended.urgency.as_deref(), Some("normal"));

        asking.again().await;
        asking.answered().await;
        let failing = asking.client.send_prompt(&asking.session, "go").await;
        assert!(asking.client.reply(failing).await.is_err());
        assert_eq!(fixture.kind().await, "failed", "a short turn that ends well is not told");
    })
    .await;
}

#[tokio::test]
async fn a_subscription_that_is_gone_is_forgotten() {
    TestPush::check(true, async |server, fixture| {
        let phone = fixture.phone(Role::Driver).await;
        fixture.service.then(PushServiceReply::Status(410));
        let mut changes = fixture.hall.changes();
        changes.mark_unchanged();
        let mut asking = Asking::begin(server).await;
        assert_eq!(fixture.kind().await, "ask");
        tokio::time::timeout(testkit::server::DEADLINE, changes.changed()).await.unwrap().unwrap();
        assert!(!fixture.hall.devices_and_knocks(&Principal::local()).0[0].push);
        asking.answered().await;
        let tried = fixture.refused(&phone, Request::TestPush).await;
        assert!(tried.contains("not asked for notifications"), "{tried}");
    })
    .await;
}

#[tokio::test]
async fn a_service_that_is_busy_gets_the_push_again_after_the_time_it_asked_for() {
    TestPush::check(true, async |server, fixture| {
        let phone = fixture.phone(Role::Driver).await;
        fixture.service.then(PushServiceReply::With(429, "retry-after", "30".into()));
        let mut asking = Asking::begin(server).await;
        let first = fixture.service.next().await;
        let began = tokio::time::Instant::now();
        // A trial goes past what rests; when it is answered the office has seen the 429 as well.
        fixture.ask(&phone, Request::TestPush).await.unwrap();
        assert_eq!(fixture.kind().await, "test");
        assert_eq!(fixture.service.arrived(), None);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(30)).await;
        tokio::time::resume();
        let second = fixture.service.next().await;
        assert_eq!((&second.payload, &second.topic), (&first.payload, &first.topic));
        assert!(began.elapsed() >= Duration::from_secs(29));
        asking.answered().await;
        assert_eq!(fixture.kind().await, "clear");
    })
    .await;
}

#[tokio::test]
async fn a_service_that_leads_elsewhere_or_never_stops_talking_gets_nowhere() {
    TestPush::check(true, async |server, fixture| {
        let phone = fixture.phone(Role::Driver).await;
        let mut other = PushService::start().await;
        for status in [301, 302, 307, 308] {
            let elsewhere = other.subscribe().endpoint;
            fixture.service.then(PushServiceReply::With(status, "location", elsewhere));
            let refused = fixture.refused(&phone, Request::TestPush).await;
            assert!(refused.contains(&status.to_string()), "{refused}");
            assert_eq!(fixture.kind().await, "test");
        }
        assert_eq!(other.arrived(), None);
        fixture.service.then(PushServiceReply::Endless);
        fixture.ask(&phone, Request::TestPush).await.unwrap();
        assert_eq!(fixture.kind().await, "test");
        let mut asking = Asking::begin(server).await;
        assert_eq!(fixture.kind().await, "ask");
        asking.answered().await;
        assert_eq!(fixture.kind().await, "clear");
    })
    .await;
}

#[tokio::test]
async fn a_device_cannot_make_the_server_call_its_neighbours() {
    TestPush::check(false, async |_, fixture| {
        let phone = fixture.device(Role::Driver).await;
        let good = fixture.service.subscribe();
        let port = fixture.service.address().port();
        for (endpoint, said) in [
            (good.endpoint.clone(), "must begin with https://"),
            (format!("https://127.0.0.1:{port}/push/1"), "not a public address"),
            (format!("https://[::1]:{port}/push/1"), "not a public address"),
            ("https://user:word@push.example.com/".to_owned(), "a user name"),
            ("nonsense".to_owned(), "malformed"),
        ] {
            let subscription = Some(PushSubscription { endpoint, ..good.clone() });
            let refused = fixture.refused(&phone, Request::Push { subscription }).await;
            assert!(refused.contains(said), "{refused}");
        }
        // What a name leads to is known only when it is looked up.
        let endpoint = format!("https://localhost:{port}/push/1");
        let subscription = Some(PushSubscription { endpoint, ..good });
        fixture.ask(&phone, Request::Push { subscription }).await.unwrap();
        let refused = fixture.refused(&phone, Request::TestPush).await;
        assert!(refused.contains("not at a public address"), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn a_trial_says_what_the_push_service_said() {
    TestPush::check(true, async |_, fixture| {
        let fresh = fixture.device(Role::Viewer).await;
        let refused = fixture.refused(&fresh, Request::TestPush).await;
        assert!(refused.contains("not asked for notifications"), "{refused}");

        let phone = fixture.phone(Role::Viewer).await;
        fixture.ask(&phone, Request::TestPush).await.unwrap();
        let tried = fixture.service.next().await;
        assert_eq!(tried.payload, json!({ "v": 1, "kind": "test" }));
        assert_eq!(tried.topic, None);
        for (status, said) in [(403, "403"), (503, "503"), (410, "no longer knows this device")] {
            fixture.service.then(PushServiceReply::Status(status));
            let refused = fixture.refused(&phone, Request::TestPush).await;
            assert!(refused.contains(said), "{refused}");
            assert_eq!(fixture.kind().await, "test");
        }
        assert!(fixture.refused(&phone, Request::TestPush).await.contains("not asked for notifications"));
    })
    .await;
}
