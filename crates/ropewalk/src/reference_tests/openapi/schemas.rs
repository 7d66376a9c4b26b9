//! The schemas of bodies, in a short notation.

use serde_json::{Map, Value, json};

/// Fields: the name (with `?` if it may be missing), the type, and a description. Types: a JSON type, `time`, a name
/// after `#`, words with `|` between them, `[..]` for a list, `{..}` for an object with such values, `any`; `null`
/// instead of a value may stand where the type ends in `?`.
type Fields = &'static [(&'static str, &'static str, &'static str)];

pub fn schema_of(kind: &str) -> Value {
    let inside = |open: char, close: char| kind.strip_prefix(open)?.strip_suffix(close);
    if let Some(inner) = kind.strip_suffix('?') {
        let mut schema = schema_of(inner);
        let own = schema["type"].take();
        schema["type"] = json!([own, "null"]);
        return schema;
    }
    if let Some(inner) = inside('[', ']') {
        return json!({ "type": "array", "items": schema_of(inner) });
    }
    if let Some(inner) = inside('{', '}') {
        return json!({ "type": "object", "additionalProperties": schema_of(inner) });
    }
    if let Some((one, other)) = kind.split_once(" or ") {
        return json!({ "oneOf": [schema_of(one), schema_of(other)] });
    }
    if let Some(name) = kind.strip_prefix('#') {
        return json!({ "$ref": format!("#/components/schemas/{name}") });
    }
    match kind {
        "any" => json!({}),
        "time" => json!({ "type": "string", "format": "date-time" }),
        words if words.contains('|') => {
            json!({ "type": "string", "enum": words.split('|').collect::<Vec<_>>() })
        }
        plain => json!({ "type": plain }),
    }
}

fn object(parts: &[Fields]) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for (name, kind, description) in parts.iter().copied().flatten() {
        let plain = name.trim_end_matches('?');
        if plain == *name {
            required.push(plain);
        }
        let mut schema = schema_of(kind);
        if !description.is_empty() {
            schema["description"] = json!(description);
        }
        properties.insert(plain.to_owned(), schema);
    }
    let mut object = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

pub fn schemas() -> Value {
    let mut schemas = Map::new();
    for (name, parts) in SCHEMAS {
        schemas.insert(name.to_owned(), object(parts));
    }
    Value::Object(schemas)
}

const SCHEMAS: [(&str, &[Fields]); 46] = [
    ("Error", &[ERROR]),
    ("NewSession", &[NEW_SESSION]),
    ("CreatedSession", &[CREATED]),
    ("SessionIds", &[&[("sessions", "[string]", "The ids, the latest first.")]]),
    ("SessionSnapshot", &[SNAPSHOT]),
    ("ListedSession", &[SNAPSHOT, LISTED]),
    ("SessionList", &[&[("sessions", "[#ListedSession]", "The latest first.")]]),
    ("NewSessionWithPrompt", &[NEW_SESSION, WITH_PROMPT]),
    ("SessionInfo", &[SESSION]),
    ("NewSessionInfo", &[SESSION, WITH_TOKEN]),
    ("Message", &[MESSAGE]),
    ("MessageTaken", &[&[("message_id", "string", PROMPT_ID)]]),
    ("Prompt", &[PROMPT]),
    ("PromptTaken", &[PROMPT_TAKEN]),
    ("Title", &[&[("title?", "string", "1 to 60 characters, on one line.")]]),
    ("Empty", &[&[]]),
    ("SessionToken", &[&[("session_token", "string", "The session's token.")]]),
    ("Turn", &[TURN]),
    ("TurnList", &[TURNS]),
    ("MessageRecord", &[RECORD]),
    ("Export", &[EXPORT]),
    ("ShareRequest", &[SHARE_REQUEST]),
    ("Shared", &[SHARED]),
    ("PermissionAnswer", &[ANSWER]),
    ("PermissionAnswered", &[ANSWERED]),
    ("Command", &[COMMAND]),
    ("CommandArgument", &[&[("name", "string", ""), ("description", "string", "")]]),
    ("CommandList", &[&[("commands", "[#Command]", "By name.")]]),
    ("CommandCall", &[COMMAND_CALL]),
    ("CommandTaken", &[COMMAND_TAKEN]),
    ("Run", &[RUN]),
    ("RunList", &[&[("total_runs", "integer", ""), ("runs", "[#Run]", "The latest first.")]]),
    ("RunCosts", &[RUN_COSTS]),
    ("Link", &[&[("uri", "string", "The link: `ropewalk://new-session?...`.")]]),
    ("LinkContents", &[LINK]),
    ("ServerInfo", &[INFO]),
    ("ProviderList", &[PROVIDERS]),
    ("ToolList", &[&[("tools", "[#Tool]", "")]]),
    ("Discovery", &[DISCOVERY]),
    ("AgentDescription", &[AGENT]),
    ("ModelCosts", &[MODEL_COSTS]),
    ("CostTotals", &[COST_TOTALS]),
    ("RunFilters", &[&[("since", "string?", ""), ("model", "string?", "")]]),
    ("ActiveProvider", &[&[("provider", "string", ""), ("model", "string", "")]]),
    ("Provider", &[PROVIDER]),
    ("Tool", &[&[("name", "string", ""), ("description", "string", "")]]),
];

const PROMPT_ID: &str = "The id of the prompt: the same in the answer, in the stream and after a restart.";

const ERROR: Fields = &[
    ("error", "string", "What is wrong, for programs; docs/reference/http.md lists the words."),
    ("message", "string", "What to do about it, for people."),
];
const NEW_SESSION: Fields = &[
    ("working_dir?", "string", "The folder to work in; without it, the server's own."),
    ("cwd?", "string", "Another name of `working_dir`."),
    ("persist?", "boolean", "What the server does anyway: true, or false with --no-save."),
];
const WITH_PROMPT: Fields = &[
    ("model?", "string", "The model, as `GET /providers` lists them."),
    ("mode?", "string", "The mode."),
    ("prompt?", "string", "The first prompt; the turn begins at once."),
];
const CREATED: Fields = &[
    ("session_id", "string", "The session's id."),
    ("working_dir", "string", "The folder that it works in."),
    ("created_at", "number", "Seconds since 1970."),
    ("session_token", "string", "Opens this session and nothing else, until the server restarts."),
];
const SNAPSHOT: Fields = &[
    ("session_id", "string", "The session's id."),
    ("working_dir", "string", "The folder that it works in."),
    ("created_at", "number", "Seconds since 1970."),
    ("last_touched", "number", "Seconds since 1970."),
    ("event_count", "integer", "How many events its log has."),
    ("title", "string?", ""),
    ("status", "running|idle", ""),
];
const LISTED: Fields = &[
    ("id", "string", "The session's id."),
    ("started_at", "time", ""),
    ("updated_at", "time", ""),
    ("live", "boolean", "Whether it is in memory."),
];
const SESSION: Fields = &[
    ("id", "string", "The session's id."),
    ("session_id", "string", "The same."),
    ("title", "string?", ""),
    ("created_at", "time", ""),
    ("updated_at", "time", ""),
    ("event_count", "integer", "How many events its log has."),
    ("status", "running|idle", ""),
    ("working_dir", "string", "The folder that it works in."),
    ("parent_id", "string?", "The session that it is a fork of."),
    ("message_count?", "integer", "How many messages and tool calls it has."),
];
const WITH_TOKEN: Fields = &[
    ("session_token", "string", "Opens this session and nothing else, until the server restarts."),
    ("message_id?", "string", "The id of the prompt, if there was one."),
];
const MESSAGE: Fields = &[
    ("text?", "string", "What you want. One of the two is required."),
    ("message?", "string", "Another name of `text`."),
];
const PROMPT: Fields = &[
    ("prompt?", "string", "What you want. One of the three is required."),
    ("text?", "string", "Another name of `prompt`."),
    ("message?", "string", "Another name of `prompt`."),
];
const PROMPT_TAKEN: Fields = &[
    ("session_id", "string", "The session's id."),
    ("status", "running|idle", "`running`."),
    ("message_id", "string", PROMPT_ID),
];
const TURN: Fields = &[
    ("turn", "integer", "Its number, from 1."),
    ("message_id", "string", PROMPT_ID),
    ("prompt", "string", "The beginning of the prompt."),
    ("status", "queued|running|completed|cancelled|failed", ""),
    ("stop_reason", "string?", "Why it ended."),
    ("error", "string?", "What went wrong."),
    ("started_at", "time?", ""),
    ("ended_at", "time?", ""),
    ("steps", "integer", "Model calls."),
    ("tool_calls", "integer", ""),
    ("cost", "number?", "US dollars; null if it is not known."),
    ("cost_unknown?", "boolean", "True if the cost is not known, or only a part of it."),
];
const TURNS: Fields = &[
    ("session_id", "string", "The session's id."),
    ("turns", "[#Turn]", "The latest 1,000, oldest first."),
    ("earlier", "integer", "How many are not listed."),
];
const RECORD: Fields = &[
    ("event_type", "user_message|agent_message|agent_thought|tool_call|tool_result", ""),
    ("payload", "string", "Its fields, as JSON in a text."),
    ("created_at", "time", ""),
];
const EXPORT: Fields = &[
    ("schema", "string", "`ropewalk.session/1`."),
    ("session", "any", "The session's id, title, folder and times."),
    ("events", "[any]", "The events of its log: docs/reference/events.md."),
    ("exported_at", "time", ""),
];
const SHARE_REQUEST: Fields = &[
    ("sink?", "stdout|file|http", "`stdout`; the others are refused."),
    ("format?", "html|md|markdown|json", "`html` if it is missing."),
];
const SHARED: Fields = &[
    ("sink", "string", "`stdout`."),
    ("format", "string", ""),
    ("content_type", "string", "The media type of `body`."),
    ("body", "string", "The session to read."),
];
const ANSWER: Fields = &[
    ("session_id", "string", "As in the permission request."),
    ("permission_id", "string", "As in the permission request."),
    ("approved?", "boolean", "Whether it is allowed, once. This, `decision` or `answer` is required."),
    (
        "decision?",
        "allow|always|deny|never",
        "`always` and `never` hold for exactly the same tool and arguments.",
    ),
    ("answer?", "string", "The answer to a question."),
];
const ANSWERED: Fields =
    &[("resolved", "boolean", "True."), ("approved", "boolean", "Whether it was allowed.")];
const COMMAND: Fields = &[
    ("name", "string", "Without the slash."),
    ("description", "string", ""),
    ("args", "[#CommandArgument]", ""),
    ("source", "string", "`built-in`."),
];
const COMMAND_CALL: Fields = &[
    ("session_id", "string", "The session that it is for."),
    ("args?", "[any]", "Arguments by place."),
    ("kwargs?", "{any}", "Arguments by name; they become `name=value`."),
];
const COMMAND_TAKEN: Fields = &[
    ("message_id", "string", PROMPT_ID),
    ("name", "string", ""),
    ("rendered", "string", "The prompt that it became."),
];
const RUN: Fields = &[
    ("run_id", "string", "The session's id."),
    ("started_at", "time", ""),
    ("ended_at?", "time", "Not in `GET /runs/cost`."),
    ("model", "string", ""),
    ("prompt?", "string", "The beginning of the first prompt; not in `GET /runs/cost`."),
    ("success", "boolean", "Whether its last turn ended well."),
    ("cost_usd", "number?", "US dollars; null if it is not known."),
    ("cost_unknown?", "boolean", "True if the cost is not known, or only a part of it."),
    ("steps", "integer", "Model calls."),
    ("tool_calls?", "integer", "Not in `GET /runs/cost`."),
    ("total_tokens?", "integer", "In `GET /runs/cost`."),
    ("input_tokens?", "integer", "In `GET /runs/cost`."),
    ("output_tokens?", "integer", "In `GET /runs/cost`."),
    ("cache_tokens?", "integer", "In `GET /runs/cost`."),
    ("source", "string", "The way that the session was made: `acp`, `http` and so on."),
];
const RUN_COSTS: Fields = &[
    ("total_runs", "integer", ""),
    ("total_cost", "number", "US dollars, as far as they are known."),
    ("total_tokens", "integer", ""),
    ("by_model", "{#ModelCosts}", "By the name of the model."),
    ("by_run", "[#Run]", ""),
    ("totals", "#CostTotals", ""),
    ("filters", "#RunFilters", "What was asked for."),
];
const LINK: Fields = &[
    ("working_dir", "string?", ""),
    ("prompt", "string?", ""),
    ("prompt_trust_level", "string", "`external_untrusted`: show it to a person first."),
    ("model", "string?", ""),
];
const INFO: Fields = &[
    ("name", "string", ""),
    ("version", "string", ""),
    ("model", "string", "The model of new sessions."),
    ("provider", "string", "Its provider."),
    ("tools", "[string]", "The agent's tools."),
    ("cwd", "string", "The server's own folder."),
    ("sandbox", "string", "The sandbox mode."),
];
const PROVIDERS: Fields =
    &[("active", "#ActiveProvider", "What new sessions use."), ("available", "[#Provider]", "")];
const PROVIDER: Fields = &[
    ("name", "string", ""),
    ("configured", "boolean", "True."),
    ("models", "[string]", "The models that it offers, with its name before them."),
];
const DISCOVERY: Fields = &[
    ("name", "string", ""),
    ("version", "string", ""),
    ("protocol", "string", "`acp`."),
    ("protocol_version", "integer", ""),
    ("transports", "{any}", "Where each of them is."),
    ("authentication", "{any}?", "How to sign in; null if no token is asked for."),
    ("readiness", "{any}", ""),
];
const AGENT: Fields = &[
    ("id", "string", ""),
    ("name", "string", ""),
    ("title", "string", ""),
    ("version", "string", ""),
    ("description", "string", ""),
    ("distribution", "{any}", ""),
];
const MODEL_COSTS: Fields = &[
    ("runs", "integer", ""),
    ("cost_usd", "number?", ""),
    ("cost_unknown?", "boolean", "True if the cost is not known, or only a part of it."),
    ("tokens", "integer", ""),
];
const COST_TOTALS: Fields = &[
    ("runs", "integer", ""),
    ("successful_runs", "integer", ""),
    ("failed_runs", "integer", ""),
    ("cost_usd", "number", ""),
    ("tokens", "integer", ""),
    ("input_tokens", "integer", ""),
    ("output_tokens", "integer", ""),
    ("cache_tokens", "integer", ""),
    ("unpriced_runs", "integer", "Runs whose cost is not known."),
    ("avg_cost_usd", "number", ""),
    ("p50_cost_usd", "number", ""),
    ("p95_cost_usd", "number", ""),
];
