//! One turn: the prompt is sent to the agent, and the turn ends with the agent's answer to it.

use std::sync::Arc;
use std::time::Duration;

use engine::{
    Body, Content, LogRead, NewEvent, NoticeLevel, Opaque, PageRequest, Stop, TurnContext, TurnError,
    TurnInput, first_words,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use wire::external_agent;

use super::join::JoinReason;
use super::output_budget::OutputBudget;
use super::{ExternalSession, JoinedSession, RequestOptions, foreign};
use crate::connection::ConnectionError;

/// How long a cancelled agent may take to answer. The engine's own deadline is a little longer.
const CANCEL_WAIT: Duration = Duration::from_secs(4);
const SILENCE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

enum TurnOutcome {
    Answer(Result<Box<RawValue>, ConnectionError>),
    Cancelled,
    Silent,
    TooMuch,
}

impl ExternalSession {
    /// Runs a turn, then reports files it created that can make another program run something.
    pub(super) async fn work(
        self: &Arc<Self>,
        input: TurnInput,
        context: TurnContext,
    ) -> Result<Stop, TurnError> {
        self.record_protected_entries().await;
        let stop = self.run_turn(input, context.clone()).await;
        if let Some(text) = self.new_entries().await {
            // If the session is gone, there is no log to write to.
            context.emit(Body::Notice { level: NoticeLevel::Warning, text: text.into() }).await.ok();
        }
        stop
    }

    async fn run_turn(self: &Arc<Self>, input: TurnInput, context: TurnContext) -> Result<Stop, TurnError> {
        self.check_folder(&context)?;
        {
            // Output of restoring the session counts towards this turn.
            let mut state = self.state();
            state.output_budget = OutputBudget::new(self.shared.config.output);
            state.overrun = None;
        }
        let joined = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Ok(Stop::Cancelled),
            joined = self.join(JoinReason::Prompted) => joined,
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
            // A turn that was ended by force could not end its calls.
            state.hearing.end_turn();
            state.last_heard = Some(Instant::now());
        }
        self.host_services.turn_ended();
        let params = external_agent::prompt(&joined.id, &content, joined.process.can());
        let options = RequestOptions { deadline: None, session: Some(Arc::clone(&joined.id)) };
        let mut answer = joined.process.connection().request(external_agent::PROMPT, &params, options);
        let came = tokio::select! {
            biased;
            answer = &mut answer => TurnOutcome::Answer(answer),
            () = context.cancel.cancelled() => TurnOutcome::Cancelled,
            () = self.overrun() => TurnOutcome::TooMuch,
            () = self.silence() => TurnOutcome::Silent,
        };
        let stop = match came {
            TurnOutcome::Answer(Ok(result)) => {
                let ended = self.ended(&result, &context).await;
                // If the agent has set no title by now, the prompt's first words are the title until it does.
                if let Some(title) = name.filter(|_| !self.state().titled) {
                    context.emit(Body::Title { title: title.into() }).await.ok();
                }
                ended
            }
            TurnOutcome::Answer(Err(error)) => Err(self.failed(&joined, &error).await),
            TurnOutcome::Cancelled => {
                self.cancel(&joined, answer, &context).await;
                Ok(Stop::Cancelled)
            }
            TurnOutcome::TooMuch => {
                self.cancel(&joined, answer, &context).await;
                Ok(Stop::MaxTokens)
            }
            TurnOutcome::Silent => {
                drop(answer);
                ended_by_force(&joined).await;
                Err(self.silence_error())
            }
        };
        // The agent may have exceeded the budget and answered, or failed, at the same moment.
        let overran = self.notify_overrun(&context).await;
        match stop {
            Ok(stop) if overran && stop != Stop::Cancelled => Ok(Stop::MaxTokens),
            stop => stop,
        }
    }

    fn silence_error(&self) -> TurnError {
        let seconds = self.shared.config.timeouts.silence.as_secs();
        let name = self.name();
        TurnError(format!(
            "{name} sent nothing for {seconds} s and was ended; send another prompt to continue"
        ))
    }

    /// Logs a notice if the agent has exceeded its output budget, and returns whether it has.
    async fn notify_overrun(&self, context: &TurnContext) -> bool {
        let overrun = self.state().overrun.clone();
        let Some(text) = overrun.map(|overrun| overrun.of(self.name()).into()) else { return false };
        context.emit(Body::Notice { level: NoticeLevel::Warning, text }).await.ok();
        true
    }

    /// Cancels the turn at the agent. If the agent does not stop, its process is ended.
    async fn cancel(
        &self,
        joined: &JoinedSession,
        answer: impl Future<Output = Result<Box<RawValue>, ConnectionError>>,
        context: &TurnContext,
    ) {
        // If this cannot be sent, the process is ended below.
        joined.process.connection().notify("session/cancel", &external_agent::cancel(&joined.id)).ok();
        match tokio::time::timeout(CANCEL_WAIT, answer).await {
            Ok(Ok(result)) => drop(self.ended(&result, context).await),
            Ok(Err(_)) => {}
            Err(_) => ended_by_force(joined).await,
        }
    }

    /// Completes when the turn has exceeded its output budget.
    async fn overrun(&self) {
        // A notification may be left over from an earlier turn.
        while self.state().overrun.is_none() {
            self.overrun_notify.notified().await;
        }
    }

    /// Refuses a turn in another folder than the agent's session was opened in.
    fn check_folder(&self, context: &TurnContext) -> Result<(), TurnError> {
        let (here, own) = (context.cwd(), &self.spec.cwd);
        if **here == *own {
            return Ok(());
        }
        Err(TurnError(format!(
            "the session was moved to {}, and {} works in {}; start a new session there, or move it back",
            here.display(),
            self.name(),
            own.display()
        )))
    }

    async fn ended(&self, result: &RawValue, context: &TurnContext) -> Result<Stop, TurnError> {
        let ended = self.state().hearing.prompt_result(result);
        if let Some(usage) = ended.usage {
            // Not relayed: the answer to the prompt contains it. A session that is gone has no log to write to.
            let said = NewEvent { body: Body::Usage(usage), relayed: Some(Opaque("".into())) };
            context.emit(said).await.ok();
        }
        if let Some(words) = external_agent::prompt_answer(result) {
            context.emit(words).await.ok();
        }
        self.state().needs_history = false;
        Ok(ended.stop)
    }

    /// The error of a turn without an answer. If the process has ended, that is the reason.
    async fn failed(&self, joined: &JoinedSession, error: &ConnectionError) -> TurnError {
        match error {
            ConnectionError::Gone => {
                let why = tokio::time::timeout(CANCEL_WAIT, joined.process.end_reason()).await;
                // Its last messages belong to this turn.
                tokio::time::timeout(CANCEL_WAIT, joined.drained.cancelled()).await.ok();
                let why = why.unwrap_or_else(|_| format!("{} has ended", self.name()).into());
                TurnError(format!("{why}; it is started again with the next prompt"))
            }
            error => TurnError(foreign(self.name(), error).message.to_string()),
        }
    }

    /// The prompt, preceded by the conversation so far if the agent does not know it.
    async fn with_history(&self, content: Vec<Content>, context: &TurnContext) -> Vec<Content> {
        if !self.state().needs_history {
            return content;
        }
        let mut reader = context.history.clone();
        let mut primer = external_agent::ConversationRecap::default();
        while let Ok(LogRead::Events(page)) = reader.take(PageRequest::USUAL).await {
            let earlier = page.iter().filter(|event| event.turn != Some(context.turn()));
            earlier.for_each(|event| primer.observe(event));
        }
        primer.finish().into_iter().chain(content).collect()
    }

    /// Completes when the agent has sent nothing for too long while no request of it is open.
    async fn silence(&self) {
        let limit = self.shared.config.timeouts.silence;
        loop {
            tokio::time::sleep(SILENCE_CHECK_INTERVAL.min(limit)).await;
            let state = self.state();
            let silent = state.last_heard.is_none_or(|heard| heard.elapsed() >= limit);
            drop(state);
            if silent && self.request_permits.available_permits() == super::REQUESTS_MAX {
                return;
            }
        }
    }
}

async fn ended_by_force(joined: &JoinedSession) {
    joined.process.end().await;
    // What it sent before belongs to this turn.
    tokio::time::timeout(CANCEL_WAIT, joined.drained.cancelled()).await.ok();
}
