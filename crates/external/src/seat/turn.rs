//! One prompt, from the agent's getting it to its answer.

use std::sync::Arc;
use std::time::Duration;

use engine::{
    Body, Content, NoticeLevel, Opaque, Page, Said, Stop, Taken, TurnContext, TurnError, TurnInput,
    first_words,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use wire::upstream;

use super::budget::Budget;
use super::join::When;
use super::{Joined, Seat, Terms, foreign};
use crate::peer::PeerError;

/// How long a cancelled agent may take to say that it has stopped. The session itself waits a little longer.
const CANCEL_WAIT: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_secs(1);

enum Came {
    Answer(Result<Box<RawValue>, PeerError>),
    Cancelled,
    Silent,
    TooMuch,
}

impl Seat {
    /// A turn, and what it left that can make another program run something.
    pub(super) async fn work(
        self: &Arc<Self>,
        input: TurnInput,
        context: TurnContext,
    ) -> Result<Stop, TurnError> {
        self.look_around().await;
        let stop = self.take_turn(input, context.clone()).await;
        if let Some(text) = self.new_entries().await {
            // A session that is gone needs to be told nothing.
            context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await.ok();
        }
        stop
    }

    async fn take_turn(self: &Arc<Self>, input: TurnInput, context: TurnContext) -> Result<Stop, TurnError> {
        self.must_be_here(&context)?;
        {
            // What brings the session back counts for this turn.
            let mut state = self.state();
            state.budget = Budget::new(self.shared.config.output);
            state.overrun = None;
        }
        let joined = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Ok(Stop::Cancelled),
            joined = self.join(When::Prompted) => joined,
        };
        let joined = joined.map_err(|error| TurnError(error.message.to_string()))?;
        let name = input.content.iter().find_map(|block| match block {
            Content::Text(text) => first_words(text).filter(|_| !input.titled),
            _ => None,
        });
        let content = self.with_history(input.content, &context).await;
        {
            let mut state = self.state();
            state.turn = Some(context.clone());
            // One that was ended by force could not say so.
            state.hearing.turn_over();
            state.heard = Some(Instant::now());
        }
        self.desk.turn_ended();
        let params = upstream::prompt(&joined.id, &content, joined.crew.can());
        let terms = Terms { deadline: None, lane: Some(Arc::clone(&joined.id)) };
        let mut answer = joined.crew.peer().request(upstream::PROMPT, &params, terms);
        let came = tokio::select! {
            biased;
            answer = &mut answer => Came::Answer(answer),
            () = context.cancel.cancelled() => Came::Cancelled,
            () = self.overrun() => Came::TooMuch,
            () = self.silence() => Came::Silent,
        };
        let stop = match came {
            Came::Answer(Ok(result)) => {
                let ended = self.ended(&result, &context).await;
                // An agent that names its sessions has done so by now, or does it later.
                if let Some(title) = name.filter(|_| !self.state().titled) {
                    context.emit(Body::Title { title: title.into() }).await.ok();
                }
                ended
            }
            Came::Answer(Err(error)) => Err(self.failed(&joined, &error).await),
            Came::Cancelled => {
                self.cancel(&joined, answer, &context).await;
                Ok(Stop::Cancelled)
            }
            Came::TooMuch => {
                self.cancel(&joined, answer, &context).await;
                Ok(Stop::MaxTokens)
            }
            Came::Silent => {
                drop(answer);
                ended_by_force(&joined).await;
                Err(self.silent())
            }
        };
        // An agent that has said too much may have ended its turn, or failed, in the same moment.
        let overran = self.say_overrun(&context).await;
        match stop {
            Ok(stop) if overran && stop != Stop::Cancelled => Ok(Stop::MaxTokens),
            stop => stop,
        }
    }

    fn silent(&self) -> TurnError {
        let seconds = self.shared.config.patience.silence.as_secs();
        let name = self.name();
        TurnError(format!("{name} said nothing for {seconds} s and was ended; prompt again to go on"))
    }

    /// Says that the agent has said more than may be written down, if it has.
    async fn say_overrun(&self, context: &TurnContext) -> bool {
        let overrun = self.state().overrun.clone();
        let Some(text) = overrun.map(|overrun| overrun.of(self.name()).into()) else { return false };
        context.emit(Body::Notice { level: NoticeLevel::Warning, text }).await.ok();
        true
    }

    /// Has the agent stop. One that does not is ended.
    async fn cancel(
        &self,
        joined: &Joined,
        answer: impl Future<Output = Result<Box<RawValue>, PeerError>>,
        context: &TurnContext,
    ) {
        // One that cannot be told is ended below.
        joined.crew.peer().notify("session/cancel", &upstream::cancel(&joined.id)).ok();
        match tokio::time::timeout(CANCEL_WAIT, answer).await {
            Ok(Ok(result)) => drop(self.ended(&result, context).await),
            Ok(Err(_)) => {}
            Err(_) => ended_by_force(joined).await,
        }
    }

    /// Ends when the turn has said more than may be written down.
    async fn overrun(&self) {
        // A ring may be left of an earlier turn.
        while self.state().overrun.is_none() {
            self.overran.notified().await;
        }
    }

    /// An agent knows the folder that its session was begun in, and no other.
    fn must_be_here(&self, context: &TurnContext) -> Result<(), TurnError> {
        let (here, own) = (context.cwd(), &self.spec.cwd);
        if **here == *own {
            return Ok(());
        }
        Err(TurnError(format!(
            "the session was moved to {}, and {} works in {}; begin a new session there, or move it back",
            here.display(),
            self.name(),
            own.display()
        )))
    }

    async fn ended(&self, result: &RawValue, context: &TurnContext) -> Result<Stop, TurnError> {
        let ended = self.state().hearing.ended(result);
        if let Some(usage) = ended.usage {
            // The answer to the prompt says it. A session that is gone counts nothing.
            let said = Said { body: Body::Usage(usage), relayed: Some(Opaque("".into())) };
            context.emit(said).await.ok();
        }
        if let Some(words) = upstream::answer(result) {
            context.emit(words).await.ok();
        }
        self.state().untold = false;
        Ok(ended.stop)
    }

    /// Why there is no answer. An agent that has ended says more than that.
    async fn failed(&self, joined: &Joined, error: &PeerError) -> TurnError {
        match error {
            PeerError::Gone => {
                let why = tokio::time::timeout(CANCEL_WAIT, joined.crew.why()).await;
                // Its last words are of this turn.
                tokio::time::timeout(CANCEL_WAIT, joined.heard_out.cancelled()).await.ok();
                let why = why.unwrap_or_else(|_| format!("{} is gone", self.name()).into());
                TurnError(format!("{why}; it is started again with the next prompt"))
            }
            error => TurnError(foreign(self.name(), error).message.to_string()),
        }
    }

    /// The prompt, and before it what the agent does not know of the conversation.
    async fn with_history(&self, content: Vec<Content>, context: &TurnContext) -> Vec<Content> {
        if !self.state().untold {
            return content;
        }
        let mut reader = context.history.clone();
        let mut primer = upstream::Primer::default();
        while let Ok(Taken::Events(page)) = reader.take(Page::USUAL).await {
            let earlier = page.iter().filter(|event| event.turn != Some(context.turn()));
            earlier.for_each(|event| primer.observe(event));
        }
        primer.finish().into_iter().chain(content).collect()
    }

    /// Ends when the agent has been silent for too long, and not because of a person.
    async fn silence(&self) {
        let limit = self.shared.config.patience.silence;
        loop {
            tokio::time::sleep(LOOK.min(limit)).await;
            let state = self.state();
            let silent = state.heard.is_none_or(|heard| heard.elapsed() >= limit);
            drop(state);
            if silent && self.requests.available_permits() == super::REQUESTS_MAX {
                return;
            }
        }
    }
}

async fn ended_by_force(joined: &Joined) {
    joined.crew.end().await;
    // What it said before is of this turn.
    tokio::time::timeout(CANCEL_WAIT, joined.heard_out.cancelled()).await.ok();
}
