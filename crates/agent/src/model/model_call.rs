//! One request to a provider: sent, retried while that can help, and read to its end.
//!
//! **Invariant:** once any part of an answer was passed on, the request is not retried: a second answer would
//! stand beside half of the first. A reply that breaks off then ends with an error that says so.
//! **Invariant:** everything happens inside [`ModelStream::next`]. Dropping the stream closes the connection,
//! and nothing else keeps running.
//! **Invariant:** without any output from the model the whole call ends after a time limit, however often it
//! is retried and whatever keeps the connection alive meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::BoxFuture;
use reqwest::Response;
use tokio::time::{Instant, timeout};

use super::http::{self, NoReply};
use super::provider::Inner;
use super::provider_error::{self, ErrorReply, ProviderIdentity};
use super::retry::{self, RetryDecision, WaitLimits};
use super::wire::{Decoder, WireOptions};
use super::{Message, ModelError, ModelErrorKind, ModelEvent, ModelRequest, ModelStop, ModelStream};

/// A waiting person gets a notice after this long without output, then each time after twice as long.
const FIRST_NOTICE: Duration = Duration::from_secs(60);

pub(super) struct ModelCall {
    provider: Arc<Inner>,
    request: ModelRequest,
    options: WireOptions,
    state: State,
    ready: VecDeque<ModelEvent>,
    /// Reported after all events before it.
    failure: Option<ModelError>,
    tries: u32,
    /// Some content of this answer was passed on.
    answer_begun: bool,
    /// Since when there was no output.
    silent_since: Instant,
    /// How much of that time is waiting that the provider has requested.
    requested_wait: Duration,
    /// The silence after which the next notice is given.
    notice_after: Duration,
}

enum State {
    Ask,
    /// Waiting for the response headers.
    Sent(BoxFuture<'static, Result<Response, NoReply>>),
    Wait(Duration),
    Read(Box<ReplyReader>),
    Ended,
}

struct ReplyReader {
    response: Response,
    decoder: Decoder,
    request_id: Option<String>,
    /// When the last bytes arrived.
    bytes_at: Instant,
}

impl ModelCall {
    pub(super) fn new(provider: Arc<Inner>, request: ModelRequest) -> Self {
        let info = provider.info(&request.model);
        let options = WireOptions {
            base_url: provider.config.base_url.clone(),
            context_tokens: info.map(|info| info.context_tokens).filter(|tokens| *tokens > 0),
            output_tokens_max: info.and_then(|info| info.output_tokens_max),
            text_only: info.is_some_and(|info| !info.images),
            omit: provider.omissions(&request.model),
        };
        Self {
            provider,
            request,
            options,
            state: State::Ask,
            ready: VecDeque::new(),
            failure: None,
            tries: 0,
            answer_begun: false,
            silent_since: Instant::now(),
            requested_wait: Duration::ZERO,
            notice_after: FIRST_NOTICE,
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
                    let wait = self.notice_after.min(self.provider.config.timeouts.give_up);
                    let wait = wait.saturating_sub(silence_of(self.silent_since, self.requested_wait));
                    match timeout(wait, reply).await {
                        Ok(answered) => self.answered(answered),
                        Err(_) => self.check_silence(),
                    }
                }
                State::Wait(wait) => {
                    tokio::time::sleep(*wait).await;
                    self.state = State::Ask;
                }
                State::Read(_) => self.read().await,
                State::Ended => return Err(provider_error::cut_off()),
            }
        }
    }

    fn ask(&mut self) {
        self.tries += 1;
        let config = &self.provider.config;
        let url = config.wire.url(&config.base_url, bare_model(&self.request.model));
        let body = config.wire.body(&self.request, &self.options).to_string().into_bytes();
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
                let bytes_at = Instant::now();
                self.state = State::Read(Box::new(ReplyReader { response, decoder, request_id, bytes_at }));
            }
            Err(NoReply::Failed(error)) => self.recover(error),
            Err(NoReply::Refused(refused)) => {
                tracing::debug!(provider = %config.name, status = refused.status, "the model was not asked");
                if self.omit_refused_setting(&refused) {
                    self.state = State::Ask;
                } else {
                    let error = refused.explain(&self.identity());
                    self.recover(error);
                }
            }
        }
    }

    /// After a long silence, gives a notice or ends the call.
    fn check_silence(&mut self) {
        let silent = silence_of(self.silent_since, self.requested_wait);
        let (config, seconds) = (&self.provider.config, silent.as_secs());
        let limit = config.timeouts.give_up;
        if silent >= limit {
            let text = format!("{} has sent nothing for {}", config.name, retry::format_wait(limit));
            return self.recover(ModelError::transient(text));
        }
        self.notice_after = self.notice_after.saturating_mul(2);
        let left = retry::format_wait(limit.saturating_sub(silent));
        let text = format!("waiting for {}: no data for {seconds} s; giving up in {left}", config.name);
        self.ready.push_back(ModelEvent::Notice(text));
    }

    async fn read(&mut self) {
        let State::Read(reading) = &mut self.state else { return };
        let timeouts = self.provider.config.timeouts;
        let idle = timeouts.idle.saturating_sub(reading.bytes_at.elapsed());
        let silent = silence_of(self.silent_since, self.requested_wait);
        let notice = self.notice_after.min(timeouts.give_up).saturating_sub(silent);
        let mut events = Vec::new();
        let read = match timeout(idle.min(notice), http::piece(&mut reading.response)).await {
            Ok(Ok(Some(piece))) => reading.decoder.push(piece.as_ref(), &mut events),
            Ok(Ok(None)) => reading.decoder.finish(&mut events),
            // The connection may break after the reply was complete.
            Ok(Err(error)) => reading.decoder.finish(&mut events).map_err(|_| error),
            Err(_) if idle <= notice => reading.decoder.finish(&mut events).map_err(|_| {
                let seconds = timeouts.idle.as_secs_f64();
                ModelError::transient(format!("the answer stopped: no more data for {seconds} s"))
            }),
            Err(_) => return self.check_silence(),
        };
        reading.bytes_at = Instant::now();
        self.take_events(events, read);
    }

    fn take_events(&mut self, mut events: Vec<ModelEvent>, read: Result<(), ModelError>) {
        let State::Read(reading) = &mut self.state else { return };
        let (request_id, ended) = (reading.request_id.clone(), reading.decoder.ended());
        let (bytes, limit) = (reading.decoder.bytes(), self.provider.config.answer_bytes_max);
        if events.iter().any(is_content) {
            self.answer_begun = true;
            (self.silent_since, self.requested_wait, self.notice_after) =
                (Instant::now(), Duration::ZERO, FIRST_NOTICE);
        }
        let read = match read {
            // An empty reply to a person is an error; after tool results it may mean "done".
            Ok(()) if ended && !self.answer_begun && is_finished(&events) && !self.follows_tool_results() => {
                events.clear();
                Err(ModelError::transient("the model returned an empty answer"))
            }
            read => read,
        };
        if ended {
            self.state = State::Ended;
        } else if bytes > limit {
            events.push(ModelEvent::Notice(format!(
                "the answer was cut at {limit} bytes, the limit for one answer (answer_bytes_max in [limits] of the settings)"
            )));
            events.push(ModelEvent::Done { stop: ModelStop::MaxTokens });
            self.state = State::Ended;
        }
        self.ready.extend(events);
        if let Err(error) = read {
            self.recover(self.with_provider_name(error, request_id));
        }
    }

    /// Whether the last message is a tool result.
    fn follows_tool_results(&self) -> bool {
        matches!(self.request.messages.last(), Some(Message::ToolResult { .. }))
    }

    /// Adds the provider's name to an error from inside a reply, and removes our secrets from it.
    fn with_provider_name(&self, error: ModelError, request_id: Option<String>) -> ModelError {
        let identity = self.identity();
        let text = provider_error::redact(&error.text, &identity.secrets);
        let id = request_id.map(|id| format!(" [request {}]", provider_error::shown(&id, 80)));
        let text = format!("{}: {text}{}", identity.name, id.unwrap_or_default());
        ModelError { text, kind: error.kind }
    }

    fn recover(&mut self, error: ModelError) {
        if self.answer_begun {
            let text = format!("{}; the answer so far is kept, send another prompt to continue", error.text);
            self.failure = Some(ModelError { text, kind: error.kind });
            return;
        }
        let timeouts = self.provider.config.timeouts;
        let left = timeouts.give_up.saturating_sub(silence_of(self.silent_since, self.requested_wait));
        let limits = WaitLimits { requested_max: timeouts.retry_after_max, left };
        let asked =
            if let ModelErrorKind::Transient { retry_after } = error.kind { retry_after } else { None };
        match retry::after(&error, self.tries, jitter(), limits) {
            RetryDecision::AskAgain { after } => {
                self.requested_wait += asked.unwrap_or_default();
                let seconds = after.as_secs_f64().ceil();
                let (tries, all) = (self.tries, retry::TRIES_MAX);
                let text = format!("{}; trying again in {seconds} s ({tries} of {all} tries)", error.text);
                self.ready.push_back(ModelEvent::Notice(text));
                self.state = State::Wait(after);
            }
            RetryDecision::GiveUp => {
                let often = matches!(error.kind, ModelErrorKind::Transient { .. }) && self.tries > 1;
                let mut text =
                    if often { format!("{} (tried {} times)", error.text, self.tries) } else { error.text };
                if let Some(asked) = asked.filter(|asked| *asked > timeouts.retry_after_max) {
                    text.push_str(&format!(
                        "; it asks to wait {}: try again after that or choose another model (to allow longer waits, raise retry_after_max in [limits] of the settings)",
                        retry::format_wait(asked)
                    ));
                }
                self.failure = Some(ModelError { text, kind: error.kind });
            }
        }
    }

    /// Some models refuse a setting that others accept, and no list of them stays right. Such a setting is
    /// omitted for this model from now on.
    fn omit_refused_setting(&mut self, refused: &ErrorReply) -> bool {
        if !matches!(refused.status, 400 | 422) {
            return false;
        }
        let (words, omit) = (refused.body.to_lowercase(), &mut self.options.omit);
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
        self.provider.add_omission(&self.request.model, omit);
        let text = format!("{} does not support {what}; trying again without it", self.request.model);
        self.ready.push_back(ModelEvent::Notice(text));
        self.tries -= 1;
        true
    }

    fn identity(&self) -> ProviderIdentity<'_> {
        self.provider.identity(&self.request.model)
    }
}

impl ModelStream for ModelCall {
    fn next(&mut self) -> BoxFuture<'_, Result<ModelEvent, ModelError>> {
        Box::pin(self.advance())
    }
}

/// The provider's name of the model, without the provider prefix.
pub(super) fn bare_model(id: &str) -> &str {
    id.split_once(':').map_or(id, |(_, model)| model)
}

fn is_content(event: &ModelEvent) -> bool {
    matches!(event, ModelEvent::Text(_) | ModelEvent::Thinking(_) | ModelEvent::ToolCall { .. })
}

fn is_finished(events: &[ModelEvent]) -> bool {
    events.iter().any(|event| matches!(event, ModelEvent::Done { stop: ModelStop::Finished }))
}

fn silence_of(since: Instant, requested_wait: Duration) -> Duration {
    since.elapsed().saturating_sub(requested_wait)
}

/// A random number, so that many callers of the same provider do not retry at the same moment.
fn jitter() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u128() as u32;
    f64::from(bits) / f64::from(u32::MAX)
}
