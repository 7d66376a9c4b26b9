//! The requests of our own clients that are about devices and pushes.

use std::sync::Arc;

use engine::{Act, Timestamp, may};
use tokio::time::Instant;
use wire::native::{PushSubscription, ReplyBody, ReplyError, Request, Role};

use super::{DeviceEvent, Devices, Visitor, wrong};

impl Devices {
    /// Answers the requests that are about devices and pushes, and no others.
    pub async fn answer(&self, visitor: &Visitor, request: Request) -> Result<ReplyBody, ReplyError> {
        // A request may have been on its way while its device was revoked.
        if visitor.device.as_ref().is_some_and(|device| self.state().list.get(device).is_none()) {
            return Err(wrong("forbidden", "this device was signed out"));
        }
        match request {
            Request::Devices => {
                must_own(visitor)?;
                self.refresh().await;
                let (devices, knocks) = self.devices_and_knocks(&visitor.principal);
                Ok(ReplyBody::Devices { devices, knocks })
            }
            Request::Invite { role } => {
                must_own(visitor)?;
                may(visitor.standing, Act::AdmitDevice)
                    .map_err(|why| wrong("forbidden", &why.to_string()))?;
                self.invitation(visitor, role).map(ReplyBody::Invited)
            }
            Request::Admit { knock, role } => {
                must_own(visitor)?;
                if role.is_some() {
                    may(visitor.standing, Act::AdmitDevice)
                        .map_err(|why| wrong("forbidden", &why.to_string()))?;
                }
                self.admit(visitor, &knock, role)
            }
            Request::Revoke { device } => self.revoke(visitor, device).await,
            Request::Push { subscription } => self.subscribe(visitor, subscription).await,
            Request::Mute { until } => self.mute(visitor, until.map(Timestamp)).await,
            Request::TestPush => self.try_push(visitor).await,
            Request::Presence { visible, .. } => {
                if let Some(device) = &visitor.device {
                    self.presence.look(device, visible, Instant::now());
                }
                Ok(ReplyBody::Done)
            }
            Request::Sessions { .. }
            | Request::Watch { .. }
            | Request::Unwatch { .. }
            | Request::EarlierRows { .. }
            | Request::FullRow { .. }
            | Request::Offer { .. }
            | Request::Open { .. }
            | Request::Prompt { .. }
            | Request::Cancel { .. }
            | Request::Answer { .. }
            | Request::Set { .. }
            | Request::Rename { .. }
            | Request::Delete { .. }
            | Request::Changes { .. }
            | Request::Keep { .. }
            | Request::Revert { .. }
            | Request::FindFiles { .. }
            | Request::Rules
            | Request::Forget { .. } => Err(wrong("badRequest", "this request is not about devices")),
        }
    }

    fn admit(&self, owner: &Visitor, knock: &str, role: Option<Role>) -> Result<ReplyBody, ReplyError> {
        let decided = self.state().tickets.decide(&owner.principal, knock, role, Instant::now());
        let name = decided.ok_or_else(|| {
            wrong("notFound", "no such pairing request; it was already answered, or has expired")
        })?;
        if role.is_none() {
            self.report(DeviceEvent::Refused { name, by: Arc::clone(&owner.name) });
        }
        self.changed();
        Ok(ReplyBody::Done)
    }

    async fn revoke(&self, visitor: &Visitor, device: String) -> Result<ReplyBody, ReplyError> {
        if visitor.device.as_deref() != Some(device.as_str()) {
            must_own(visitor)?;
        }
        let unknown = || wrong("notFound", "no such device; list them with ropewalk devices list");
        let (principal, id) = (visitor.principal.clone(), device.clone());
        let removed = self.change(move |list| {
            list.get(&id)
                .is_some_and(|record| record.principal == principal)
                .then(|| list.remove(&id))
                .flatten()
        });
        let removed = match removed.await {
            Ok(removed) => removed.ok_or_else(unknown)?,
            Err(unwritten) => {
                self.revoke_in_memory(&device, visitor);
                return Err(ReplyError {
                    message: format!(
                        "{}; the device stays revoked only until this server is restarted",
                        unwritten.message
                    ),
                    ..unwritten
                });
            }
        };
        let by = Arc::clone(&visitor.name);
        self.report(DeviceEvent::Revoked { device: removed.id, name: removed.name, by });
        Ok(ReplyBody::Done)
    }

    /// Revokes a device in this process only, when the revocation cannot be written.
    fn revoke_in_memory(&self, device: &str, visitor: &Visitor) {
        let (list, stamp) = {
            let state = self.state();
            (state.list.clone(), state.stamp)
        };
        if list.get(device).is_some_and(|record| record.principal == visitor.principal) {
            self.state().unwritten_revocations.insert(device.into());
            self.adopt(list, stamp);
        }
    }

    async fn subscribe(
        &self,
        visitor: &Visitor,
        subscription: Option<PushSubscription>,
    ) -> Result<ReplyBody, ReplyError> {
        let id = own(visitor)?;
        if let Some(given) = &subscription {
            let push =
                self.push.get().ok_or_else(|| wrong("failed", "this server does not send notifications"))?;
            push.check(given).map_err(|error| wrong("badRequest", &error.to_string()))?;
        }
        let changed = self
            .change(move |list| list.get_mut(&id).map(|record| record.subscription = subscription).is_some());
        done(changed.await?)
    }

    async fn mute(&self, visitor: &Visitor, until: Option<Timestamp>) -> Result<ReplyBody, ReplyError> {
        let id = own(visitor)?;
        let changed =
            self.change(move |list| list.get_mut(&id).map(|record| record.muted_until = until).is_some());
        done(changed.await?)
    }

    async fn try_push(&self, visitor: &Visitor) -> Result<ReplyBody, ReplyError> {
        let id = own(visitor)?;
        let push =
            self.push.get().ok_or_else(|| wrong("failed", "this server does not send notifications"))?;
        push.try_it(&id).await?;
        Ok(ReplyBody::Done)
    }
}

fn must_own(visitor: &Visitor) -> Result<(), ReplyError> {
    if visitor.role == Role::Owner {
        return Ok(());
    }
    Err(wrong("forbidden", "only an owner can do this; ask whoever approved this device"))
}

fn own(visitor: &Visitor) -> Result<Arc<str>, ReplyError> {
    visitor
        .device
        .clone()
        .ok_or_else(|| wrong("badRequest", "only paired devices can do this; pair this one first"))
}

fn done(found: bool) -> Result<ReplyBody, ReplyError> {
    if found { Ok(ReplyBody::Done) } else { Err(wrong("forbidden", "this device was revoked")) }
}
