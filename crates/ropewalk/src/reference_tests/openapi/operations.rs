//! The operations of the REST routes.

/// An answer that is no refusal.
pub struct OperationAnswer {
    pub status: u16,
    pub what: &'static str,
    /// Media types with the notation of a schema.
    pub content: &'static [(&'static str, &'static str)],
}

pub struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    pub id: &'static str,
    pub summary: &'static str,
    /// Where, the name, the notation of a schema, and a description.
    pub parameters: &'static [(&'static str, &'static str, &'static str, &'static str)],
    /// The name of the body's schema.
    pub body: Option<&'static str>,
    pub body_required: bool,
    pub answers: &'static [OperationAnswer],
    /// Statuses of refusals beside those that every such route has.
    pub errors: &'static [u16],
}

const fn get(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    answers: &'static [OperationAnswer],
) -> Operation {
    Operation {
        method: "GET",
        path,
        id,
        summary,
        parameters: &[],
        body: None,
        body_required: false,
        answers,
        errors: &[],
    }
}

const fn post(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    answers: &'static [OperationAnswer],
) -> Operation {
    Operation { method: "POST", ..get(path, id, summary, answers) }
}

impl Operation {
    const fn takes(self, body: &'static str) -> Self {
        Self { body: Some(body), body_required: true, ..self }
    }

    /// The same where no body at all is taken for an empty one.
    const fn may_take(self, body: &'static str) -> Self {
        Self { body: Some(body), ..self }
    }

    const fn with(
        self,
        parameters: &'static [(&'static str, &'static str, &'static str, &'static str)],
    ) -> Self {
        Self { parameters, ..self }
    }

    const fn fails(self, errors: &'static [u16]) -> Self {
        Self { errors, ..self }
    }
}

const JSON: &str = "application/json";

macro_rules! json_answer {
    ($status:literal, $what:literal, $schema:literal) => {
        &[OperationAnswer { status: $status, what: $what, content: &[(JSON, $schema)] }]
    };
}

const DONE: &[OperationAnswer] = &[OperationAnswer { status: 204, what: "Done.", content: &[] }];
const EVENT_STREAM: &[OperationAnswer] = &[OperationAnswer {
    status: 200,
    what: "Server-sent events with `id`, `event` and one line of JSON in `data`: docs/reference/events.md.",
    content: &[("text/event-stream", "string")],
}];
const STREAM_PARAMETERS: &[(&str, &str, &str, &str)] = &[
    ("query", "format", "loop_event|text_delta", "The form of the events; without it, that of the path."),
    (
        "query",
        "from",
        "start|live",
        "Where to begin without `Last-Event-ID`: with the first event, or with what is new.",
    ),
    ("query", "follow", "1|true|yes", "The stream stays open after the turn, also in the form `text_delta`."),
    ("header", "Last-Event-ID", "string", "The last id that you have; what comes after it is sent."),
];
const LIMIT: (&str, &str, &str, &str) = ("query", "limit", "integer", "At most so many.");
const SINCE: (&str, &str, &str, &str) =
    ("query", "since", "string", "Only those that changed since then: a time, or an age such as 7d.");
const RUN_PARAMETERS: &[(&str, &str, &str, &str)] =
    &[LIMIT, SINCE, ("query", "model", "string", "Only those whose model's name has this in it.")];
const TAKEN: &[OperationAnswer] =
    json_answer!(202, "The prompt was taken; its events are in the stream.", "#PromptTaken");

pub const OPERATIONS: [Operation; 35] = [
    get("/session", "listSessionIds", "Ids of your sessions", json_answer!(200, "The ids.", "#SessionIds"))
        .with(&[LIMIT])
        .fails(&[400]),
    post(
        "/session",
        "createSession",
        "Create a session",
        json_answer!(201, "The session.", "#CreatedSession"),
    )
    .may_take("NewSession")
    .fails(&[502, 503]),
    get("/session/{id}", "getSession", "One session", json_answer!(200, "The session.", "#SessionSnapshot")),
    Operation { method: "DELETE", ..get("/session/{id}", "deleteSession", "Delete a session", DONE) },
    post(
        "/session/{id}/message",
        "sendMessage",
        "Send a prompt",
        json_answer!(202, "The prompt was taken; its events are in the stream.", "#MessageTaken"),
    )
    .takes("Message")
    .fails(&[409, 429]),
    post("/session/{id}/cancel", "cancelTurn", "Cancel the running turn", DONE).may_take("Empty"),
    get("/session/{id}/events", "streamEvents", "The session's events", EVENT_STREAM)
        .with(STREAM_PARAMETERS)
        .fails(&[400, 503]),
    post(
        "/session/{id}/rotate-token",
        "rotateToken",
        "Replace the session's token",
        json_answer!(200, "The new token.", "#SessionToken"),
    )
    .may_take("Empty"),
    get(
        "/sessions",
        "listSessions",
        "Your sessions",
        json_answer!(200, "The sessions; with format=array, a list.", "#SessionList or [#SessionInfo]"),
    )
    .with(&[LIMIT, SINCE, ("query", "format", "array", "The bare list, with times as text.")])
    .fails(&[400]),
    post(
        "/sessions",
        "createSessionWithPrompt",
        "Create a session, perhaps with a prompt",
        json_answer!(201, "The session.", "#NewSessionInfo"),
    )
    .may_take("NewSessionWithPrompt")
    .fails(&[502, 503]),
    get("/sessions/{id}", "getSessionInfo", "One session", json_answer!(200, "The session.", "#SessionInfo")),
    Operation {
        method: "PATCH",
        ..get(
            "/sessions/{id}",
            "renameSession",
            "Rename a session",
            json_answer!(200, "The session.", "#SessionInfo"),
        )
    }
    .takes("Title"),
    Operation { method: "DELETE", ..get("/sessions/{id}", "deleteSessionInfo", "Delete a session", DONE) },
    post("/sessions/{id}/prompt", "prompt", "Send a prompt", TAKEN).takes("Prompt").fails(&[409, 429]),
    get(
        "/sessions/{id}/turns",
        "listTurns",
        "The latest turns",
        json_answer!(200, "The turns.", "#TurnList"),
    ),
    post("/sessions/{id}/turns", "startTurn", "Send a prompt", TAKEN).takes("Prompt").fails(&[409, 429]),
    post("/sessions/{id}/cancel", "cancelSessionTurn", "Cancel the running turn", DONE).may_take("Empty"),
    post(
        "/sessions/{id}/rotate-token",
        "rotateSessionToken",
        "Replace the session's token",
        json_answer!(200, "The new token.", "#SessionToken"),
    )
    .may_take("Empty"),
    post(
        "/sessions/{id}/fork",
        "forkSession",
        "Copy a session",
        json_answer!(201, "The new session.", "#NewSessionInfo"),
    )
    .may_take("Empty")
    .fails(&[502, 503]),
    get(
        "/sessions/{id}/events",
        "streamTurnEvents",
        "The session's events, until its turn ends",
        EVENT_STREAM,
    )
    .with(STREAM_PARAMETERS)
    .fails(&[400, 503]),
    get(
        "/sessions/{id}/messages",
        "listMessages",
        "Messages and tool calls",
        json_answer!(200, "The messages, oldest first.", "[#MessageRecord]"),
    ),
    get(
        "/sessions/{id}/transcript",
        "getTranscript",
        "The session to read",
        &[OperationAnswer {
            status: 200,
            what: "The transcript.",
            content: &[("text/html", "string"), ("text/markdown", "string"), (JSON, "#Export")],
        }],
    )
    .with(&[("query", "format", "html|md|markdown|json", "`html` if it is missing.")])
    .fails(&[400, 413]),
    post(
        "/sessions/{id}/share",
        "shareSession",
        "The session to read, in a JSON answer",
        json_answer!(200, "The transcript.", "#Shared"),
    )
    .may_take("ShareRequest")
    .fails(&[501]),
    post(
        "/tool/approve",
        "answerPermission",
        "Answer a permission request or a question",
        json_answer!(200, "The answer was taken.", "#PermissionAnswered"),
    )
    .takes("PermissionAnswer")
    .fails(&[404]),
    get("/commands", "listCommands", "Slash commands", json_answer!(200, "The commands.", "#CommandList")),
    post(
        "/commands/{name}/invoke",
        "invokeCommand",
        "Run a slash command",
        json_answer!(202, "The command was taken; its events are in the stream.", "#CommandTaken"),
    )
    .takes("CommandCall")
    .fails(&[404, 409, 429]),
    get("/runs", "listRuns", "Your sessions as runs", json_answer!(200, "The runs.", "#RunList"))
        .with(RUN_PARAMETERS)
        .fails(&[400]),
    get("/runs/cost", "getRunCosts", "What your runs cost", json_answer!(200, "The costs.", "#RunCosts"))
        .with(RUN_PARAMETERS)
        .fails(&[400]),
    post(
        "/deep-link",
        "readLink",
        "What a link asks for; nothing is done",
        json_answer!(200, "Its contents.", "#LinkContents"),
    )
    .takes("Link")
    .fails(&[422]),
    get("/info", "getInfo", "This server", json_answer!(200, "The server.", "#ServerInfo")),
    get(
        "/providers",
        "listProviders",
        "Providers and models",
        json_answer!(200, "The providers.", "#ProviderList"),
    ),
    get("/tools", "listTools", "The agent's tools", json_answer!(200, "The tools.", "#ToolList")),
    get(
        "/.well-known/acp.json",
        "discover",
        "Where the protocols are",
        json_answer!(200, "The addresses.", "#Discovery"),
    )
    .fails(&[404]),
    get(
        "/.well-known/agent.json",
        "describeAgent",
        "Name and version of the agent",
        json_answer!(200, "The agent.", "#AgentDescription"),
    )
    .fails(&[404]),
    get(
        "/agent.json",
        "describeAgentHere",
        "Name and version of the agent",
        json_answer!(200, "The agent.", "#AgentDescription"),
    )
    .fails(&[404]),
];
