//! A bridge in the process of a test, and what it says.

use std::sync::Arc;
use std::time::Duration;

use access::sealed::Vault;
use app::{AppServer, AppServerExtras, AppServerParts};
use bridge::{Bridge, BridgeError, BridgeParts, BridgeTimings, ReceiverAddress, RemoteAnswers, Token};
use engine::{Principal, SessionId};
use server::ConnectionParts;
use service::ServiceRules;
use testkit::server::{DEADLINE, Server};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::tunnel::MachineInfo;

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// As the seed's, a hundred times and more as fast.
pub const PACE: BridgeTimings = BridgeTimings {
    first: Duration::from_millis(20),
    longest: Duration::from_millis(200),
    heartbeat: Duration::from_millis(30),
    answer: Duration::from_secs(20),
    watched: Duration::from_millis(1),
    unwatched: Duration::from_millis(5),
    silence: Duration::from_secs(60),
    farewell: Duration::from_secs(4),
};

pub struct BridgeOptions {
    pub answers: RemoteAnswers,
    pub replay_window: u64,
    pub pace: BridgeTimings,
    pub insecure: bool,
    pub only: Option<SessionId>,
    pub vault: Option<Arc<Vault>>,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self {
            answers: RemoteAnswers::Anyone,
            replay_window: 50,
            pace: PACE,
            insecure: true,
            only: None,
            vault: None,
        }
    }
}

pub struct TestBridge {
    pub bridge: Bridge,
    lines: watch::Sender<Vec<String>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl TestBridge {
    pub fn start(server: &Server, url: &str, options: BridgeOptions) -> Self {
        let ConnectionParts { registry, rules, identity, .. } = server.connection_parts(Principal::local());
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let workspace = server.workspace();
        let rules = ServiceRules { home_dir: workspace.clone(), places: Some(vec![workspace]), ..rules };
        let app = AppServer::new(AppServerParts {
            registry,
            rules: rules.clone(),
            identity: identity.clone(),
            devices: Arc::default(),
            extras: AppServerExtras { host: "laptop".into(), rule_store: None },
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let lines = watch::Sender::new(Vec::new());
        let said = lines.clone();
        let bridge = Bridge::start(BridgeParts {
            address: ReceiverAddress::parse(url, options.insecure).unwrap(),
            token: Token::new(TOKEN).unwrap(),
            app,
            identity,
            rules,
            metrics: None,
            machine: Some(MachineInfo {
                id: "m1".into(),
                name: "laptop".into(),
                version: "1.2.3".into(),
                sealed: false,
            }),
            vault: options.vault,
            only: options.only,
            answers: options.answers,
            replay_window: options.replay_window,
            timings: options.pace,
            print_status: Arc::new(move |line: &str| said.send_modify(|lines| lines.push(line.to_owned()))),
        });
        Self { bridge: bridge.unwrap(), lines, tasks, stop }
    }

    /// Waits until so many lines were said that hold these words.
    pub async fn said(&self, words: &str, count: usize) -> Vec<String> {
        self.said_within(words, count, DEADLINE).await
    }

    pub async fn said_within(&self, words: &str, count: usize, patience: Duration) -> Vec<String> {
        let mut lines = self.lines.subscribe();
        let enough =
            lines.wait_for(|lines| lines.iter().filter(|line| line.contains(words)).count() >= count);
        let all = tokio::time::timeout(patience, enough).await;
        let all = all.unwrap_or_else(|_| panic!("{words:?} is said: {:#?}", self.lines.borrow()));
        all.unwrap().iter().filter(|line| line.contains(words)).cloned().collect()
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }

    pub async fn failed(&mut self) -> BridgeError {
        tokio::time::timeout(DEADLINE, self.bridge.failed()).await.expect("the bridge ends")
    }

    pub async fn close(self) {
        self.bridge.finish().await;
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(DEADLINE, self.tasks.wait()).await.expect("all lines end");
    }
}
