//! Devices as recipients of pushes.

use engine::{BoxFuture, Principal};
use tokio::time::Instant;
use wire::native::PushSubscription;

use super::Devices;
use super::push::{Addressees, PushSubscriber};

impl Addressees for Devices {
    fn subscribed<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Vec<PushSubscriber>> {
        Box::pin(async move {
            self.refresh().await;
            let (now, state) = (self.clock.now(), self.state());
            let bound = state.list.of(owner).filter(|record| self.is_bound(record));
            bound.filter_map(|record| record.subscribed(now)).collect()
        })
    }

    fn subscriber<'a>(&'a self, device: &'a str) -> BoxFuture<'a, Option<PushSubscriber>> {
        Box::pin(async move {
            self.refresh().await;
            let (now, state) = (self.clock.now(), self.state());
            state.list.get(device).filter(|record| self.is_bound(record))?.subscribed(now)
        })
    }

    fn looks(&self, device: &str) -> bool {
        self.presence.are_on(device, Instant::now())
    }

    fn unsubscribe<'a>(&'a self, device: &'a str, gone: &'a PushSubscription) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (device, gone) = (device.to_owned(), gone.clone());
            let forgotten = self.change(move |list| {
                if let Some(record) = list.get_mut(&device) {
                    record.subscription.take_if(|kept| *kept == gone);
                }
            });
            if let Err(wrong) = forgotten.await {
                tracing::warn!(message = wrong.message, "could not remove a push subscription");
            }
        })
    }
}
