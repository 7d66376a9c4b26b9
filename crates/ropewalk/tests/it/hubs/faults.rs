//! Random faults: hubs, machine, load balancer, PostgreSQL and NATS are killed, stopped, cut and stalled during work.

use std::time::{Duration, Instant};

use testkit::nats::Server as Nats;
use testkit::postgres::Cluster;

use crate::hubs::browser::Browser;
use crate::hubs::multiple_hubs;

/// In CI; `FAULTS=200` is the long form.
const FAULTS: u64 = 10;
const DOWN_MAX_MS: u64 = 1500;

/// A small generator, so that a seed that failed can be run again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Nothing acknowledged is lost or doubled, and it is said how long it takes to work again.
#[tokio::test(flavor = "multi_thread")]
async fn random_faults_lose_and_double_nothing() {
    let (count, seed) = (number("FAULTS", FAULTS), number("SEED", 7));
    let mut random = Random(seed.max(1));
    let (mut cluster, mut nats) = (Cluster::start(), Nats::start());
    let mut world = multiple_hubs::world(&cluster, Some(&nats)).await;
    let session = world.session().await;
    let mut others: Vec<Browser> = (0..2).map(|_| world.person.window()).collect();
    for other in &mut others {
        other.watch(&session).await;
    }
    let mut recovered = Vec::new();
    for fault in 0..count {
        let down = Duration::from_millis(random.below(DOWN_MAX_MS));
        world
            .prompt(
                &session,
                &format!("stream {} 40 && then write fault-{fault}.txt: {fault}", 20 + random.below(200)),
            )
            .await;
        tokio::time::sleep(Duration::from_millis(random.below(150))).await;
        let which = random.below(10);
        let hub = usize::try_from(random.below(3)).unwrap();
        match which {
            0..=2 => world.hubs[hub].kill(),
            3 | 4 => world.balancer.cut(),
            5 => world.balancer.stall(true),
            6 | 7 => world.laptop.kill(),
            8 => nats.stop(),
            _ => cluster.kill(),
        }
        world.person.listen(down).await;
        match which {
            0..=2 => world.hubs[hub].run(),
            3 | 4 => {}
            5 => world.balancer.stall(false),
            6 | 7 => world.laptop.run(),
            8 => nats.restart(),
            _ => cluster.restart(),
        }
        let healed = Instant::now();
        // The line works again when somebody's request is answered by the machine.
        world.prompt(&session, "read README.md").await;
        recovered.push(healed.elapsed());
        for other in &mut others {
            other.listen(Duration::from_millis(20)).await;
        }
        if world.taken.len() % 20 == 0 {
            world.judge(&session, &mut others).await;
        }
    }
    world.judge(&session, &mut others).await;
    recovered.sort();
    let at = |share: usize| recovered[(recovered.len() - 1) * share / 100].as_millis();
    println!(
        "faults: seed {seed}, {count} faults, {} prompts; works again after {} ms (median), {} ms (95 %), {} ms (longest)",
        world.taken.len(),
        at(50),
        at(95),
        at(100)
    );
}
