//! Fixture: a load balancer, hubs on one database, a machine, and a signed-in person.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use store::sql::Db;
use store::sql::log;
use tempfile::TempDir;

use crate::hubs::address::{CertificateFiles, HubAddress};
use crate::hubs::browser::{Browser, DEADLINE, PAUSE};
use crate::hubs::load_balancer::LoadBalancer;
use crate::hubs::processes::{Hub, Laptop};

pub struct World {
    pub balancer: LoadBalancer,
    pub hubs: Vec<Hub>,
    pub laptop: Laptop,
    pub person: Browser,
    /// The hubs' database, to look into.
    pub db: Arc<dyn Db>,
    prompts: u64,
    /// What was acknowledged: the session, the text and the turn that each prompt became.
    pub taken: Vec<(String, String, u64)>,
    _folder: TempDir,
}

/// What a world stands on.
struct WorldParts {
    folder: TempDir,
    balancer: LoadBalancer,
    place: HubAddress,
    /// How many hubs.
    count: usize,
    /// What the machine trusts instead of the system's certificates.
    trusts: Option<PathBuf>,
}

impl World {
    /// `more` are the arguments of every hub, `open` looks into the database when the hubs have made it.
    pub async fn new(count: usize, more: &[&str], open: impl AsyncFnOnce(&Path) -> Arc<dyn Db>) -> Self {
        let (folder, balancer) = (tempfile::tempdir().unwrap(), LoadBalancer::open().await);
        let place = HubAddress::plain(balancer.address);
        Self::on(WorldParts { folder, balancer, place, count, trusts: None }, more, open).await
    }

    /// One hub with a certificate of its own, which the machine trusts as people make it: by a file that it names.
    pub async fn secure(open: impl AsyncFnOnce(&Path) -> Arc<dyn Db>) -> Self {
        let (folder, balancer) = (tempfile::tempdir().unwrap(), LoadBalancer::open().await);
        let certificates = CertificateFiles::write(&folder.path().join("papers"));
        let place = HubAddress::secure(balancer.address, &certificates);
        let more = certificates.arguments();
        let ground = WorldParts { folder, balancer, place, count: 1, trusts: Some(certificates.authority) };
        Self::on(ground, &more.each_ref().map(String::as_str), open).await
    }

    async fn on(ground: WorldParts, more: &[&str], open: impl AsyncFnOnce(&Path) -> Arc<dyn Db>) -> Self {
        let WorldParts { folder, balancer, place, count, trusts } = ground;
        let hubs: Vec<Hub> = (0..count)
            .map(|number| Hub::start(folder.path(), &format!("hub-{number}"), &place.url, more))
            .collect();
        balancer.leads_to(&hubs.iter().map(|hub| hub.address).collect::<Vec<_>>());
        let mut person = Browser::enter(&place, &hubs[0].setup_code()).await;
        let token = person.ask(json!({ "do": "makeToken", "name": "laptop", "until": null })).await.unwrap();
        let laptop =
            Laptop::start(folder.path(), &place.url, token["secret"].as_str().unwrap(), trusts.as_deref());
        person
            .until("the machine is there", |seen| seen.machines.iter().any(|machine| machine["here"] == true))
            .await;
        let db = open(folder.path()).await;
        Self { balancer, hubs, laptop, person, db, prompts: 0, taken: Vec::new(), _folder: folder }
    }

    /// A session of the machine, opened from the hub and shown.
    pub async fn session(&mut self) -> String {
        let machine = self.person.machines[0]["id"].clone();
        let request = json!({ "do": "open", "folder": null, "settings": {} });
        let opened =
            self.person.ask(json!({ "do": "at", "machine": machine, "request": request })).await.unwrap();
        let session = opened["session"].as_str().unwrap().to_owned();
        self.person.watch(&session).await;
        session
    }

    /// A session that two windows show, after a turn in which a file was read.
    pub async fn read_by_two(&mut self) -> (String, Browser) {
        let session = self.session().await;
        let mut second = self.person.window();
        second.watch(&session).await;
        self.prompt(&session, "read README.md").await;
        self.idle().await;
        assert!(self.person.said().contains("A small library of knots"), "{}", self.person.said());
        (session, second)
    }

    /// Sends a prompt until it is acknowledged.
    pub async fn prompt(&mut self, session: &str, text: &str) -> u64 {
        self.prompts += 1;
        let key = format!("prompt-{}", self.prompts);
        let request = json!({ "do": "prompt", "session": session, "key": key, "text": text, "pictures": [] });
        let taken = self.person.ask(request).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        let turn = taken["turn"].as_u64().unwrap();
        self.taken.push((session.to_owned(), text.to_owned(), turn));
        turn
    }

    /// Waits until everything that was taken is done, as far as one browser sees.
    pub async fn idle(&mut self) {
        let last = self.taken.last().map(|(_, _, turn)| *turn);
        let ended = |row: &Value| row["is"] == "ended" && row["turn"].as_u64() == last;
        self.person
            .until("the turn ends", |seen| seen.is_idle() && seen.rows.values().rev().any(ended))
            .await;
    }

    /// The log as the hubs keep it.
    pub async fn mirrored(&self, session: &str) -> Vec<Value> {
        let found = self.db.run(vec![log::read(session, 0, 1_000_000)], Vec::new()).await.unwrap();
        found[0].rows.iter().map(|row| serde_json::from_str(&row.text(1).unwrap()).unwrap()).collect()
    }

    /// Everything is calm: the mirror becomes the log, and whoever looks sees what somebody sees who comes now.
    pub async fn judge(&mut self, session: &str, others: &mut [Browser]) {
        self.idle().await;
        let log = self.laptop.export(session);
        let deadline = Instant::now() + DEADLINE;
        while self.mirrored(session).await.len() < log.len() {
            assert!(Instant::now() < deadline, "the mirror does not come to its end");
            self.person.listen(std::time::Duration::from_millis(200)).await;
        }
        assert_eq!(self.mirrored(session).await, log, "the mirror is the log");
        let taken: Vec<_> = self.taken.iter().filter(|(of, ..)| of == session).collect();
        let mut unstarted = 0;
        for (_, text, turn) in &taken {
            let of = |kind: &str| {
                let found = log.iter().filter(|event| event["event_type"] == kind && event["turn"] == *turn);
                found.map(|event| event["payload"].to_string()).collect::<Vec<_>>()
            };
            let (mut texts, ends) = (of("user_message"), of("turn_ended"));
            if texts.is_empty() {
                // It waited behind another one when the machine died, and the log says so.
                texts = of("turn_queued");
                assert!(ends.concat().contains("interrupted"), "{text}, turn {turn}: {ends:?}");
                unstarted += 1;
            }
            assert_eq!(
                texts.len(),
                1,
                "{text} was acknowledged as turn {turn} and stands in the log once: {texts:?}"
            );
            assert!(texts[0].contains(text.as_str()), "{text}: {texts:?}");
            assert_eq!(ends.len(), 1, "{text}: turn {turn} ends once");
        }
        let messages = log.iter().filter(|event| event["event_type"] == "user_message").count();
        assert_eq!(
            messages + unstarted,
            taken.len(),
            "nothing was done that nobody asked for, and nothing twice"
        );
        let mut fresh = self.person.window();
        fresh.watch(session).await;
        for seen in std::iter::once(&mut self.person).chain(others) {
            // Whoever comes now is told a view and what followed it, one after the other.
            let deadline = Instant::now() + DEADLINE;
            while fresh.rows.last_key_value() != seen.rows.last_key_value() {
                let ends = (fresh.rows.last_key_value(), seen.rows.last_key_value());
                assert!(Instant::now() < deadline, "not everybody comes to the end: {ends:?}");
                fresh.listen(PAUSE).await;
                seen.listen(PAUSE).await;
            }
            for (id, row) in &fresh.rows {
                assert_eq!(seen.rows.get(id), Some(row), "row {id}");
            }
        }
    }
}
