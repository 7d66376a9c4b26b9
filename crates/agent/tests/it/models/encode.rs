//! What each wire sends: a first question with everything in it, and the second one of a turn.

use std::fmt::Write as _;
use std::sync::Arc;

use agent::{
    Image, Message, ModelRequest, NativeReply, Omit, Thinking, ToolCall, ToolSpec, Wire, WireOptions,
};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::models::hear;

fn tool(name: &str, schema: Value) -> ToolSpec {
    ToolSpec { name: name.into(), description: format!("Does {name}").into(), schema: Arc::new(schema) }
}

fn request(model: &str, messages: Vec<Message>) -> ModelRequest {
    let schema = json!({
        "$schema": "x", "type": "object", "required": ["path", "gone"], "additionalProperties": false,
        "properties": {
            "path": { "type": ["string", "null"], "minLength": 1 },
            "how": { "oneOf": [{ "const": "fast" }, { "$ref": "#/$defs/node" }] },
            "many": { "type": "array" }
        },
        "$defs": { "node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/missing" } } } }
    });
    ModelRequest {
        model: model.into(),
        system: "Be brief.".into(),
        messages,
        tools: [tool("read", schema), tool("stop", json!({}))].into(),
        output_tokens_max: Some(16_000),
        thinking: Thinking::Off,
        temperature: Some(0.2),
        conversation: "session-1".into(),
    }
}

fn user(text: &str) -> Message {
    Message::User { text: text.into(), images: Vec::new() }
}

fn image() -> Image {
    Image { mime: "image/png".into(), data: "AAAA".into() }
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "read".into(), arguments: arguments.into() }
}

fn result(id: &str, text: &str, images: Vec<Image>, failed: bool) -> Message {
    Message::ToolResult { call: id.into(), tool: "read".into(), text: text.into(), images, failed }
}

/// A past with everything that needs care: a summary before a prompt, an image, an empty reply, calls
/// whose arguments are no object, results without text and with an image, a prompt next to results.
fn past() -> Vec<Message> {
    let calls = vec![call("0f-1", r#"{"path":"a"}"#), call("0f-2", r#""half a"#)];
    vec![
        Message::Summary("They met.".into()),
        Message::User { text: "Look.".into(), images: vec![image()] },
        Message::Assistant { text: " ".into(), calls: Vec::new(), native: None },
        Message::Assistant { text: "I read.".into(), calls, native: None },
        result("0f-1", "", vec![image()], false),
        result("0f-2", "no JSON", Vec::new(), true),
        user("And?"),
    ]
}

/// A line for each setting, and for each member of the lists.
fn pretty(body: &Value) -> String {
    let mut lines = String::new();
    for (key, value) in body.as_object().unwrap() {
        match value.as_array().filter(|list| !list.is_empty()) {
            None => writeln!(lines, "{key}: {value}").unwrap(),
            Some(list) => {
                writeln!(lines, "{key}:").unwrap();
                list.iter().for_each(|member| writeln!(lines, "  {member}").unwrap());
            }
        }
    }
    lines
}

fn first(wire: Wire, model: &str, expected: Expect) {
    let options = WireOptions { base_url: wire.default_base_url().into(), ..WireOptions::default() };
    expected.assert_eq(&pretty(&wire.body(&request(model, past()), &options)));
}

/// The part of the second question of a turn that tells the first answer, which is read from `reply`.
fn second(wire: Wire, model: &str, base_url: &str, reply: &str, expected: Expect) {
    let reply = hear(wire, reply, usize::MAX);
    assert_eq!(reply.error, None);
    let native = reply.native.map(|native| NativeReply { provider: model.into(), ..native });
    let calls: Vec<ToolCall> =
        reply.calls.iter().map(|(id, _, arguments)| call(&format!("our-{id}"), arguments)).collect();
    let results = calls.iter().map(|call| result(&call.id, "done", Vec::new(), false)).collect::<Vec<_>>();
    let said = Message::Assistant { text: reply.text.as_str().into(), calls, native };
    let messages = [user("Go."), said].into_iter().chain(results).collect();
    let mut request = request(model, messages);
    request.tools = [].into();
    request.thinking = Thinking::Medium;
    let options = WireOptions { base_url: base_url.into(), ..WireOptions::default() };
    expected.assert_eq(&pretty(&wire.body(&request, &options)));
}

#[test]
fn anthropic_first() {
    first(
        Wire::Anthropic,
        "anthropic:claude-sonnet-4-5",
        expect![[r##"
            model: "claude-sonnet-4-5"
            max_tokens: 16000
            stream: true
            temperature: 0.2
            system:
              {"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}
            tools:
              {"name":"read","description":"Does read","input_schema":{"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/missing"}}}},"type":"object","required":["path","gone"],"additionalProperties":false,"properties":{"path":{"type":["string","null"],"minLength":1},"how":{"oneOf":[{"const":"fast"},{"$ref":"#/$defs/node"}]},"many":{"type":"array"}}}}
              {"name":"stop","description":"Does stop","input_schema":{"type":"object","properties":{}},"cache_control":{"type":"ephemeral"}}
            messages:
              {"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"text","text":"Summary of the conversation so far:\n\nThey met."},{"type":"text","text":"Look.","cache_control":{"type":"ephemeral"}}]}
              {"role":"assistant","content":[{"type":"text","text":"I read."},{"type":"tool_use","id":"call00001","name":"read","input":{"path":"a"}},{"type":"tool_use","id":"call00002","name":"read","input":{}}]}
              {"role":"user","content":[{"type":"tool_result","tool_use_id":"call00001","content":[{"type":"text","text":"(no output)"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},{"type":"tool_result","tool_use_id":"call00002","content":[{"type":"text","text":"no JSON"}],"is_error":true},{"type":"text","text":"And?","cache_control":{"type":"ephemeral"}}]}
        "##]],
    );
}

#[test]
fn responses_first() {
    first(
        Wire::Responses,
        "openai:gpt-4.1",
        expect![[r##"
        model: "gpt-4.1"
        stream: true
        store: false
        prompt_cache_key: "session-1"
        instructions: "Be brief."
        input:
          {"role":"user","content":[{"type":"input_text","text":"Summary of the conversation so far:\n\nThey met."},{"type":"input_text","text":"Look."},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}
          {"role":"assistant","content":[{"type":"output_text","text":"I read."}]}
          {"type":"function_call","call_id":"call00001","name":"read","arguments":"{\"path\":\"a\"}"}
          {"type":"function_call","call_id":"call00002","name":"read","arguments":"{}"}
          {"type":"function_call_output","call_id":"call00001","output":[{"type":"input_text","text":"(no output)"},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}
          {"type":"function_call_output","call_id":"call00002","output":"no JSON"}
          {"role":"user","content":[{"type":"input_text","text":"And?"}]}
        max_output_tokens: 16000
        tools:
          {"type":"function","name":"read","description":"Does read","parameters":{"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/missing"}}}},"type":"object","required":["path","gone"],"additionalProperties":false,"properties":{"path":{"type":["string","null"],"minLength":1},"how":{"oneOf":[{"const":"fast"},{"$ref":"#/$defs/node"}]},"many":{"type":"array"}}},"strict":false}
          {"type":"function","name":"stop","description":"Does stop","parameters":{"type":"object","properties":{}},"strict":false}
        parallel_tool_calls: true
        temperature: 0.2
    "##]],
    );
}

#[test]
fn chat_first() {
    first(
        Wire::Chat,
        "openai:gpt-4.1",
        expect![[r##"
        model: "gpt-4.1"
        stream: true
        stream_options: {"include_usage":true}
        messages:
          {"role":"system","content":"Be brief."}
          {"role":"user","content":[{"type":"text","text":"Summary of the conversation so far:\n\nThey met."},{"type":"text","text":"Look."},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}
          {"role":"assistant","content":"I read.","tool_calls":[{"id":"call00001","type":"function","function":{"name":"read","arguments":"{\"path\":\"a\"}"}},{"id":"call00002","type":"function","function":{"name":"read","arguments":"{}"}}]}
          {"role":"tool","tool_call_id":"call00001","content":"(no output)"}
          {"role":"tool","tool_call_id":"call00002","content":"no JSON"}
          {"role":"user","content":[{"type":"text","text":"What read has shown:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}
          {"role":"user","content":"And?"}
        tools:
          {"type":"function","function":{"name":"read","description":"Does read","parameters":{"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/missing"}}}},"type":"object","required":["path","gone"],"additionalProperties":false,"properties":{"path":{"type":["string","null"],"minLength":1},"how":{"oneOf":[{"const":"fast"},{"$ref":"#/$defs/node"}]},"many":{"type":"array"}}}}}
          {"type":"function","function":{"name":"stop","description":"Does stop","parameters":{"type":"object","properties":{}}}}
        max_completion_tokens: 16000
        prompt_cache_key: "session-1"
        temperature: 0.2
    "##]],
    );
}

#[test]
fn gemini_first() {
    first(
        Wire::Gemini,
        "gemini:gemini-2.5-flash",
        expect![[r#"
        contents:
          {"role":"user","parts":[{"text":"Summary of the conversation so far:\n\nThey met."},{"text":"Look."},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}
          {"role":"model","parts":[{"text":"I read."},{"functionCall":{"name":"read","args":{"path":"a"}}},{"functionCall":{"name":"read","args":{}}}]}
          {"role":"user","parts":[{"functionResponse":{"name":"read","response":{"output":"(no output)"}}},{"functionResponse":{"name":"read","response":{"error":"no JSON"}}},{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"text":"And?"}]}
        systemInstruction: {"parts":[{"text":"Be brief."}]}
        tools:
          {"functionDeclarations":[{"name":"read","description":"Does read","parameters":{"type":"object","required":["path"],"properties":{"path":{"minLength":1,"nullable":true,"type":"string"},"how":{"anyOf":[{"type":"string","enum":["fast"]},{"type":"object","properties":{"next":{"type":"string"}}}]},"many":{"type":"array","items":{"type":"string"}}}}},{"name":"stop","description":"Does stop"}]}
        generationConfig: {"maxOutputTokens":16000,"temperature":0.2,"thinkingConfig":{"thinkingBudget":0,"includeThoughts":false}}
    "#]],
    );
}

#[test]
fn ollama_first() {
    first(
        Wire::Ollama,
        "ollama:llama3.1:8b",
        expect![[r##"
        model: "llama3.1:8b"
        stream: true
        messages:
          {"role":"system","content":"Be brief."}
          {"role":"user","content":"Summary of the conversation so far:\n\nThey met.\n\nLook.","images":["AAAA"]}
          {"role":"assistant","content":"I read.","tool_calls":[{"function":{"name":"read","arguments":{"path":"a"}}},{"function":{"name":"read","arguments":{}}}]}
          {"role":"tool","tool_name":"read","content":"(no output)"}
          {"role":"tool","tool_name":"read","content":"no JSON"}
          {"role":"user","content":"What read has shown:","images":["AAAA"]}
          {"role":"user","content":"And?"}
        tools:
          {"type":"function","function":{"name":"read","description":"Does read","parameters":{"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/missing"}}}},"type":"object","required":["path","gone"],"additionalProperties":false,"properties":{"path":{"type":["string","null"],"minLength":1},"how":{"oneOf":[{"const":"fast"},{"$ref":"#/$defs/node"}]},"many":{"type":"array"}}}}}
          {"type":"function","function":{"name":"stop","description":"Does stop","parameters":{"type":"object","properties":{}}}}
        think: false
        options: {"num_predict":16000,"temperature":0.2}
    "##]],
    );
}

#[test]
fn anthropic_is_given_its_signed_thoughts_back() {
    let reply = include_str!("fixtures/anthropic-thinking-tools.txt");
    second(
        Wire::Anthropic,
        "anthropic:claude-sonnet-4-5",
        "https://api.anthropic.com",
        reply,
        expect![[r#"
        model: "claude-sonnet-4-5"
        max_tokens: 16000
        stream: true
        thinking: {"type":"enabled","budget_tokens":8000}
        system:
          {"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}
        messages:
          {"role":"user","content":[{"type":"text","text":"Go.","cache_control":{"type":"ephemeral"}}]}
          {"role":"assistant","content":[{"type":"thinking","thinking":"Both files.","signature":"c2lnbmVk"},{"type":"redacted_thinking","data":"c2VhbGVk"},{"type":"text","text":"I read them."},{"type":"tool_use","id":"toolu_A","name":"read","input":{"path":"ą"}},{"type":"tool_use","id":"toolu_B","name":"read","input":{"path":"b"}}]}
          {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_A","content":[{"type":"text","text":"done"}]},{"type":"tool_result","tool_use_id":"toolu_B","content":[{"type":"text","text":"done"}],"cache_control":{"type":"ephemeral"}}]}
    "#]],
    );
}

#[test]
fn responses_are_given_their_sealed_thoughts_back() {
    let reply = include_str!("fixtures/responses-thinking-tools.txt");
    second(
        Wire::Responses,
        "openai:gpt-5.2",
        "https://api.openai.com/v1",
        reply,
        expect![[r#"
        model: "gpt-5.2"
        stream: true
        store: false
        prompt_cache_key: "session-1"
        instructions: "Be brief."
        input:
          {"role":"user","content":[{"type":"input_text","text":"Go."}]}
          {"type":"reasoning","summary":[{"type":"summary_text","text":"**One**"},{"type":"summary_text","text":"**Two**"}],"encrypted_content":"c2VhbGVk"}
          {"type":"function_call","call_id":"call_A","name":"read","arguments":"{\"path\":\"a\"}"}
          {"type":"function_call","call_id":"call_B","name":"read","arguments":"{\"path\":\"b\"}"}
          {"type":"function_call_output","call_id":"call_A","output":"done"}
          {"type":"function_call_output","call_id":"call_B","output":"done"}
        max_output_tokens: 16000
        include:
          "reasoning.encrypted_content"
        reasoning: {"effort":"medium","summary":"auto"}
    "#]],
    );
}

#[test]
fn chat_is_given_its_thoughts_back() {
    let reply = include_str!("fixtures/chat-thinking-tools.txt");
    second(
        Wire::Chat,
        "openrouter:anthropic/claude-sonnet-4.5",
        "https://openrouter.ai/api/v1",
        reply,
        expect![[r#"
            model: "anthropic/claude-sonnet-4.5"
            stream: true
            stream_options: {"include_usage":true}
            messages:
              {"role":"system","content":"Be brief."}
              {"role":"user","content":"Go."}
              {"role":"assistant","content":"I read them.","reasoning_details":[{"type":"reasoning.text","text":"Both files.","format":"f-1","index":0,"signature":"c2lnbmVk"}],"tool_calls":[{"id":"call_A","type":"function","function":{"name":"read","arguments":"{\"path\":\"a\"}"}},{"id":"call_B","type":"function","function":{"name":"read","arguments":"{\"path\":\"b\"}"}}]}
              {"role":"tool","tool_call_id":"call_A","content":"done"}
              {"role":"tool","tool_call_id":"call_B","content":"done"}
            max_tokens: 16000
            reasoning: {"effort":"medium"}
            temperature: 0.2
        "#]],
    );
}

#[test]
fn gemini_is_given_its_signatures_back() {
    let reply = include_str!("fixtures/gemini-thinking-tools.txt");
    second(
        Wire::Gemini,
        "gemini:gemini-3-pro-preview",
        "https://x.invalid",
        reply,
        expect![[r#"
        contents:
          {"role":"user","parts":[{"text":"Go."}]}
          {"role":"model","parts":[{"text":"I read them."},{"functionCall":{"name":"read","args":{"path":"a"},"id":"fn-1"},"thoughtSignature":"c2lnbmVk"},{"functionCall":{"name":"read","args":{"path":"b"}}}]}
          {"role":"user","parts":[{"functionResponse":{"name":"read","response":{"output":"done"},"id":"fn-1"}},{"functionResponse":{"name":"read","response":{"output":"done"}}}]}
        systemInstruction: {"parts":[{"text":"Be brief."}]}
        generationConfig: {"maxOutputTokens":16000,"temperature":0.2,"thinkingConfig":{"thinkingLevel":"high","includeThoughts":true}}
    "#]],
    );
}

#[test]
fn ollama_is_given_its_thoughts_back() {
    let reply = include_str!("fixtures/ollama-thinking-tools.txt");
    second(
        Wire::Ollama,
        "ollama:qwen3",
        "http://127.0.0.1:11434",
        reply,
        expect![[r#"
        model: "qwen3"
        stream: true
        messages:
          {"role":"system","content":"Be brief."}
          {"role":"user","content":"Go."}
          {"role":"assistant","content":"I read them.","thinking":"Both files.","tool_calls":[{"id":"call_A","function":{"index":0,"name":"read","arguments":{"path":"a"}}},{"id":"call_B","function":{"index":1,"name":"read","arguments":{"path":"b"}}}]}
          {"role":"tool","tool_name":"read","content":"done"}
          {"role":"tool","tool_name":"read","content":"done"}
        think: true
        options: {"num_predict":16000,"temperature":0.2}
    "#]],
    );
}

/// Words of another provider, of another model, or of calls that were never carried out are not sent.
#[test]
fn a_reply_of_somebody_else_is_told_plainly() {
    let native = |provider: &str, ids: &[&str]| {
        let ids = ids.iter().map(|id| (*id).into()).collect();
        let json = r#"[{"type":"thinking","thinking":"x","signature":"s"}]"#;
        Some(NativeReply { provider: provider.into(), json: json.into(), ids })
    };
    let cases = [
        native("openai:gpt-5", &["toolu_1"]),
        native("anthropic:claude-opus-4-8", &["toolu_1"]),
        native("anthropic:claude-sonnet-4-5", &["toolu_1", "toolu_2"]),
        None,
    ];
    for native in cases {
        let said = Message::Assistant { text: "".into(), calls: vec![call("c", "{}")], native };
        let messages = vec![user("Go."), said, result("c", "done", Vec::new(), false)];
        let mut request = request("anthropic:claude-sonnet-4-5", messages);
        request.thinking = Thinking::High;
        let body = Wire::Anthropic.body(&request, &WireOptions::default());
        let call = json!([{ "type": "tool_use", "id": "call00001", "name": "read", "input": {} }]);
        assert_eq!(body["messages"][1]["content"], call);
        assert_eq!(body["messages"][2]["content"][0]["tool_use_id"], "call00001");
        assert!(body.get("thinking").is_none(), "thinking cannot begin among calls");
    }
}

/// Which words say how much is thought, and whether a temperature goes with it.
#[test]
fn thinking_and_temperature_are_said_as_each_model_wants_it() {
    let cases = [
        (Wire::Anthropic, "https://api.anthropic.com", "claude-3-5-haiku-latest"),
        (Wire::Anthropic, "https://api.anthropic.com", "claude-sonnet-4-5-20250929"),
        (Wire::Anthropic, "https://api.anthropic.com", "claude-sonnet-4-6"),
        (Wire::Anthropic, "https://api.anthropic.com", "claude-opus-4-8"),
        (Wire::Responses, "https://api.openai.com/v1", "gpt-4.1"),
        (Wire::Responses, "https://api.openai.com/v1", "gpt-5-mini"),
        (Wire::Responses, "https://api.openai.com/v1", "gpt-5.2"),
        (Wire::Responses, "https://api.openai.com/v1", "o4-mini"),
        (Wire::Chat, "https://api.openai.com/v1", "gpt-4o"),
        (Wire::Chat, "https://api.openai.com/v1", "o3"),
        (Wire::Chat, "https://openrouter.ai/api/v1", "anthropic/claude-opus-4.8"),
        (Wire::Chat, "https://api.deepseek.com", "deepseek-v4-flash"),
        (Wire::Chat, "https://api.mistral.ai/v1", "mistral-large-latest"),
        (Wire::Chat, "http://127.0.0.1:8080/v1", "qwen3"),
        (Wire::Gemini, "", "gemini-2.0-flash"),
        (Wire::Gemini, "", "gemini-2.5-flash"),
        (Wire::Gemini, "", "gemini-2.5-pro"),
        (Wire::Gemini, "", "gemini-3-flash-preview"),
        (Wire::Gemini, "", "gemini-3-pro-preview"),
        (Wire::Ollama, "", "qwen3"),
        (Wire::Ollama, "", "gpt-oss:20b"),
    ];
    let mut table = String::new();
    for (wire, base_url, model) in cases {
        let options = WireOptions { base_url: base_url.into(), ..WireOptions::default() };
        let words = [Thinking::Off, Thinking::High].map(|thinking| chosen(wire, model, thinking, &options));
        writeln!(table, "{model}: {}", words.join(" or ")).unwrap();
    }
    expect![[r#"
        claude-3-5-haiku-latest: {"temperature":0.2} or {"temperature":0.2}
        claude-sonnet-4-5-20250929: {"temperature":0.2} or {"thinking":{"type":"enabled","budget_tokens":8000}}
        claude-sonnet-4-6: {"temperature":0.2} or {"thinking":{"type":"adaptive"},"output_config":{"effort":"high"}}
        claude-opus-4-8: {"temperature":0.2} or {"thinking":{"type":"adaptive","display":"summarized"},"output_config":{"effort":"high"}}
        gpt-4.1: {"temperature":0.2} or {"temperature":0.2}
        gpt-5-mini: {"include":["reasoning.encrypted_content"],"reasoning":{"effort":"minimal"}} or {"include":["reasoning.encrypted_content"],"reasoning":{"effort":"high","summary":"auto"}}
        gpt-5.2: {"include":["reasoning.encrypted_content"],"reasoning":{"effort":"none"}} or {"include":["reasoning.encrypted_content"],"reasoning":{"effort":"high","summary":"auto"}}
        o4-mini: {"include":["reasoning.encrypted_content"],"reasoning":{"effort":"low"}} or {"include":["reasoning.encrypted_content"],"reasoning":{"effort":"high","summary":"auto"}}
        gpt-4o: {"temperature":0.2} or {"temperature":0.2}
        o3: {"reasoning_effort":"low"} or {"reasoning_effort":"high"}
        anthropic/claude-opus-4.8: {"temperature":0.2} or {"reasoning":{"effort":"high"},"temperature":0.2}
        deepseek-v4-flash: {"thinking":{"type":"disabled"},"temperature":0.2} or {"thinking":{"type":"enabled"},"temperature":0.2}
        mistral-large-latest: {"temperature":0.2} or {"temperature":0.2}
        qwen3: {"temperature":0.2} or {"reasoning_effort":"high","temperature":0.2}
        gemini-2.0-flash: {"temperature":0.2} or {"temperature":0.2}
        gemini-2.5-flash: {"temperature":0.2,"thinkingConfig":{"thinkingBudget":0,"includeThoughts":false}} or {"temperature":0.2,"thinkingConfig":{"thinkingBudget":24576,"includeThoughts":true}}
        gemini-2.5-pro: {"temperature":0.2,"thinkingConfig":{"thinkingBudget":128,"includeThoughts":false}} or {"temperature":0.2,"thinkingConfig":{"thinkingBudget":24576,"includeThoughts":true}}
        gemini-3-flash-preview: {"temperature":0.2,"thinkingConfig":{"thinkingLevel":"minimal","includeThoughts":false}} or {"temperature":0.2,"thinkingConfig":{"thinkingLevel":"high","includeThoughts":true}}
        gemini-3-pro-preview: {"temperature":0.2,"thinkingConfig":{"thinkingLevel":"low","includeThoughts":false}} or {"temperature":0.2,"thinkingConfig":{"thinkingLevel":"high","includeThoughts":true}}
        qwen3: {"think":false,"temperature":0.2} or {"think":true,"temperature":0.2}
        gpt-oss:20b: {"think":"low","temperature":0.2} or {"think":"high","temperature":0.2}
    "#]].assert_eq(&table);
}

/// The words about thinking and temperature of a body.
fn chosen(wire: Wire, model: &str, thinking: Thinking, options: &WireOptions) -> String {
    let mut request = request(&format!("p:{model}"), vec![user("Hi.")]);
    request.thinking = thinking;
    let mut body = wire.body(&request, options);
    let body = body.as_object_mut().unwrap();
    let about =
        ["thinking", "output_config", "reasoning", "reasoning_effort", "include", "temperature", "think"];
    let nested = body.remove("generationConfig").or_else(|| body.remove("options"));
    body.retain(|key, _| about.contains(&key.as_str()));
    if let Some(Value::Object(mut nested)) = nested {
        nested.retain(|key, _| matches!(key.as_str(), "thinkingConfig" | "temperature"));
        body.extend(nested);
    }
    Value::Object(body.clone()).to_string()
}

#[test]
fn what_a_model_refused_is_left_out() {
    let omit = Omit { temperature: true, thinking: true, summary: true };
    for (wire, model) in [
        (Wire::Anthropic, "claude-opus-4-8"),
        (Wire::Responses, "gpt-5.2"),
        (Wire::Chat, "gpt-5.2"),
        (Wire::Gemini, "gemini-2.5-flash"),
        (Wire::Ollama, "qwen3"),
    ] {
        let options =
            WireOptions { base_url: wire.default_base_url().into(), omit, ..WireOptions::default() };
        assert_eq!(chosen(wire, model, Thinking::High, &options), "{}", "{model}");
    }
}

/// A schema that grows when it is followed costs a bounded time.
#[test]
fn a_schema_that_refers_to_itself_ends() {
    let properties: serde_json::Map<String, Value> =
        (0..20).map(|at| (format!("p{at}"), json!({ "$ref": "#/$defs/node" }))).collect();
    let schema = json!({
        "type": "object", "properties": { "root": { "$ref": "#/$defs/node" } },
        "$defs": { "node": { "type": "object", "properties": properties } }
    });
    let mut request = request("gemini:gemini-2.5-flash", vec![user("Hi.")]);
    request.tools = [tool("deep", schema)].into();
    let body = Wire::Gemini.body(&request, &WireOptions::default()).to_string();
    assert!(!body.contains("$ref") && body.len() < 1_000_000, "{} bytes", body.len());
}

#[test]
fn a_model_that_cannot_see_is_told_that_there_was_an_image() {
    let options = WireOptions { text_only: true, ..WireOptions::default() };
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Chat, Wire::Gemini, Wire::Ollama] {
        let body = wire.body(&request("p:m", past()), &options).to_string();
        assert!(!body.contains("AAAA") && body.matches("cannot see").count() == 2, "{wire:?}: {body}");
    }
}
