//! Devices that nobody looks at are told, by way of a push service that checks everything it gets.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use access::devices::push::{PushParts, Reach, Vapid};
use access::devices::{Code, Devices, Entered, Visitor, push};
use engine::{Clock, Principal, Standing, Timestamp};
use serde_json::{Value, json};
use testkit::Script;
use testkit::push::{Answer, PushService, Received};
use testkit::server::{Client, Server, Setup, run};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::native::{Answered, Request, Role, Subscription, Wrong};

/// Where the clock of the devices stands.
const NOON: i64 = 1_700_000_000_000;

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp(NOON)
    }
}

fn public(address: IpAddr) -> bool {
    !address.is_loopback()
}

/// Devices with an office, beside a server whose sessions it follows.
struct Town {
    hall: Arc<Devices>,
    service: PushService,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Town {
    /// Runs a test in which a model asks twice for leave, and then speaks.
    async fn check(loopback: bool, test: impl AsyncFnOnce(&mut Server, &mut Town)) {
        let folder = tempfile::tempdir().unwrap();
        let vapid = Vapid::load_or_create(&folder.path().join("push.key"), "mailto:ops@example.com").unwrap();
        let reach = Reach { allows: public, loopback };
        let (push, office) = push::open(PushParts { vapid, reach, clock: Arc::new(Noon) });
        let hall = Arc::new(Devices::open(None, Arc::new(Noon)));
        hall.pushes_by(Arc::clone(&push));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(office.run(Arc::clone(&hall), stop.clone()));
        let mut town = Town { hall, service: PushService::start().await, stop, tasks };

        let touch = || testkit::call("shell", r#"{"command":"echo x >> made"}"#);
        let script = Script::new([
            vec![touch()],
            vec![testkit::say("so be it")],
            vec![touch()],
            vec![testkit::say("again")],
            vec![testkit::fail("the model broke")],
        ]);
        let setup = Setup { followers: vec![push], ..Setup::script(&script) };
        run(setup, async |server| test(server, &mut town).await).await;
        town.stop.cancel();
        town.tasks.close();
        tokio::time::timeout(testkit::server::DEADLINE, town.tasks.wait()).await.unwrap();
        assert_eq!(town.service.arrived(), None, "a test looks at every push");
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
        let Answered::Invited(invitation) = self.ask(&Self::owner(), Request::Invite { role }).await.unwrap()
        else {
            panic!("no invitation");
        };
        let code = Code::read(invitation.url.split_once("#").unwrap().1);
        let Ok(Entered::Knocking { knock, .. }) = self.hall.enter(&code, "phone", None).await else {
            panic!("nobody knocks");
        };
        let (_, knocks) = self.hall.guests(&Principal::local());
        let admit = Request::Admit { knock: knocks[0].id.clone(), role: Some(role) };
        self.ask(&Self::owner(), admit).await.unwrap();
        match self.hall.wait(&knock, None).await {
            Ok(Entered::In { visitor, .. }) => visitor,
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

    async fn ask(&self, visitor: &Visitor, request: Request) -> Result<Answered, Wrong> {
        self.hall.answer(visitor, request).await
    }

    async fn refused(&self, visitor: &Visitor, request: Request) -> String {
        self.ask(visitor, request).await.unwrap_err().message
    }

    async fn looks(&self, visitor: &Visitor, visible: bool) {
        self.ask(visitor, Request::Looking { at: None, visible }).await.unwrap();
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
    Town::check(true, async |server, town| {
        let _phone = town.phone(Role::Driver).await;
        let mut asking = Asking::begin(server).await;
        let asked = town.service.next().await;
        assert_eq!(asked.payload, json!({ "v": 1, "kind": "ask", "session": asking.session, "ask": 1 }));
        assert_eq!((asked.urgency.as_deref(), asked.ttl.as_deref()), (Some("high"), Some("86400")));
        assert_eq!(Some(asked.key.as_str()), town.hall.push_key());
        let (until, now) = (asked.claims["exp"].as_i64().unwrap(), NOON / 1000);
        assert!(until > now && until <= now + 24 * 3600, "{until}");
        assert_eq!(asked.claims["sub"], "mailto:ops@example.com");

        asking.answered().await;
        let cleared = town.service.next().await;
        assert_eq!(cleared.payload, json!({ "v": 1, "kind": "clear", "session": asking.session, "ask": 1 }));
        assert_eq!(cleared.topic, asked.topic);
        assert_eq!(cleared.bytes, asked.bytes, "the push service cannot tell them apart by their length");
        assert!(!format!("{asked:?}{cleared:?}").contains("made"), "no command, no path");
    })
    .await;
}

#[tokio::test]
async fn a_device_that_somebody_looks_at_is_told_nothing() {
    Town::check(true, async |server, town| {
        let (looking, away) = (town.phone(Role::Driver).await, town.phone(Role::Driver).await);
        town.looks(&looking, true).await;
        let mut asking = Asking::begin(server).await;
        let asked = town.service.next().await;
        assert_eq!(asked.path, "/push/2");
        asking.answered().await;
        assert_eq!(town.service.next().await.path, "/push/2");

        town.looks(&looking, false).await;
        town.looks(&away, true).await;
        asking.again().await;
        assert_eq!(town.service.next().await.path, "/push/1");
        asking.answered().await;
        assert_eq!(town.service.next().await.path, "/push/1");
    })
    .await;
}

#[tokio::test]
async fn a_device_that_was_told_is_cleared_even_if_somebody_looks_at_it_or_it_wants_quiet() {
    Town::check(true, async |server, town| {
        let phone = town.phone(Role::Driver).await;
        let mut asking = Asking::begin(server).await;
        assert_eq!(town.kind().await, "ask");
        town.looks(&phone, true).await;
        town.ask(&phone, Request::Mute { until: Some(NOON + 1) }).await.unwrap();
        asking.answered().await;
        assert_eq!(town.kind().await, "clear");
    })
    .await;
}

#[tokio::test]
async fn a_muted_device_is_told_nothing_until_its_time_is_over() {
    Town::check(true, async |server, town| {
        let (muted, other) = (town.phone(Role::Driver).await, town.phone(Role::Driver).await);
        town.ask(&muted, Request::Mute { until: Some(NOON + 1) }).await.unwrap();
        let mut asking = Asking::begin(server).await;
        assert_eq!(town.service.next().await.path, "/push/2");
        asking.answered().await;
        assert_eq!(town.service.next().await.path, "/push/2");

        town.ask(&muted, Request::Mute { until: Some(NOON) }).await.unwrap();
        town.ask(&other, Request::Push { subscription: None }).await.unwrap();
        asking.again().await;
        assert_eq!(town.service.next().await.path, "/push/1");
        asking.answered().await;
        assert_eq!(town.kind().await, "clear");
    })
    .await;
}

#[tokio::test]
async fn whoever_may_not_answer_hears_only_how_turns_end() {
    Town::check(true, async |server, town| {
        let _viewer = town.phone(Role::Viewer).await;
        let mut asking = Asking::begin(server).await;
        // The turn takes longer than anybody stays to look at it.
        server.clock().advance(Duration::from_secs(11));
        asking.answered().await;
        let ended = town.service.next().await;
        assert_eq!(ended.payload, json!({ "v": 1, "kind": "ended", "session": asking.session }));
        assert_eq!(ended.urgency.as_deref(), Some("normal"));

        asking.again().await;
        asking.answered().await;
        let failing = asking.client.send_prompt(&asking.session, "go").await;
        assert!(asking.client.reply(failing).await.is_err());
        assert_eq!(town.kind().await, "failed", "a short turn that ends well is not told");
    })
    .await;
}

#[tokio::test]
async fn a_subscription_that_is_gone_is_forgotten() {
    Town::check(true, async |server, town| {
        let phone = town.phone(Role::Driver).await;
        town.service.then(Answer::Status(410));
        let mut changes = town.hall.changes();
        changes.mark_unchanged();
        let mut asking = Asking::begin(server).await;
        assert_eq!(town.kind().await, "ask");
        tokio::time::timeout(testkit::server::DEADLINE, changes.changed()).await.unwrap().unwrap();
        assert!(!town.hall.guests(&Principal::local()).0[0].push);
        asking.answered().await;
        let tried = town.refused(&phone, Request::TryPush).await;
        assert!(tried.contains("not asked for notifications"), "{tried}");
    })
    .await;
}

#[tokio::test]
async fn a_service_that_is_busy_gets_the_push_again_after_the_time_it_asked_for() {
    Town::check(true, async |server, town| {
        let phone = town.phone(Role::Driver).await;
        town.service.then(Answer::With(429, "retry-after", "30".into()));
        let mut asking = Asking::begin(server).await;
        let first = town.service.next().await;
        let began = tokio::time::Instant::now();
        // A trial goes past what rests; when it is answered the office has seen the 429 as well.
        town.ask(&phone, Request::TryPush).await.unwrap();
        assert_eq!(town.kind().await, "test");
        assert_eq!(town.service.arrived(), None);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(30)).await;
        tokio::time::resume();
        let second = town.service.next().await;
        assert_eq!((&second.payload, &second.topic), (&first.payload, &first.topic));
        assert!(began.elapsed() >= Duration::from_secs(29));
        asking.answered().await;
        assert_eq!(town.kind().await, "clear");
    })
    .await;
}

#[tokio::test]
async fn a_service_that_leads_elsewhere_or_never_stops_talking_gets_nowhere() {
    Town::check(true, async |server, town| {
        let phone = town.phone(Role::Driver).await;
        let mut other = PushService::start().await;
        for status in [301, 302, 307, 308] {
            let elsewhere = other.subscribe().endpoint;
            town.service.then(Answer::With(status, "location", elsewhere));
            let refused = town.refused(&phone, Request::TryPush).await;
            assert!(refused.contains(&status.to_string()), "{refused}");
            assert_eq!(town.kind().await, "test");
        }
        assert_eq!(other.arrived(), None);
        town.service.then(Answer::Endless);
        town.ask(&phone, Request::TryPush).await.unwrap();
        assert_eq!(town.kind().await, "test");
        let mut asking = Asking::begin(server).await;
        assert_eq!(town.kind().await, "ask");
        asking.answered().await;
        assert_eq!(town.kind().await, "clear");
    })
    .await;
}

#[tokio::test]
async fn a_device_cannot_make_the_server_call_its_neighbours() {
    Town::check(false, async |_, town| {
        let phone = town.device(Role::Driver).await;
        let good = town.service.subscribe();
        let port = town.service.address().port();
        for (endpoint, said) in [
            (good.endpoint.clone(), "https:// addresses only"),
            (format!("https://127.0.0.1:{port}/push/1"), "not a public address"),
            (format!("https://[::1]:{port}/push/1"), "not a public address"),
            ("https://user:word@push.example.com/".to_owned(), "a user name"),
            ("nonsense".to_owned(), "malformed"),
        ] {
            let subscription = Some(Subscription { endpoint, ..good.clone() });
            let refused = town.refused(&phone, Request::Push { subscription }).await;
            assert!(refused.contains(said), "{refused}");
        }
        // What a name leads to is known only when it is looked up.
        let endpoint = format!("https://localhost:{port}/push/1");
        let subscription = Some(Subscription { endpoint, ..good });
        town.ask(&phone, Request::Push { subscription }).await.unwrap();
        let refused = town.refused(&phone, Request::TryPush).await;
        assert!(refused.contains("not at a public address"), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn a_trial_says_what_the_push_service_said() {
    Town::check(true, async |_, town| {
        let fresh = town.device(Role::Viewer).await;
        let refused = town.refused(&fresh, Request::TryPush).await;
        assert!(refused.contains("not asked for notifications"), "{refused}");

        let phone = town.phone(Role::Viewer).await;
        town.ask(&phone, Request::TryPush).await.unwrap();
        let tried = town.service.next().await;
        assert_eq!(tried.payload, json!({ "v": 1, "kind": "test" }));
        assert_eq!(tried.topic, None);
        for (status, said) in [(403, "403"), (503, "503"), (410, "does not know this device")] {
            town.service.then(Answer::Status(status));
            let refused = town.refused(&phone, Request::TryPush).await;
            assert!(refused.contains(said), "{refused}");
            assert_eq!(town.kind().await, "test");
        }
        assert!(town.refused(&phone, Request::TryPush).await.contains("not asked for notifications"));
    })
    .await;
}
