#!/bin/bash
# Make one trace of reports on the local disks of several hosts. Only parts are copied.
#
#     docs/batch/ssh.sh REPORTS RUN HOST...
#
# REPORTS is the folder on each host, RUN a local folder. Each host needs nsys-pp.
set -euo pipefail

[ $# -ge 3 ] || { echo "usage: ssh.sh REPORTS RUN HOST..." >&2; exit 2; }
reports=$1 run=$2
shift 2
mkdir -p "$run"

# The parts remain on the host, so that the next call keeps complete ones. nsys-pp writes its log to stderr:
# stdout is free for the archive.
remote="mkdir -p '$reports/parts'
        nsys-pp extract '$reports' -o '$reports/parts' --keep-going --processes auto; status=\$?
        tar -C '$reports/parts' --exclude='./.*' -cf - . && exit \$status"
pids=()
for host in "$@"; do
    mkdir -p "$run/parts/$host"
    # shellcheck disable=SC2029 # expanded here on purpose
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
