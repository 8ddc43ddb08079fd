#!/usr/bin/env bash
# Plays the best agent the server has on one task and prints the grade.
# usage: validation/oracle.sh [BASE_URL] [TASK_ID] [SEED]
set -euo pipefail
url=${1:-http://127.0.0.1:8000} task=${2:-static_workload} seed=${3:-42}
post() { curl --fail --silent --show-error --header 'content-type: application/json' --data "$2" "$url$1"; }
session="oracle-$task-$seed-$$"
post /reset "{\"task_id\": \"$task\", \"seed\": $seed, \"session_id\": \"$session\"}" >/dev/null
agents=$(curl --fail --silent --show-error "$url/agents?task_id=$task")
agent=heuristic
for name in tuned ppo; do
    if grep --quiet "\"name\":\"$name\",\"is_available\":true" <<<"$agents"; then agent=$name; fi
done
post /play "{\"session_id\": \"$session\", \"agent\": \"$agent\", \"steps\": 200}" >/dev/null
printf '%s: %s\n' "$agent" "$(post /grader "{\"session_id\": \"$session\"}")"
