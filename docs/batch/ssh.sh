#!/bin/bash
# Make one trace of reports that lie on the disks of several hosts. Only parts travel.
#
#     docs/batch/ssh.sh REPORTS RUN HOST...
#
# REPORTS is the folder on each host, RUN one here. Each host needs nsys-pp.
set -euo pipefail

[ $# -ge 3 ] || { echo "usage: ssh.sh REPORTS RUN HOST..." >&2; exit 2; }
reports=$1 run=$2
shift 2
mkdir -p "$run"

# The parts stay on the host, where the next call finds those that are finished. nsys-pp says all that it says
# on stderr, so stdout is free for what travels.
remote="mkdir -p '$reports/parts'
        nsys-pp extract '$reports' -o '$reports/parts' --keep-going --processes auto; status=\$?
        tar -C '$reports/parts' -cf - . && exit \$status"
pids=()
for host in "$@"; do
    mkdir -p "$run/parts/$host"
    # shellcheck disable=SC2029 # the words are put together here
    { ssh -n "$host" "$remote" | tar -C "$run/parts/$host" -xf -; } 2> "$run/$host.log" &
    pids+=($!)
done

failed=0
for host in "$@"; do
    wait "${pids[0]}" || { failed=1; tail -n 3 "$run/$host.log" | sed "s/^/$host: /" >&2; }
    pids=("${pids[@]:1}")
done
nsys-pp merge "$run/parts" -o "$run/run.pftrace" --force --keep-going --result "$run/merge.json" || failed=$?
exit "$failed"
