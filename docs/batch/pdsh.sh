#!/bin/bash
# Make one trace of reports on the local disks of several hosts with a shared file system for the parts.
#
#     docs/batch/pdsh.sh REPORTS RUN HOSTS
#
# REPORTS is the folder on each host, RUN a folder with the same path on all hosts, HOSTS e.g. node[01-16].
set -euo pipefail

[ $# = 3 ] || { echo "usage: pdsh.sh REPORTS RUN HOSTS" >&2; exit 2; }
reports=$1 hosts=$3
mkdir -p "$2/parts"
run=$(cd "$2" && pwd)

failed=0
pdsh -R ssh -S -w "$hosts" "nsys-pp extract '$reports' -o '$run/parts' --keep-going --processes auto" || failed=$?
nsys-pp merge "$run/parts" -o "$run/run.pftrace" --force --keep-going --result "$run/merge.json" || failed=$?
exit "$failed"
