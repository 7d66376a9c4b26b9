//! A stored session as text, for clients that want all of it: read in pages and returned in pieces.
//!
//! **Invariant:** memory holds at most one page of events and the text made of it, or a reply
//! of at most [`wire::session_export_writer::WHOLE_BYTES_MAX`]; never the whole session.

use std::sync::Arc;

use engine::{OpenError, PageRequest, Principal, Registry, Seq, SessionId, SessionRow};
use wire::session_export_writer::{Document, DocumentFacts, DocumentFormat, DocumentTooLong};
use wire::{EventPage, EventRange};

/// Why a session could not be returned completely.
#[derive(Debug, thiserror::Error)]
pub enum SessionTextError {
    #[error("could not read the session")]
    Open(#[source] OpenError),
    #[error(transparent)]
    TooLong(#[from] DocumentTooLong),
}

/// A session in one of its text forms, returned in pieces.
pub struct SessionText {
    registry: Arc<Registry>,
    owner: Principal,
    id: SessionId,
    document: Document,
    after: Seq,
    events: u64,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Begin,
    Middle,
    Over,
}

impl SessionText {
    /// Reads the log once if the form needs that.
    pub async fn open(
        registry: &Arc<Registry>,
        owner: &Principal,
        row: SessionRow,
        form: DocumentFormat,
    ) -> Result<Self, SessionTextError> {
        let (id, mut after) = (row.id.clone(), Seq::START);
        let mut facts = form.needs_facts().then(DocumentFacts::default);
        while let Some(facts) = &mut facts {
            let page =
                registry.read(owner, &id, after, PageRequest::USUAL).await.map_err(SessionTextError::Open)?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            page.iter().for_each(|event| facts.observe(event));
        }
        let document = Document::new(form, row, facts, registry.clock().now());
        Ok(Self {
            registry: Arc::clone(registry),
            owner: owner.clone(),
            id,
            document,
            after: Seq::START,
            events: 0,
            state: State::Begin,
        })
    }

    /// The next piece, which may be empty; nothing after the last.
    pub async fn next(&mut self) -> Result<Option<String>, SessionTextError> {
        let mut piece = String::new();
        match self.state {
            State::Over => return Ok(None),
            State::Begin => {
                self.document.begin(&mut piece);
                self.state = State::Middle;
            }
            State::Middle => {
                let page = self.registry.read(&self.owner, &self.id, self.after, PageRequest::USUAL).await;
                let page = page.map_err(SessionTextError::Open)?;
                self.events += page.len() as u64;
                self.after = page.last().map_or(self.after, |last| last.seq);
                if !self.document.put(&page, &mut piece)? {
                    self.document.end(&mut piece);
                    self.state = State::Over;
                }
            }
        }
        Ok(Some(piece))
    }

    /// The events that were read for the text so far.
    pub fn events(&self) -> u64 {
        self.events
    }
}

/// The result of converting a part of a session.
pub enum Part {
    Events(EventPage),
    /// All of it was wanted, and that is more than a reply may have.
    TooLong,
}

/// The events of a range, as far as they fit into one reply.
pub async fn read_part(
    registry: &Registry,
    owner: &Principal,
    id: &SessionId,
    range: EventRange,
    bytes_max: usize,
) -> Result<Part, OpenError> {
    let mut part = EventPage::default();
    let mut after = range.after.unwrap_or(Seq::START);
    let limit = range.limit.unwrap_or(usize::MAX);
    loop {
        let page = registry.read(owner, id, after, PageRequest::USUAL).await?;
        if page.is_empty() {
            return Ok(Part::Events(part));
        }
        for event in page {
            let full = part.bytes() >= bytes_max;
            if full && !range.in_parts() {
                return Ok(Part::TooLong);
            }
            if full || part.count() >= limit {
                part.next = Some(after);
                return Ok(Part::Events(part));
            }
            part.push(&event);
            after = event.seq;
        }
    }
}
