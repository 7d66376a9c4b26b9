// Folds a stream of session updates into what a person would have seen at the end.
//
// A replay may cut text into other chunks than the live stream did, and may send a tool call
// in one piece instead of several: both are the same history. So two streams are compared
// after folding, where only the contents and their order remain.

const TEXT_KINDS = new Set(["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"]);
const TOOL_FIELDS = ["title", "kind", "status", "content", "locations", "rawInput", "rawOutput"];

/**
 * @param {object[]} updates `params.update` objects in the order of arrival
 * @returns {object[]} messages, tool calls and plans in the order of their first appearance
 */
export function fold(updates) {
  const items = [];
  const tools = new Map();
  let plan;
  for (const update of updates) {
    const kind = update.sessionUpdate;
    if (TEXT_KINDS.has(kind)) {
      addText(items, kind, update);
    } else if (kind === "tool_call" || kind === "tool_call_update") {
      let tool = tools.get(update.toolCallId);
      if (!tool) {
        tool = { tool: update.toolCallId };
        tools.set(update.toolCallId, tool);
        items.push(tool);
      }
      for (const field of TOOL_FIELDS) {
        if (update[field] !== undefined && update[field] !== null) tool[field] = update[field];
      }
    } else if (kind === "plan") {
      // Each plan replaces the one before it.
      if (!plan) items.push((plan = {}));
      plan.plan = update.entries;
    }
  }
  return items;
}

function addText(items, kind, update) {
  const last = items.at(-1);
  const text = update.content.type === "text" ? update.content.text : JSON.stringify(update.content);
  const sameMessage = last?.message === kind && last.id === update.messageId;
  if (sameMessage) last.text += text;
  else items.push({ message: kind, id: update.messageId, text });
}

/** The history without message ids and without what the user said: those are compared apart. */
export function answers(updates) {
  return fold(updates)
    .filter((item) => item.message !== "user_message_chunk")
    .map(({ id, ...item }) => item);
}

/** What the user said, message by message. */
export function questions(updates) {
  return fold(updates)
    .filter((item) => item.message === "user_message_chunk")
    .map((item) => item.text);
}
