//! One question to a provider: asked, asked again while that can help, and read to its end.
//!
//! **Invariant:** once something was said, nothing is asked again: a second answer would stand beside
//! half of the first. A reply that breaks off then ends with an error that says so.
//! **Invariant:** everything happens inside [`ModelStream::next`]. Whoever drops the stream closes the
//! connection; there is nothing else that could go on.
//! **Invariant:** without a word from the model the whole of it ends, however often it is asked again
//! and whatever keeps the connection alive meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::BoxFuture;
use reqwest::Response;
use tokio::time::{Instant, timeout};

use super::http::{self, NoReply};
use super::provider::Inner;
use super::retry::{self, Next, Patience};
use super::trouble::{self, Refused, Speaker};
use super::wire::{Asking, Decoder};
use super::{Message, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStop, ModelStream};

/// A person who waits is told so after this long without a word, and then each time twice as late.
const FIRST_NEWS: Duration = Duration::from_secs(60);

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
    /// Since when nothing was said.
    silent_since: Instant,
    /// How much of that the provider has asked for.
    excused: Duration,
    /// The silence after which the person is told of it.
    news_after: Duration,
}

enum State {
    Ask,
    /// Until the head of the reply is there.
    Sent(BoxFuture<'static, Result<Response, NoReply>>),
    Wait(Duration),
    Read(Box<Reading>),
    Ended,
}

struct Reading {
    response: Response,
    decoder: Decoder,
    request_id: Option<String>,
    /// When the last bytes came.
    heard_at: Instant,
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
            silent_since: Instant::now(),
            excused: Duration::ZERO,
            news_after: FIRST_NEWS,
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
                State::Ask => self.ask(),
                State::Sent(reply) => {
                    let wait = self.news_after.min(self.provider.config.timeouts.give_up);
                    let wait = wait.saturating_sub(silence(self.silent_since, self.excused));
                    match timeout(wait, reply).await {
                        Ok(answered) => self.answered(answered),
                        Err(_) => self.still_waiting(),
                    }
                }
                State::Wait(wait) => {
                    tokio::time::sleep(*wait).await;
                    self.state = State::Ask;
                }
                State::Read(_) => self.read().await,
                State::Ended => return Err(trouble::cut()),
            }
        }
    }

    fn ask(&mut self) {
        self.tries += 1;
        let config = &self.provider.config;
        let url = config.wire.url(&config.base_url, bare(&self.request.model));
        let body = config.wire.body(&self.request, &self.asking).to_string().into_bytes();
        let client = match self.provider.client() {
            Ok(client) => client.clone(),
            Err(error) => return self.failure = Some(error),
        };
        let provider = Arc::clone(&self.provider);
        let sent = async move { http::ask(&client, &provider.config, &url, body).await };
        self.state = State::Sent(Box::pin(sent));
    }

    fn answered(&mut self, answered: Result<Response, NoReply>) {
        let config = &self.provider.config;
        match answered {
            Ok(response) => {
                let request_id = http::request_id(response.headers());
                let decoder = config.wire.decoder(&self.request.model);
                let heard_at = Instant::now();
                self.state = State::Read(Box::new(Reading { response, decoder, request_id, heard_at }));
            }
            Err(NoReply::Failed(error)) => self.recover(error),
            Err(NoReply::Refused(refused)) => {
                tracing::debug!(provider = %config.name, status = refused.status, "the model was not asked");
                if self.leave_out(&refused) {
                    self.state = State::Ask;
                } else {
                    let error = refused.explain(&self.speaker());
                    self.recover(error);
                }
            }
        }
    }

    /// Nothing was said for so long that the person is told, or that it ends.
    fn still_waiting(&mut self) {
        let silent = silence(self.silent_since, self.excused);
        let (config, seconds) = (&self.provider.config, silent.as_secs());
        let limit = config.timeouts.give_up;
        if silent >= limit {
            let text = format!("{} has said nothing for {}", config.name, retry::in_words(limit));
            return self.recover(ModelError::passing(text));
        }
        self.news_after = self.news_after.saturating_mul(2);
        let left = retry::in_words(limit.saturating_sub(silent));
        let text = format!("waiting for {}: nothing for {seconds} s; it is given up in {left}", config.name);
        self.ready.push_back(ModelEvent::Notice(text));
    }

    async fn read(&mut self) {
        let State::Read(reading) = &mut self.state else { return };
        let timeouts = self.provider.config.timeouts;
        let idle = timeouts.idle.saturating_sub(reading.heard_at.elapsed());
        let silent = silence(self.silent_since, self.excused);
        let news = self.news_after.min(timeouts.give_up).saturating_sub(silent);
        let mut events = Vec::new();
        let read = match timeout(idle.min(news), http::piece(&mut reading.response)).await {
            Ok(Ok(Some(piece))) => reading.decoder.push(piece.as_ref(), &mut events),
            Ok(Ok(None)) => reading.decoder.finish(&mut events),
            // The connection may break after everything was said.
            Ok(Err(error)) => reading.decoder.finish(&mut events).map_err(|_| error),
            Err(_) if idle <= news => reading.decoder.finish(&mut events).map_err(|_| {
                let seconds = timeouts.idle.as_secs_f64();
                ModelError::passing(format!("the answer stopped: nothing more was said for {seconds} s"))
            }),
            Err(_) => return self.still_waiting(),
        };
        reading.heard_at = Instant::now();
        self.heard(events, read);
    }

    fn heard(&mut self, mut events: Vec<ModelEvent>, read: Result<(), ModelError>) {
        let State::Read(reading) = &mut self.state else { return };
        let (request_id, ended) = (reading.request_id.clone(), reading.decoder.ended());
        let (bytes, limit) = (reading.decoder.bytes(), self.provider.config.answer_bytes_max);
        if events.iter().any(is_said) {
            self.said = true;
            (self.silent_since, self.excused, self.news_after) = (Instant::now(), Duration::ZERO, FIRST_NEWS);
        }
        let read = match read {
            // Nothing at all is no answer to a person; after tools have run it may mean "done".
            Ok(()) if ended && !self.said && is_finished(&events) && !self.ran_tools() => {
                events.clear();
                Err(ModelError::passing("the model answered with nothing"))
            }
            read => read,
        };
        if ended {
            self.state = State::Ended;
        } else if bytes > limit {
            events.push(ModelEvent::Notice(format!(
                "the answer reached {limit} bytes, the limit for one answer, and was ended there; what came is \
                 kept (answer_bytes_max in [limits] of the settings)"
            )));
            events.push(ModelEvent::Done { stop: ModelStop::MaxTokens });
            self.state = State::Ended;
        }
        self.ready.extend(events);
        if let Err(error) = read {
            self.recover(self.named(error, request_id));
        }
    }

    /// The model was told what its tools have done, and nothing else.
    fn ran_tools(&self) -> bool {
        matches!(self.request.messages.last(), Some(Message::ToolResult { .. }))
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
        let timeouts = self.provider.config.timeouts;
        let left = timeouts.give_up.saturating_sub(silence(self.silent_since, self.excused));
        let patience = Patience { asked_max: timeouts.retry_after_max, left };
        let asked = if let ModelErrorKind::Passing { retry_after } = error.kind { retry_after } else { None };
        match retry::after(&error, self.tries, chance(), patience) {
            Next::AskAgain { after } => {
                self.excused += asked.unwrap_or_default();
                let seconds = after.as_secs_f64().ceil();
                let (tries, all) = (self.tries, retry::TRIES_MAX);
                let text = format!("{}; trying again in {seconds} s ({tries} of {all} tries)", error.text);
                self.ready.push_back(ModelEvent::Notice(text));
                self.state = State::Wait(after);
            }
            Next::GiveUp => {
                let often = matches!(error.kind, ModelErrorKind::Passing { .. }) && self.tries > 1;
                let mut text =
                    if often { format!("{} (tried {} times)", error.text, self.tries) } else { error.text };
                if let Some(asked) = asked.filter(|asked| *asked > timeouts.retry_after_max) {
                    text.push_str(&format!(
                        "; it asks to wait {}: prompt again then or choose another model (longer waits are \
                         allowed with retry_after_max in [limits] of the settings)",
                        retry::in_words(asked)
                    ));
                }
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

fn is_finished(events: &[ModelEvent]) -> bool {
    events.iter().any(|event| matches!(event, ModelEvent::Done { stop: ModelStop::Finished }))
}

fn silence(since: Instant, excused: Duration) -> Duration {
    since.elapsed().saturating_sub(excused)
}

/// Many that wait for the same provider should not come back at the same moment.
fn chance() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u128() as u32;
    f64::from(bits) / f64::from(u32::MAX)
}
