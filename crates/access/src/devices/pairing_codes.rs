//! Tickets: one-time codes with which a new device signs in, and the knocks of devices that wait to be admitted.
//!
//! Plain values; the time is given. A code that was used or has expired is remembered a while, so that
//! a device that comes with it is told what is wrong with it.
//!
//! The codes of the pairing of a phone or a browser: login links, QR codes, and who waits to be admitted.

use std::sync::Arc;
use std::time::Duration;

use engine::Principal;
use tokio::time::Instant;
use wire::native::{PairingRequest, Role};

use crate::{Digest, url_safe};

/// How long a code, and a knock, can be used.
pub const TICKET_LIFE: Duration = Duration::from_secs(5 * 60);
/// How long a used or expired code is remembered.
const MEMORY: Duration = Duration::from_secs(60 * 60);
/// Codes that are remembered, and knocks that wait; beyond that the oldest is forgotten.
const TICKETS_MAX: usize = 256;
const KNOCKS_MAX: usize = 32;
/// Random bytes of a code in a link: nobody guesses them, and the QR code stays small.
const LINK_BYTES: usize = 16;
/// Characters of a code that is typed. With these letters it has 40 bits, and signs nobody in by itself:
/// its device has to be admitted.
const TYPED_CHARS: usize = 8;
/// Without letters that look like others.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// What a code grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TicketGrant {
    pub principal: Principal,
    pub role: Role,
    /// The device is signed in at once; else the owner is asked first.
    pub enters: bool,
}

#[derive(Debug)]
struct Ticket {
    link: Digest,
    typed: Option<Digest>,
    grant: TicketGrant,
    until: Instant,
    used: bool,
}

/// A new code, as it is given to people.
pub(super) struct NewCodes {
    /// For links.
    pub link: String,
    /// For typing.
    pub typed: Option<String>,
}

/// Why a code is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadCode {
    Unknown,
    Used,
    Expired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnockAnswer {
    Waiting,
    Admitted(Role),
    Refused,
}

#[derive(Debug)]
struct PendingKnock {
    id: Arc<str>,
    /// The digest of the secret that the knocking device alone has.
    secret: Digest,
    name: Arc<str>,
    words: String,
    grant: TicketGrant,
    until: Instant,
    answer: KnockAnswer,
}

/// The state of a knock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KnockState {
    Waiting { words: String },
    Admitted { grant: TicketGrant, name: Arc<str> },
    Refused,
}

#[derive(Debug, Default)]
pub(super) struct Tickets {
    tickets: Vec<Ticket>,
    knocks: Vec<PendingKnock>,
}

impl Tickets {
    /// A code is made from these random bytes and from nothing else.
    pub fn make(&mut self, grant: TicketGrant, random: &[u8; 32], now: Instant) -> NewCodes {
        self.forget(now);
        if self.tickets.len() >= TICKETS_MAX {
            self.tickets.remove(0);
        }
        let link = url_safe(&random[..LINK_BYTES]);
        // Neither of the two codes can be computed from the other.
        let short = Digest::of(&format!("typed {link}")).bytes();
        let typed = (!grant.enters).then(|| {
            short.iter().take(TYPED_CHARS).map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
        });
        let digest = typed.as_ref().map(|typed: &String| Digest::of(typed));
        let ticket =
            Ticket { link: Digest::of(&link), typed: digest, grant, until: now + TICKET_LIFE, used: false };
        self.tickets.push(ticket);
        NewCodes { link, typed }
    }

    /// A good code is used up.
    pub fn redeem(&mut self, code: &Code, now: Instant) -> Result<TicketGrant, BadCode> {
        self.forget(now);
        let given = Digest::of(&code.0);
        let mut found = None;
        for ticket in &mut self.tickets {
            let typed = ticket.typed.as_ref().is_some_and(|typed| typed.is(&given));
            if ticket.link.is(&given) || typed {
                found = Some(ticket);
            }
        }
        let ticket = found.ok_or(BadCode::Unknown)?;
        if ticket.used {
            return Err(BadCode::Used);
        }
        if ticket.until <= now {
            return Err(BadCode::Expired);
        }
        ticket.used = true;
        Ok(ticket.grant.clone())
    }

    /// Adds a knock for a device with a good code. The two words come from a secret that only the device has.
    pub fn knock(
        &mut self,
        grant: TicketGrant,
        name: Arc<str>,
        random: &[u8; 32],
        now: Instant,
    ) -> (String, String) {
        self.forget(now);
        if self.knocks.len() >= KNOCKS_MAX {
            self.knocks.remove(0);
        }
        let secret = url_safe(random);
        let digest = Digest::of(&secret);
        let words = seal::two_words(&digest.bytes());
        let id: Arc<str> = url_safe(&Digest::of(&format!("knock {secret}")).bytes()[..9]).into();
        self.knocks.push(PendingKnock {
            id,
            secret: digest,
            name,
            words: words.clone(),
            grant,
            until: now + TICKET_LIFE,
            answer: KnockAnswer::Waiting,
        });
        (secret, words)
    }

    /// The state of the knock with this secret. An answer is given once.
    pub fn knock_state(&mut self, secret: &str, now: Instant) -> Result<KnockState, BadCode> {
        let given = Digest::of(secret);
        let index = self.knocks.iter().rposition(|knock| knock.secret.is(&given)).ok_or(BadCode::Unknown)?;
        if self.knocks[index].until <= now {
            self.knocks.remove(index);
            return Err(BadCode::Expired);
        }
        match self.knocks[index].answer {
            KnockAnswer::Waiting => Ok(KnockState::Waiting { words: self.knocks[index].words.clone() }),
            KnockAnswer::Refused => {
                self.knocks.remove(index);
                Ok(KnockState::Refused)
            }
            KnockAnswer::Admitted(role) => {
                let PendingKnock { grant, name, .. } = self.knocks.remove(index);
                Ok(KnockState::Admitted { grant: TicketGrant { role, ..grant }, name })
            }
        }
    }

    /// Answers a knock of this owner: admits it with a role, or refuses it. Gives its name.
    pub fn decide(
        &mut self,
        owner: &Principal,
        id: &str,
        role: Option<Role>,
        now: Instant,
    ) -> Option<Arc<str>> {
        let waits = |knock: &&mut PendingKnock| {
            *knock.id == *id
                && knock.grant.principal == *owner
                && knock.answer == KnockAnswer::Waiting
                && knock.until > now
        };
        let knock = self.knocks.iter_mut().find(waits)?;
        knock.answer = role.map_or(KnockAnswer::Refused, KnockAnswer::Admitted);
        Some(Arc::clone(&knock.name))
    }

    /// The knocks that wait for this owner.
    pub fn waiting(&self, owner: &Principal, now: Instant) -> Vec<PairingRequest> {
        let waits = |knock: &&PendingKnock| {
            knock.grant.principal == *owner && knock.answer == KnockAnswer::Waiting && knock.until > now
        };
        let shown = |knock: &PendingKnock| PairingRequest {
            id: knock.id.to_string(),
            name: knock.name.to_string(),
            role: knock.grant.role,
            words: knock.words.clone(),
        };
        self.knocks.iter().filter(waits).map(shown).collect()
    }

    fn forget(&mut self, now: Instant) {
        self.tickets.retain(|ticket| ticket.until + MEMORY > now);
        self.knocks.retain(|knock| knock.until + TICKET_LIFE > now);
    }
}

/// A code that somebody entered, in its canonical spelling.
#[derive(Debug, PartialEq, Eq)]
pub struct Code(String);

impl Code {
    pub fn read(text: &str) -> Self {
        let text = text.trim();
        let bare: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
        let is_typed = bare.len() == TYPED_CHARS;
        Self(if is_typed { bare.to_ascii_uppercase() } else { text.to_owned() })
    }

    /// Whether it is short enough to be guessed by many tries.
    pub fn is_short(&self) -> bool {
        self.0.len() <= TYPED_CHARS
    }
}
