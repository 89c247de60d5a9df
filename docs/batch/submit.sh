#!/bin/bash
# Make one trace of a folder of reports on a shared file system: a job array extracts parts, then a job merges them.
#
#     docs/batch/submit.sh REPORTS [RUN]
#
# REPORTS is searched recursively. RUN is a new folder for parts, trace and logs, or that of an
# earlier call: complete parts are kept.
set -euo pipefail

reports=${1:?usage: submit.sh REPORTS [RUN]}
run=${2:-run}
tasks=${TASKS:-32} # at most; each processes its share of the reports
scripts=$(cd "$(dirname "$0")" && pwd)

mkdir -p "$run/parts"
find "$reports" -type f \( -name '*.nsys-rep' -o -name '*.sqlite' \) |
    sed 's|\.[^.]*$||' | sort -u > "$run/reports.txt" # a report and its export are one
count=$(wc -l < "$run/reports.txt")
[ "$count" -gt 0 ] || { echo "$reports holds no reports" >&2; exit 1; }

# A part is named like its report, and all parts are in one folder.
twice=$(sed 's|.*/||' "$run/reports.txt" | sort | uniq -d)
[ -z "$twice" ] || { echo "several reports have the same name: ${twice//$'\n'/, }" >&2; exit 1; }

[ "$count" -ge "$tasks" ] || tasks=$count
array=$(sbatch --parsable --array="0-$((tasks - 1))" --output="$run/%x-%A_%a.log" \
    "$scripts/extract.sbatch" "$run" "$tasks")
array=${array%%;*} # in a federation, the cluster's name follows
merge=$(sbatch --parsable --dependency="${AFTER:-afterany}:$array" --kill-on-invalid-dep=yes \
    --output="$run/%x-%j.log" "$scripts/merge.sbatch" "$run" "$count")
echo "$count reports: array $array extracts parts, then job ${merge%%;*} merges them; logs in $run/"
