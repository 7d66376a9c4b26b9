//! Somebody who signs in, and the token of a machine.

use anyhow::{Context, ensure};
use serde_json::json;

use super::cluster::Hubs;
use super::wire::{Key, ask, post, socket};

pub const UI: &str = "ropewalk.v1";

pub struct Person {
    pub cookie: Key,
    pub token: Key,
}

/// The first admin, and as many others as it invites; each with a machine's token.
pub async fn sign_in(hubs: &Hubs, count: usize) -> anyhow::Result<Vec<Person>> {
    let first = enter(hubs, &hubs.setup_code()?, 0).await?;
    let mut line = socket(hubs.of(0), &hubs.public, "/ui/socket", UI, &first).await?;
    let mut cookies = vec![first];
    for number in 1..count {
        let invited = json!({ "do": "invitePerson", "name": format!("person {number}"), "admin": false });
        let invited = ask(&mut line, number as u64, invited).await?;
        let url = invited["url"].as_str().context("no link")?;
        let code = url.split('#').nth(1).context("no code")?;
        cookies.push(enter(hubs, code, number).await?);
    }
    let mut people = Vec::new();
    for (number, cookie) in cookies.into_iter().enumerate() {
        let mut line = socket(hubs.of(number), &hubs.public, "/ui/socket", UI, &cookie).await?;
        let made = ask(&mut line, 1, json!({ "do": "makeToken", "name": "bench", "until": null })).await?;
        let token = Key::Bearer(made["secret"].as_str().context("no token")?.to_owned());
        people.push(Person { cookie, token });
    }
    Ok(people)
}

async fn enter(hubs: &Hubs, code: &str, number: usize) -> anyhow::Result<Key> {
    let body = json!({ "code": code, "name": format!("browser {number}"), "person": "ops" });
    let answer = post(hubs.of(number), &hubs.public, "/ui/enter", &Key::Nobody, &body).await?;
    ensure!(answer.status == 200, "not let in: {} {}", answer.status, answer.body);
    let proof = answer.body["proof"].as_str().context("no proof")?.to_owned();
    Ok(Key::Browser { cookie: answer.cookie.context("no cookie")?, proof })
}
