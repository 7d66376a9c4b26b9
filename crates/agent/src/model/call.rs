//! One question to a provider: asked, asked again while that can help, and read to its end.
//!
//! **Invariant:** once something was said, nothing is asked again: a second answer would stand beside
//! half of the first. A reply that breaks off then ends with an error that says so.
//! **Invariant:** everything happens inside [`ModelStream::next`]. Whoever drops the stream closes the
//! connection; there is nothing else that could go on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::BoxFuture;
use reqwest::Response;

use super::http::{self, NoReply};
use super::provider::Inner;
use super::retry::{self, Next};
use super::trouble::{self, Refused, Speaker};
use super::wire::{Asking, Decoder};
use super::{ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStream};

pub(super) struct Call {
    provider: Arc<Inner>,
    request: ModelRequest,
    asking: Asking,
    state: State,
    ready: VecDeque<ModelEvent>,
    /// Told when everything that came before it has been.
    failure: Option<ModelError>,
    tries: u32,
    /// The person has heard something of this answer.
    said: bool,
}

enum State {
    Ask,
    Wait(Duration),
    Read(Box<Reading>),
    Ended,
}

struct Reading {
    response: Response,
    decoder: Decoder,
    request_id: Option<String>,
}

impl Call {
    pub(super) fn new(provider: Arc<Inner>, request: ModelRequest) -> Self {
        let info = provider.info(&request.model);
        let asking = Asking {
            base_url: provider.config.base_url.clone(),
            context_tokens: info.map(|info| info.context_tokens).filter(|tokens| *tokens > 0),
            output_tokens_max: info.and_then(|info| info.output_tokens_max),
            blind: info.is_some_and(|info| !info.images),
            omit: provider.learned(&request.model),
        };
        Self {
            provider,
            request,
            asking,
            state: State::Ask,
            ready: VecDeque::new(),
            failure: None,
            tries: 0,
            said: false,
        }
    }

    async fn advance(&mut self) -> Result<ModelEvent, ModelError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            if let Some(error) = self.failure.take() {
                self.state = State::Ended;
                return Err(error);
            }
            match &mut self.state {
                State::Ask => self.ask().await,
                State::Wait(wait) => {
                    tokio::time::sleep(*wait).await;
                    self.state = State::Ask;
                }
                State::Read(_) => self.read().await,
                State::Ended => return Err(trouble::cut()),
            }
        }
    }

    async fn ask(&mut self) {
        self.tries += 1;
        let config = &self.provider.config;
        let url = config.wire.url(&config.base_url, bare(&self.request.model));
        let body = config.wire.body(&self.request, &self.asking).to_string().into_bytes();
        let client = match self.provider.client() {
            Ok(client) => client,
            Err(error) => return self.failure = Some(error),
        };
        match http::ask(client, config, &url, body).await {
            Ok(response) => {
                let request_id = http::request_id(response.headers());
                let decoder = config.wire.decoder(&self.request.model);
                self.state = State::Read(Box::new(Reading { response, decoder, request_id }));
            }
            Err(NoReply::Failed(error)) => self.recover(error),
            Err(NoReply::Refused(refused)) => {
                tracing::debug!(provider = %config.name, status = refused.status, "the model was not asked");
                if !self.leave_out(&refused) {
                    let error = refused.explain(&self.speaker());
                    self.recover(error);
                }
            }
        }
    }

    async fn read(&mut self) {
        let State::Read(reading) = &mut self.state else { return };
        let mut events = Vec::new();
        let read = match http::piece(&mut reading.response, &self.provider.config).await {
            Ok(Some(piece)) => reading.decoder.push(piece.as_ref(), &mut events),
            Ok(None) => reading.decoder.finish(&mut events),
            // The connection may break after everything was said.
            Err(error) => reading.decoder.finish(&mut events).map_err(|_| error),
        };
        let request_id = reading.request_id.clone();
        if reading.decoder.ended() {
            self.state = State::Ended;
        }
        self.said |= events.iter().any(is_said);
        self.ready.extend(events);
        if let Err(error) = read {
            self.recover(self.named(error, request_id));
        }
    }

    /// Whatever stands inside a reply has not heard of the provider's name or our secrets.
    fn named(&self, error: ModelError, request_id: Option<String>) -> ModelError {
        let speaker = self.speaker();
        let text = trouble::clean(&error.text, &speaker.secrets);
        let id = request_id.map(|id| format!(" [request {}]", trouble::shown(&id, 80)));
        let text = format!("{}: {text}{}", speaker.name, id.unwrap_or_default());
        ModelError { text, kind: error.kind }
    }

    fn recover(&mut self, error: ModelError) {
        if self.said {
            let text = format!("{}; what was said stays, ask again to go on", error.text);
            self.failure = Some(ModelError { text, kind: error.kind });
            return;
        }
        match retry::after(&error, self.tries, chance()) {
            Next::AskAgain { after } => {
                let seconds = after.as_secs_f64().ceil();
                let (tries, all) = (self.tries, retry::TRIES_MAX);
                let text = format!("{}; trying again in {seconds} s ({tries} of {all} tries)", error.text);
                self.ready.push_back(ModelEvent::Notice(text));
                self.state = State::Wait(after);
            }
            Next::GiveUp => {
                let often = matches!(error.kind, ModelErrorKind::Passing { .. }) && self.tries > 1;
                let text =
                    if often { format!("{} (tried {} times)", error.text, self.tries) } else { error.text };
                self.failure = Some(ModelError { text, kind: error.kind });
            }
        }
    }

    /// Some models refuse a setting that others take, and no list of them stays right. Such a setting
    /// is left out, for this model from now on.
    fn leave_out(&mut self, refused: &Refused) -> bool {
        if !matches!(refused.status, 400 | 422) {
            return false;
        }
        let (words, omit) = (refused.body.to_lowercase(), &mut self.asking.omit);
        let says = |any: &[&str]| any.iter().any(|word| words.contains(word));
        let what = if self.request.temperature.is_some() && !omit.temperature && says(&["temperature"]) {
            omit.temperature = true;
            "the temperature"
        } else if !omit.summary && says(&["summary", "summaries", "thinking.display"]) {
            omit.summary = true;
            "readable thoughts"
        } else if !omit.thinking && says(&["thinking", "reasoning", "effort", "budget_tokens", "encrypted"]) {
            omit.thinking = true;
            "the level of thinking"
        } else {
            return false;
        };
        let omit = *omit;
        self.provider.learn(&self.request.model, omit);
        let text = format!("{} does not take {what}; asking without", self.request.model);
        self.ready.push_back(ModelEvent::Notice(text));
        self.tries -= 1;
        true
    }

    fn speaker(&self) -> Speaker<'_> {
        self.provider.speaker(&self.request.model)
    }
}

impl ModelStream for Call {
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>> {
        Box::pin(self.advance())
    }
}

/// What the provider calls the model.
pub(super) fn bare(id: &str) -> &str {
    id.split_once(':').map_or(id, |(_, model)| model)
}

fn is_said(event: &ModelEvent) -> bool {
    matches!(event, ModelEvent::Text(_) | ModelEvent::Thinking(_) | ModelEvent::ToolCall { .. })
}

/// Many that wait for the same provider should not come back at the same moment.
fn chance() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u128() as u32;
    f64::from(bits) / f64::from(u32::MAX)
}
