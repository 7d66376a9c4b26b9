//! What each kind of event means, in the order in which the store knows them.

pub struct EventKind {
    pub name: &'static str,
    pub meaning: &'static str,
    /// The fields of `payload`. `{Stop}` and the like stand for the engine's words.
    pub fields: &'static [(&'static str, &'static str)],
}

const fn kind(
    name: &'static str,
    meaning: &'static str,
    fields: &'static [(&'static str, &'static str)],
) -> EventKind {
    EventKind { name, meaning, fields }
}

const CALL: (&str, &str) = ("call", "The id of the tool call.");
const KIND: (&str, &str) = ("kind", "What it does: {ToolKind}.");
const INPUT: (&str, &str) = ("input", "Its arguments, as JSON in a text.");

/// The fields around `payload`.
pub const ENVELOPE: &[(&str, &str)] = &[
    ("event_type", "The kind: one of the names below."),
    ("version", "The format of `payload`; 1."),
    ("seq", "Its position in the log, from 1. Positions only grow; after a power cut some are left out."),
    ("at", "When it happened, in milliseconds since 1970."),
    ("turn", "The number of the turn that it belongs to, or `null`."),
    (
        "origin",
        "Who caused it: `\"engine\"`, `\"agent\"`, `{\"task\": {\"call\"}}` for a sub-agent, or `{\"surface\": {\"id\", \"name\", \"request\", \"bridge\"}}` for a client; `bridge` names the person if it came over a bridge.",
    ),
    (
        "payload",
        "The fields of its kind. An event of an external agent may also have `relayed`, the agent's own message as JSON in a text.",
    ),
];

pub const KINDS: [EventKind; 30] = [
    kind(
        "turn_queued",
        "A prompt was accepted while another turn runs. Its turn starts later.",
        &[("content", CONTENT)],
    ),
    kind("turn_started", "A turn began.", &[]),
    kind("user_message", "The prompt of a turn.", &[("content", CONTENT)]),
    kind(
        "text",
        "A piece of the agent's answer.",
        &[("message", "The number of the message that it is a piece of."), ("text", "The piece.")],
    ),
    kind(
        "thought",
        "A piece of the agent's reasoning.",
        &[("message", "The number of the message that it is a piece of."), ("text", "The piece.")],
    ),
    kind(
        "plan",
        "The agent's plan. It replaces the one before.",
        &[("entries", "The steps. `priority`: {Priority}. `status`: {StepStatus}.")],
    ),
    kind(
        "tool_started",
        "A tool call began.",
        &[
            CALL,
            ("tool", "The tool's name."),
            ("title", "The call in one line, for people."),
            KIND,
            ("locations", "Files that it is about."),
            INPUT,
            ("client_terminal", "The client in whose terminal the command runs."),
        ],
    ),
    kind(
        "tool_output",
        "A command wrote something while it runs.",
        &[CALL, ("stream", "{OutputStream}."), ("text", "What it wrote.")],
    ),
    kind(
        "tool_terminal",
        "A command runs in the terminal of a client, which alone shows it.",
        &[CALL, ("terminal", "The client's id of the terminal."), ("surface", "The client.")],
    ),
    kind(
        "tool_changed",
        "New details of a running call. What is missing stays as it was.",
        &[
            CALL,
            ("title", "The call in one line, for people."),
            KIND,
            ("locations", "Files that it is about."),
            INPUT,
            (
                "content",
                "What the call shows from now on: `{\"block\": ...}` or `{\"diff\": {\"path\", \"before\", \"after\"}}`.",
            ),
        ],
    ),
    kind(
        "tool_ended",
        "A tool call ended.",
        &[
            CALL,
            ("failed", "Whether it failed; false if missing."),
            (
                "content",
                "What it shows: `{\"block\": ...}` or `{\"diff\": {\"path\", \"before\", \"after\"}}`. If missing, what it showed before.",
            ),
            ("locations", "Files that it was about."),
            ("raw", "What the model is told, if that is not `content`."),
            ("exit", "How a command ended: its exit code, or the signal that ended it."),
            ("plain_text", "Whether its text is not Markdown; false if missing."),
            ("elapsed_ms", "How long it took, in milliseconds."),
        ],
    ),
    kind(
        "file_edited",
        "A file was changed.",
        &[
            ("call", "The id of the tool call, if there was one."),
            (
                "change",
                "The file, and its content before and after; a missing one means that there was no file.",
            ),
        ],
    ),
    kind(
        "file_shown",
        "The agent points at a place in a file, and an editor may follow.",
        &[("path", "The file."), ("line", "The line, from 1.")],
    ),
    kind(
        "asked",
        "A permission request, or a question to a person.",
        &[
            ("ask", "Its number in the session."),
            (
                "request",
                "`class`: {ToolClass}. `risk`: {Risk}. `question` is there if it is a question, `foreign` if an external agent asks.",
            ),
        ],
    ),
    kind(
        "resolved",
        "A permission request was decided, or a question answered.",
        &[
            ("ask", "The number of the request."),
            ("call", "The id of the tool call."),
            ("resolution", "{Resolution}."),
            (
                "by",
                "Who decided: `{\"policy\": {\"reason\"}}`, `{\"rule\": {\"reason\"}}`, `\"engine\"`, or `{\"surface\": {\"id\", \"name\", \"bridge\", \"owner\"}}` for a person.",
            ),
            ("reply", "The answer to a question, or the reason for a refusal."),
            ("exactly", "Whether a kept answer is about exactly these arguments; false if missing."),
        ],
    ),
    kind(
        "cancel_requested",
        "Somebody cancelled the turn. It ends a moment later.",
        &[("reason", "Why, if the client said so.")],
    ),
    kind(
        "policy_blocked",
        "The sandbox or the policy blocked an action.",
        &[
            ("call", "The id of the tool call."),
            ("tool", "The tool's name."),
            ("path", "The file that it is about."),
            ("mode", "The sandbox mode."),
            ("reason", "Why, for people."),
        ],
    ),
    kind(
        "setting_changed",
        "A setting of the session was changed.",
        &[
            (
                "id",
                "`mode`, `model`, `approval`, `thinking`, `temperature`, or one that the external agent offers.",
            ),
            ("value", "The new value."),
        ],
    ),
    kind(
        "offered",
        "The settings that the external agent offers in this session. They replace the ones before.",
        &[(
            "settings",
            "`choices` is a list of value, name and description; `words` is the agent's own description.",
        )],
    ),
    kind(
        "joined",
        "The session is linked to a session of an external agent.",
        &[
            ("agent", "The agent's name."),
            ("session", "The agent's id of its session."),
            ("of", "The session of ours that it was linked to; another one after a fork."),
            ("extra", "What else the agent said when it opened its session, as JSON in a text."),
        ],
    ),
    kind(
        "usage",
        "Tokens and cost of one model call.",
        &[
            ("context_used", "Tokens in the context after it."),
            ("context_size", "Tokens that the context can have."),
            ("input", "Input tokens."),
            ("output", "Output tokens."),
            ("cache_read", "Input tokens that were read from the cache."),
            ("cache_write", "Input tokens that were written to the cache."),
            ("reasoning", "Tokens of reasoning."),
            ("cost_usd", "US dollars."),
            ("unpriced", "Whether the price is not known; then `cost_usd` means nothing. False if missing."),
        ],
    ),
    kind(
        "commands",
        "The slash commands that the agent offers. They replace the ones before.",
        &[("commands", "`hint` says what to type after the name.")],
    ),
    kind("title", "The session has a new title.", &[("text", "The title.")]),
    kind(
        "notice",
        "Something that a person should know and that nobody in the conversation said.",
        &[("level", "{NoticeLevel}. `damage` replaces events that cannot be read."), ("text", "The notice.")],
    ),
    kind(
        "cleared",
        "The conversation was cleared: what came before is not shown any more, neither to people nor to the model.",
        &[],
    ),
    kind(
        "compacting",
        "The conversation is being summarised for the model.",
        &[("given_up", "Whether that was given up.")],
    ),
    kind(
        "compacted",
        "For the model, a summary replaces what came before. People still see it all.",
        &[("text", "The summary.")],
    ),
    kind(
        "moved",
        "The session works in another folder from here on.",
        &[("cwd", "The folder."), ("from", "The folder before, if it is known.")],
    ),
    kind(
        "foreign",
        "A message of an external agent that Ropewalk does not know, kept word for word.",
        &[("text", "The message, as JSON in a text.")],
    ),
    kind(
        "turn_ended",
        "A turn ended.",
        &[("stop", "Why: {Stop}."), ("error", "What went wrong, for people.")],
    ),
];

const CONTENT: &str = "What was said, in order: `{\"text\": ...}`, `{\"image\": ...}`, `{\"audio\": ...}`, `{\"link\": ...}`, `{\"resource\": ...}` or `{\"binary\": ...}`.";
