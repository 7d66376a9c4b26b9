// Made from crates/wire/src/native by its tests (UPDATE_EXPECT=1 cargo test -p wire native). Do not edit.

export type Role = "viewer" | "approver" | "driver" | "owner";

export type Decision = "allowOnce" | "allowAlways" | "denyOnce" | "denyAlways" | "reply";

export type Picture = { mime: string, 
/**
 * Base64.
 */
data: string, };

export type Subscription = { endpoint: string, 
/**
 * Base64url.
 */
p256dh: string, 
/**
 * Base64url.
 */
auth: string, };

export type Request = { "do": "sessions", 
/**
 * Where the page before ended.
 */
before: string | null, 
/**
 * Words of titles and folders.
 */
search: string | null, } | { "do": "watch", session: string, after: number | null, } | { "do": "unwatch", session: string, } | { "do": "earlier", session: string, before: number, } | { "do": "whole", session: string, row: number, } | { "do": "offer", folder: string | null, } | { "do": "open", folder: string | null, settings: { [key in string]: string }, } | { "do": "prompt", session: string, 
/**
 * Made up by the client.
 */
key: string, text: string, pictures: Array<Picture>, } | { "do": "cancel", session: string, turn: number | null, } | { "do": "answer", session: string, ask: number, decision: Decision, 
/**
 * The reply to a question, or why something is denied.
 */
text: string | null, } | { "do": "set", session: string, setting: string, value: string, } | { "do": "rename", session: string, title: string, } | { "do": "delete", session: string, } | { "do": "changes", session: string, } | { "do": "keep", session: string, path: string, hunk: string | null, } | { "do": "revert", session: string, path: string, hunk: string | null, } | { "do": "find", session: string, text: string, } | { "do": "rules" } | { "do": "forget", rule: string, } | { "do": "devices" } | { "do": "invite", role: Role, } | { "do": "admit", knock: string, 
/**
 * Nothing refuses.
 */
role: Role | null, } | { "do": "revoke", device: string, } | { "do": "push", subscription: Subscription | null, } | { "do": "mute", until: number | null, } | { "do": "tryPush" } | { "do": "looking", at: string | null, visible: boolean, };

export type Envelope = { id: number, } & ({ "do": "sessions", 
/**
 * Where the page before ended.
 */
before: string | null, 
/**
 * Words of titles and folders.
 */
search: string | null, } | { "do": "watch", session: string, after: number | null, } | { "do": "unwatch", session: string, } | { "do": "earlier", session: string, before: number, } | { "do": "whole", session: string, row: number, } | { "do": "offer", folder: string | null, } | { "do": "open", folder: string | null, settings: { [key in string]: string }, } | { "do": "prompt", session: string, 
/**
 * Made up by the client.
 */
key: string, text: string, pictures: Array<Picture>, } | { "do": "cancel", session: string, turn: number | null, } | { "do": "answer", session: string, ask: number, decision: Decision, 
/**
 * The reply to a question, or why something is denied.
 */
text: string | null, } | { "do": "set", session: string, setting: string, value: string, } | { "do": "rename", session: string, title: string, } | { "do": "delete", session: string, } | { "do": "changes", session: string, } | { "do": "keep", session: string, path: string, hunk: string | null, } | { "do": "revert", session: string, path: string, hunk: string | null, } | { "do": "find", session: string, text: string, } | { "do": "rules" } | { "do": "forget", rule: string, } | { "do": "devices" } | { "do": "invite", role: Role, } | { "do": "admit", knock: string, 
/**
 * Nothing refuses.
 */
role: Role | null, } | { "do": "revoke", device: string, } | { "do": "push", subscription: Subscription | null, } | { "do": "mute", until: number | null, } | { "do": "tryPush" } | { "do": "looking", at: string | null, visible: boolean, });

export type Level = "info" | "warning" | "error";

export type StepState = "pending" | "running" | "done";

export type PlanStep = { text: string, state: StepState, };

export type Plan = { steps: Array<PlanStep>, };

export type DiffStatus = "new" | "gone" | "changed" | "opaque";

export type Hunk = { 
/**
 * Names the hunk, where it can be kept or taken back. Another content has another id.
 */
id: string | null, 
/**
 * The number of its first line, before and after; counted from 1.
 */
old: number, new: number, 
/**
 * Each with ` `, `-` or `+` before it, without its end.
 */
lines: Array<string>, };

export type Diff = { path: string, status: DiffStatus, added: number, removed: number, hunks: Array<Hunk>, 
/**
 * Lines that are not shown.
 */
more: number, };

export type ToolState = "running" | "done" | "failed" | "refused";

export type Tool = { call: string, tool: string, title: string, 
/**
 * `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `switchMode`, `other`.
 */
kind: string, state: ToolState, 
/**
 * Why it was refused.
 */
reason: string | null, 
/**
 * Who decided that it may run, where that was a person or an earlier answer of one.
 */
decided: string | null, 
/**
 * JSON, shortened.
 */
input: string, 
/**
 * The end of what it wrote; may have terminal colours in it.
 */
output: string, 
/**
 * Bytes of the output before that.
 */
more: number, diffs: Array<Diff>, 
/**
 * `path` or `path:line`.
 */
places: Array<string>, exit: number | null, signal: string | null, elapsedMs: number | null, };

export type Ended = { 
/**
 * `endTurn`, `maxTokens`, `maxTurnRequests`, `refusal`, `cancelled`, `failed`, `interrupted`.
 */
stop: string, error: string | null, elapsedMs: number, tools: number, 
/**
 * Files that were changed.
 */
files: number, costUsd: number | null, };

export type What = { "is": "prompt", 
/**
 * The name of the client it came from.
 */
from: string, text: string, 
/**
 * Bytes of the text that are not shown.
 */
more: number, 
/**
 * What else was in it, in words: `screen.png, 12 KB`.
 */
attached: Array<string>, } | { "is": "said", text: string, more: number, } | { "is": "thought", text: string, more: number, } | { "is": "tool" } & Tool | { "is": "plan" } & Plan | { "is": "question", text: string, reply: string | null, 
/**
 * Who settled it, `nobody` if nobody did.
 */
by: string | null, } | { "is": "notice", level: Level, text: string, } | { "is": "note", text: string, } | { "is": "ended" } & Ended;

export type Row = { 
/**
 * The position of its first event.
 */
id: number, 
/**
 * The position of its last change.
 */
rev: number, 
/**
 * When it began, in milliseconds since 1970.
 */
at: number, turn: number | null, 
/**
 * The row of the tool call whose sub-agent did this.
 */
under: number | null, } & ({ "is": "prompt", 
/**
 * The name of the client it came from.
 */
from: string, text: string, 
/**
 * Bytes of the text that are not shown.
 */
more: number, 
/**
 * What else was in it, in words: `screen.png, 12 KB`.
 */
attached: Array<string>, } | { "is": "said", text: string, more: number, } | { "is": "thought", text: string, more: number, } | { "is": "tool" } & Tool | { "is": "plan" } & Plan | { "is": "question", text: string, reply: string | null, 
/**
 * Who settled it, `nobody` if nobody did.
 */
by: string | null, } | { "is": "notice", level: Level, text: string, } | { "is": "note", text: string, } | { "is": "ended" } & Ended);

export type Append = { row: number, rev: number, text: string, };

export type Question = { text: string, choices: Array<string>, 
/**
 * Something else than the choices may be answered.
 */
freeText: boolean, };

export type AskView = { session: string, ask: number, at: number, 
/**
 * The row of the call that it is about.
 */
row: number | null, tool: string, title: string, kind: string, 
/**
 * `low`, `medium`, `high`, `critical`.
 */
risk: string, 
/**
 * Why it has this risk.
 */
reason: string, 
/**
 * What exactly would be allowed: a command's text, a file's path, an address.
 */
subject: string, folder: string, 
/**
 * JSON.
 */
input: string, 
/**
 * What would change.
 */
diffs: Array<Diff>, 
/**
 * Anything else that it shows.
 */
text: string, 
/**
 * The rule that an answer for good would write; without one it is kept for the same file, command or arguments.
 */
rule: string | null, 
/**
 * Bytes of all this that are not shown. Who decides must know.
 */
more: number, 
/**
 * Set if it is a question, and no permission.
 */
question: Question | null, };

export type CardState = "waiting" | "working" | "elsewhere" | "done" | "failed" | "empty";

export type KeptOf = { of: string, at: number, };

export type Card = { session: string, title: string | null, folder: string, 
/**
 * The door it first came through.
 */
source: string, createdAt: number, updatedAt: number, state: CardState, 
/**
 * The last thing that was said, in one line.
 */
line: string | null, costUsd: number | null, 
/**
 * What waits for a person, oldest first.
 */
asks: Array<AskView>, 
/**
 * It is what a hub keeps of another session, from before its machine's state was put back. Nobody goes on with it.
 */
branch?: KeptOf, };

export type Waiting = { turn: number, from: string, text: string, };

export type SettingChoice = { value: string, name: string, description: string, };

export type Setting = { id: string, name: string, description: string, value: string, choices: Array<SettingChoice>, };

export type SlashCommand = { 
/**
 * Without the slash.
 */
name: string, description: string, 
/**
 * What can follow it.
 */
hint: string | null, };

export type SessionState = { title: string | null, folder: string, busy: boolean, 
/**
 * The running turn, and when it began.
 */
turn: number | null, turnAt: number | null, 
/**
 * Prompts behind it.
 */
queue: Array<Waiting>, asks: Array<AskView>, plan: Plan | null, settings: Array<Setting>, commands: Array<SlashCommand>, contextUsed: number, 
/**
 * Nothing is known of it if it is 0.
 */
contextSize: number, costUsd: number | null, 
/**
 * Some of the cost is not known.
 */
unpriced: boolean, 
/**
 * The conversation is being summed up.
 */
compacting: boolean, 
/**
 * Other clients that look at the session, by name.
 */
others: Array<string>, };

export type View = { session: string, 
/**
 * Everything up to this position is told: what to come back with.
 */
upto: number, 
/**
 * The rows are all that the client should have: it forgets the others.
 */
reset: boolean, 
/**
 * With `reset`: there are rows before these.
 */
earlier: boolean, 
/**
 * New and changed rows, whole.
 */
rows: Array<Row>, appends: Array<Append>, 
/**
 * If it changed.
 */
state: SessionState | null, };

export type Hello = { version: string, 
/**
 * The name of the machine.
 */
host: string, role: Role, 
/**
 * This client's own device, if it came in by one.
 */
device: string | null, 
/**
 * What this client answers for good becomes a rule of the machine. Otherwise it holds in the session alone.
 */
makesRules: boolean, 
/**
 * The folder that sessions are opened in, and the others that may be named.
 */
folder: string, folders: Array<string>, sandbox: string, 
/**
 * The server's key for pushes, base64url; nothing if there are none here.
 */
pushKey: string | null, 
/**
 * The server's clock, in milliseconds since 1970.
 */
now: number, };

export type FoundFile = { 
/**
 * Below the session's folder.
 */
path: string, };

export type RuleView = { id: string, rule: string, 
/**
 * `allow`, `deny` or `ask`.
 */
effect: string, 
/**
 * Where it stands, in words.
 */
source: string, 
/**
 * It can be forgotten from here.
 */
forgettable: boolean, };

export type Device = { id: string, name: string, role: Role, createdAt: number, seenAt: number | null, 
/**
 * It is told when it does not look.
 */
push: boolean, mutedUntil: number | null, };

export type Knock = { id: string, 
/**
 * What the device calls itself.
 */
name: string, role: Role, 
/**
 * Two words that stand on both screens.
 */
words: string, };

export type Invitation = { 
/**
 * With the code after `#`, so that it stands in no log.
 */
url: string, 
/**
 * The same, to be typed.
 */
code: string, expiresAt: number, 
/**
 * The QR code of the address: rows of `0` and `1`.
 */
qr: Array<string>, };

export type Wrong = { 
/**
 * `notFound`, `forbidden`, `badRequest`, `stale`, `busy`, `answered`, `failed`.
 */
code: string, 
/**
 * For a person: what is wrong, and what can be done.
 */
message: string, };

export type Answered = { "is": "done" } | { "is": "sessions", cards: Array<Card>, 
/**
 * What continues the list, if there is more.
 */
older: string | null, } | { "is": "rows", rows: Array<Row>, 
/**
 * There are rows before these.
 */
earlier: boolean, } | { "is": "offer", folder: string, settings: Array<Setting>, commands: Array<SlashCommand>, } | { "is": "opened", session: string, } | { "is": "taken", turn: number, } | { "is": "changes", files: Array<Diff>, } | { "is": "files", files: Array<FoundFile>, } | { "is": "rules", rules: Array<RuleView>, } | { "is": "devices", devices: Array<Device>, knocks: Array<Knock>, } | { "is": "invited" } & Invitation;

export type Reply = { re: number, ok?: Answered, error?: Wrong, };

export type Told = { "on": "hello" } & Hello | { "on": "cards", cards: Array<Card>, gone: Array<string>, 
/**
 * What continues the list, said the first time.
 */
older: string | null, } | { "on": "view" } & View | { "on": "faults", faults: Array<string>, } | { "on": "over", session: string, message: string, } | { "on": "devices", devices: Array<Device>, knocks: Array<Knock>, };

export type Frame = Reply | Told;

export type HubRequest = { "do": "at", machine: string, request: Request, } | { "do": "sealed", machine: string, session: string | null, sealed: string, } | { "do": "machines" } | { "do": "forgetMachine", machine: string, } | { "do": "share", session: string, role: Role, 
/**
 * Milliseconds since 1970.
 */
until: number, } | { "do": "shares", session: string, } | { "do": "unshare", share: string, } | { "do": "tokens" } | { "do": "makeToken", name: string, 
/**
 * Milliseconds since 1970; for ever without.
 */
until: number | null, } | { "do": "dropToken", token: string, } | { "do": "people" } | { "do": "invitePerson", name: string, admin: boolean, } | { "do": "removePerson", person: string, } | { "do": "passkeys" } | { "do": "dropPasskey", passkey: string, };

export type MachineView = { id: string, name: string, version: string, sealed: boolean, 
/**
 * It is mine, and not only shared with me.
 */
own: boolean, 
/**
 * It holds a socket to the hub.
 */
here: boolean, 
/**
 * When it was last heard of.
 */
seenAt: number, 
/**
 * The sessions of it that I see.
 */
sessions: Array<string>, };

export type ShareView = { id: string, session: string, role: Role, createdAt: number, until: number, 
/**
 * How many came in by it.
 */
uses: number, };

export type TokenView = { id: string, name: string, createdAt: number, until: number | null, usedAt: number | null, };

export type PersonView = { id: string, name: string, admin: boolean, createdAt: number, seenAt: number | null, passkeys: number, };

export type PasskeyView = { id: string, name: string, createdAt: number, usedAt: number | null, };

export type HubAnswered = { "is": "machines", machines: Array<MachineView>, } | { "is": "shared", url: string, share: ShareView, } | { "is": "shares", shares: Array<ShareView>, } | { "is": "tokens", tokens: Array<TokenView>, } | { "is": "token", secret: string, token: TokenView, } | { "is": "people", people: Array<PersonView>, } | { "is": "invitedPerson", url: string, expiresAt: number, } | { "is": "passkeys", passkeys: Array<PasskeyView>, };

export type HubTold = { "on": "at", 
/**
 * Nobody, for who came by a link to one session.
 */
person: PersonView | null, 
/**
 * The only session that can be seen, for who came by a link.
 */
session: string | null, until: number | null, } | { "on": "machines", machines: Array<MachineView>, } | { "on": "sealedView", session: string, machine: string, from: number | null, upto: number, sealed: string, 
/**
 * The session that it was sealed for, if this one is what is kept of that.
 */
of?: string, } | { "on": "sealedCard", session: string, machine: string, state: CardState, asks: Array<number>, updatedAt: number, sealed: string, branch?: KeptOf, } | { "on": "key", machine: string, generation: number, device: string, key: string, } | { "on": "sealedReply", re: number, sealed: string, };
