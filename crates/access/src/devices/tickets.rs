//! Tickets: one-time codes with which somebody new comes in, and the knocks of those who have to wait.
//!
//! Plain values; the time is given. A code that was used or has expired is remembered a while, so that
//! whoever comes with it is told what is wrong with it.

use std::sync::Arc;
use std::time::Duration;

use engine::Principal;
use tokio::time::Instant;
use wire::native::{Knock, Role};

use crate::{Digest, url_safe};

/// How long a code, and a knock, can be used.
pub const TICKET_LIFE: Duration = Duration::from_secs(5 * 60);
/// How long it is remembered that there was such a code.
const MEMORY: Duration = Duration::from_secs(60 * 60);
/// Codes that are remembered, and knocks that wait; beyond that the oldest is forgotten.
const TICKETS_MAX: usize = 256;
const KNOCKS_MAX: usize = 32;
/// Random bytes of a code in a link: nobody guesses them, and the QR code stays small.
const LINK_BYTES: usize = 16;
/// Characters of a code that is typed. With these letters it has 40 bits, and opens nothing by itself:
/// who comes by it has to be let in.
const TYPED_CHARS: usize = 8;
/// Without letters that look like others.
const LETTERS: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";

/// What a code opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub principal: Principal,
    pub role: Role,
    /// At once; else the owner is asked first.
    pub enters: bool,
}

#[derive(Debug)]
struct Ticket {
    link: Digest,
    typed: Option<Digest>,
    grant: Grant,
    until: Instant,
    used: bool,
}

/// A code as it is given to people.
pub(super) struct Made {
    /// For links.
    pub link: String,
    /// For fingers.
    pub typed: Option<String>,
}

/// Why a code opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bad {
    Unknown,
    Used,
    Expired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Waiting,
    Admitted(Role),
    Refused,
}

#[derive(Debug)]
struct Knocker {
    id: Arc<str>,
    /// Of what the knocker alone has.
    secret: Digest,
    name: Arc<str>,
    words: String,
    grant: Grant,
    until: Instant,
    answer: Answer,
}

/// What has become of a knock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    Waiting { words: String },
    Admitted { grant: Grant, name: Arc<str> },
    Refused,
}

#[derive(Debug, Default)]
pub(super) struct Tickets {
    tickets: Vec<Ticket>,
    knocks: Vec<Knocker>,
}

impl Tickets {
    /// A code is made from these random bytes and from nothing else.
    pub fn make(&mut self, grant: Grant, random: &[u8; 32], now: Instant) -> Made {
        self.forget(now);
        if self.tickets.len() >= TICKETS_MAX {
            self.tickets.remove(0);
        }
        let link = url_safe(&random[..LINK_BYTES]);
        // Whoever has one of the two codes knows nothing of the other.
        let short = Digest::of(&format!("typed {link}")).bytes();
        let typed = (!grant.enters).then(|| {
            short.iter().take(TYPED_CHARS).map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
        });
        let digest = typed.as_ref().map(|typed: &String| Digest::of(typed));
        let ticket =
            Ticket { link: Digest::of(&link), typed: digest, grant, until: now + TICKET_LIFE, used: false };
        self.tickets.push(ticket);
        Made { link, typed }
    }

    /// A good code is used up.
    pub fn redeem(&mut self, code: &Code, now: Instant) -> Result<Grant, Bad> {
        self.forget(now);
        let given = Digest::of(&code.0);
        let mut found = None;
        for ticket in &mut self.tickets {
            let typed = ticket.typed.as_ref().is_some_and(|typed| typed.is(&given));
            if ticket.link.is(&given) || typed {
                found = Some(ticket);
            }
        }
        let ticket = found.ok_or(Bad::Unknown)?;
        if ticket.used {
            return Err(Bad::Used);
        }
        if ticket.until <= now {
            return Err(Bad::Expired);
        }
        ticket.used = true;
        Ok(ticket.grant.clone())
    }

    /// Somebody with a good code waits from here on. The two words come from what only they have.
    pub fn knock(
        &mut self,
        grant: Grant,
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
        self.knocks.push(Knocker {
            id,
            secret: digest,
            name,
            words: words.clone(),
            grant,
            until: now + TICKET_LIFE,
            answer: Answer::Waiting,
        });
        (secret, words)
    }

    /// What has become of it. An answer is given once.
    pub fn hear(&mut self, secret: &str, now: Instant) -> Result<Heard, Bad> {
        let given = Digest::of(secret);
        let index = self.knocks.iter().rposition(|knock| knock.secret.is(&given)).ok_or(Bad::Unknown)?;
        if self.knocks[index].until <= now {
            self.knocks.remove(index);
            return Err(Bad::Expired);
        }
        match self.knocks[index].answer {
            Answer::Waiting => Ok(Heard::Waiting { words: self.knocks[index].words.clone() }),
            Answer::Refused => {
                self.knocks.remove(index);
                Ok(Heard::Refused)
            }
            Answer::Admitted(role) => {
                let Knocker { grant, name, .. } = self.knocks.remove(index);
                Ok(Heard::Admitted { grant: Grant { role, ..grant }, name })
            }
        }
    }

    /// Answers a knock of this owner: with a role, or with nothing. Which name it has.
    pub fn decide(
        &mut self,
        owner: &Principal,
        id: &str,
        role: Option<Role>,
        now: Instant,
    ) -> Option<Arc<str>> {
        let waits = |knock: &&mut Knocker| {
            *knock.id == *id
                && knock.grant.principal == *owner
                && knock.answer == Answer::Waiting
                && knock.until > now
        };
        let knock = self.knocks.iter_mut().find(waits)?;
        knock.answer = role.map_or(Answer::Refused, Answer::Admitted);
        Some(Arc::clone(&knock.name))
    }

    /// Who waits for this owner.
    pub fn waiting(&self, owner: &Principal, now: Instant) -> Vec<Knock> {
        let waits = |knock: &&Knocker| {
            knock.grant.principal == *owner && knock.answer == Answer::Waiting && knock.until > now
        };
        let shown = |knock: &Knocker| Knock {
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

/// A code as somebody gave it, in the one way that it is written in.
#[derive(Debug, PartialEq, Eq)]
pub struct Code(String);

impl Code {
    pub fn read(text: &str) -> Self {
        let text = text.trim();
        let bare: String = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
        let is_typed = bare.len() == TYPED_CHARS;
        Self(if is_typed { bare.to_ascii_uppercase() } else { text.to_owned() })
    }

    /// Short enough to be guessed by many tries.
    pub fn is_short(&self) -> bool {
        self.0.len() <= TYPED_CHARS
    }
}
