"""Judges frames that an ACP agent sent, by the official JSON schema.

The schema files come with the official TypeScript SDK that `cargo xtask setup` installs,
so the rules are the protocol authors' own and nothing is copied here. Stable methods are
judged by the stable schema. What the stable schema does not know but the unstable one does
is allowed only if UNSTABLE_IN_USE names it: an unstable field is a decision, not an accident.

The schema allows additional properties nearly everywhere, while the protocol's text forbids
custom fields outside `_meta`. Hence the second walk in `unknown_keys`.
"""

import functools
import json
import pathlib

from jsonschema import Draft202012Validator

SCHEMA_FOLDER = (
    pathlib.Path(__file__).parent / "ts" / "node_modules" / "@agentclientprotocol" / "sdk" / "schema" / "v1"
)

# Unstable parts of the protocol that the server sends on purpose: method, then the path in the payload.
UNSTABLE_IN_USE = {
    ("session/prompt", "usage"),
    ("initialize", "agentCapabilities.sessionCapabilities.fork"),
}

ERROR_KEYS = {"code", "message", "data"}


class Schema:
    def __init__(self, name):
        path = SCHEMA_FOLDER / name
        if not path.exists():
            raise SystemExit(f"{path} is missing; run `cargo xtask setup`")
        self.root = json.loads(path.read_text(encoding="utf-8"))
        self.definitions = self.root["$defs"]
        self.by_method = {}
        for definition, body in self.definitions.items():
            method = body.get("x-method")
            if method:
                for kind in ("Request", "Response", "Notification"):
                    if definition.endswith(kind):
                        self.by_method.setdefault((kind, method), definition)

    def definition_for(self, kind, method):
        return self.by_method.get((kind, method))

    @functools.lru_cache(maxsize=None)
    def validator(self, definition):
        return Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": self.definitions})

    def violations(self, definition, payload):
        return [
            f"{error.json_path}: {error.message[:300]}"
            for error in self.validator(definition).iter_errors(payload)
        ]

    def unknown_keys(self, definition, payload):
        """Dotted paths of object keys that no matching branch of the schema declares."""
        found = []
        self._walk({"$ref": f"#/$defs/{definition}"}, payload, "", found)
        return found

    def _walk(self, schema, value, path, found):
        if isinstance(value, list):
            for branch in self._branches(schema, value):
                items = branch.get("items")
                if isinstance(items, dict):
                    for entry in value:
                        self._walk(items, entry, path, found)
                    return
            return
        if not isinstance(value, dict):
            return
        declared = {}
        for branch in self._branches(schema, value):
            if branch.get("additionalProperties") not in (None, False):
                return  # A free-form map: any key is one of its entries.
            for key, inner in branch.get("properties", {}).items():
                declared.setdefault(key, inner)
        if not declared:
            return
        for key, inner_value in value.items():
            here = f"{path}.{key}" if path else key
            if key == "_meta":
                continue
            if key not in declared:
                found.append(here)
            elif isinstance(declared[key], dict):
                self._walk(declared[key], inner_value, here, found)

    def _branches(self, schema, value):
        """The schema with its references followed, and of alternatives those that fit the value."""
        if not isinstance(schema, dict):
            return
        yield schema
        reference = schema.get("$ref", "")
        if reference.startswith("#/$defs/"):
            yield from self._branches(self.definitions[reference.removeprefix("#/$defs/")], value)
        for part in schema.get("allOf", []):
            yield from self._branches(part, value)
        for part in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
            if Draft202012Validator({**part, "$defs": self.definitions}).is_valid(value):
                yield from self._branches(part, value)


@functools.lru_cache(maxsize=None)
def stable():
    return Schema("schema.json")


@functools.lru_cache(maxsize=None)
def unstable():
    return Schema("schema.unstable.json")


def check_payload(kind, method, payload):
    """Problems of a params or result object of the agent; kind is Request, Response or Notification."""
    definition = stable().definition_for(kind, method)
    judge = stable()
    if definition is None:
        definition = unstable().definition_for(kind, method)
        judge = unstable()
    if definition is None:
        if method.startswith("_"):
            return []
        return [f"{method} is not a {kind.lower()} of the protocol"]
    problems = judge.violations(definition, payload)
    problems += unstable().violations(definition, payload) if judge is stable() else []
    for key in judge.unknown_keys(definition, payload):
        if (method, key) in UNSTABLE_IN_USE:
            continue
        in_unstable = key not in unstable().unknown_keys(definition, payload)
        reason = "is unstable and not listed as in use" if in_unstable else "is not a field of the protocol"
        problems.append(f"{key} {reason}")
    return sorted(set(problems))


def check_error(error):
    if not isinstance(error, dict):
        return ["error is not an object"]
    problems = []
    if not isinstance(error.get("code"), int) or isinstance(error.get("code"), bool):
        problems.append("error.code is not an integer")
    if not isinstance(error.get("message"), str) or not error.get("message"):
        problems.append("error.message is not a text")
    problems += [f"error.{key} is not a field of an error" for key in error.keys() - ERROR_KEYS]
    return problems


class Conversation:
    """Follows one connection and judges each of the agent's frames in its context."""

    def __init__(self):
        self.open_requests = {}
        self.answered = set()
        self.counts = {}

    def client_frame(self, frame):
        if isinstance(frame, dict) and "method" in frame and "id" in frame:
            self.open_requests[json.dumps(frame["id"])] = frame["method"]

    def agent_frame(self, frame):
        """Returns the problems of a frame that the agent sent."""
        if not isinstance(frame, dict):
            return ["the frame is not an object"]
        problems = []
        if frame.get("jsonrpc") != "2.0":
            problems.append('jsonrpc is not "2.0"')
        if "method" in frame:
            kind = "Request" if "id" in frame else "Notification"
            self._count(f"{kind.lower()} {frame['method']}")
            known = {"jsonrpc", "id", "method", "params"}
            if frame["method"] != "$/cancel_request":
                problems += check_payload(kind, frame["method"], frame.get("params"))
        else:
            known = {"jsonrpc", "id", "result", "error"}
            problems += self._response(frame)
        problems += [f"{key} is not a member of a frame" for key in frame.keys() - known]
        return problems

    def _response(self, frame):
        if "id" not in frame:
            return ["a response without an id"]
        if ("result" in frame) == ("error" in frame):
            return ["a response needs exactly one of result and error"]
        key = json.dumps(frame["id"])
        method = self.open_requests.pop(key, None)
        if method is None and frame["id"] is not None:
            again = " again" if key in self.answered else ""
            return [f"id {key} was answered{again} without an open request"]
        self.answered.add(key)
        if "error" in frame:
            self._count(f"error to {method}")
            return check_error(frame["error"])
        self._count(f"response to {method}")
        return check_payload("Response", method, frame["result"])

    def _count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1
