#!/bin/bash
# All segments of a plan on this machine, some at a time, with GNU parallel, or with xargs where there is none:
#
#   pahs plan film.mp4 -o sharp
#   examples/parallel.sh sharp/plan.jsonl 2
#
# With --sshloginfile GNU parallel uses other machines as well, if they see the folder.
set -euo pipefail
manifest=$1 jobs=$2
last=$(($(pahs run "$manifest" --count) - 1))
if command -v parallel >/dev/null; then
    seq 0 "$last" | parallel --halt soon,fail=1 -j "$jobs" pahs run "$manifest" --segment {}
else
    seq 0 "$last" | xargs -P "$jobs" -n 1 pahs run "$manifest" --segment
fi
pahs run "$manifest" --join
