#!/bin/sh
# Makes a state folder with a given ropewalk, and lists the flags, settings and metrics of that version, for
# tests/it/version_before.rs.
# usage: make.sh PROGRAM FOLDER
set -eu
program=$(realpath "$1")
folder=$2
project=/srv/walrus
mkdir -p "$folder/state" "$project"
folder=$(realpath "$folder")

run() { (cd "$project" && env -i PATH="$PATH" HOME=/nonexistent ROPEWALK_HOME="$folder/state" ROPEWALK_OFFLINE=1 "$program" "$@"); }

cat > "$folder/state/config.toml" <<'TOML'
approval = "auto"
approval_max = "auto"
ask_timeout = 30
command_timeout = 60
sandbox = "workspace-write"

[acp]
max_sessions = 7
session_idle_timeout_secs = 900
agent_name = "walrus"

[bridge]
replay_window = 40

[mcp.servers.notes]
command = "notes-server"
args = ["--quiet"]
TOML
run permissions add deny 'read(.env)'
run permissions add ask 'shell(git push:*)'
run permissions add allow 'shell(cargo test:*)' --here
run run 'think of the walrus'
run run --continue 'write notes.txt: a walrus'
run run --continue 'edit notes.txt: walrus => seal'
run run --continue 'run rm -rf notes.txt' || true
session=$(run sessions list --json | sed 's/.*"sessions":\[{"id":"\([^"]*\)".*/\1/')
run sessions fork "$session"
run audit verify

# Every command with its long flags, one line each.
commands() {
    "$program" "$@" --help | sed -n 's/^ \{2,6\}\(-., \)\{0,1\}\(--[a-z][a-z0-9-]*\).*/\2/p' | sort -u | sed "s|^|$*|; s|--| --|; s|^ ||"
    "$program" "$@" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' | grep -v '^help$' | while read -r inner; do
        commands "$@" "$inner"
    done
}
commands > "$folder/flags.txt"
run config show --json | tr ',' '\n' | sed -n 's/.*{"name":"\([^"]*\)".*/\1/p' | sort -u > "$folder/settings.txt"

# The metrics of a server that has just started.
export ROPEWALK_SERVER_TOKEN=a-token-for-this-list-alone-0123456789
(cd "$project" && ROPEWALK_HOME="$folder/server" ROPEWALK_OFFLINE=1 exec "$program" serve --http 127.0.0.1:0) 2> "$folder/log" < /dev/null &
server=$!
until address=$(grep -o 'http://127[^ ]*' "$folder/log"); do sleep 0.05; done
curl -s -H "authorization: Bearer $ROPEWALK_SERVER_TOKEN" "$address/metrics" |
    sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' | sort -u > "$folder/metrics.txt"
kill "$server"
wait "$server" || true
rm -rf "$project" "$folder/log" "$folder/server" "$folder/state/undo" "$folder/state/owners"
# The audit's mark is named after the folder that it is about, so a copy has none.
rm -f "$folder"/state/audit.key.*.mark "$folder/state/state.lock" "$folder/state/audit/lock" "$folder"/state/sessions.db-*
