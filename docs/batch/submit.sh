#!/bin/bash
# Make one trace of a folder of reports that all nodes see: a job array makes parts, then a job merges them.
#
#     docs/batch/submit.sh REPORTS [RUN]
#
# REPORTS is searched with all that is below it. RUN is a new folder for parts, trace and logs, or that of an
# earlier call: parts that are finished are not made again.
set -euo pipefail

reports=${1:?usage: submit.sh REPORTS [RUN]}
run=${2:-run}
tasks=${TASKS:-32} # at most; each takes its share of the reports
scripts=$(cd "$(dirname "$0")" && pwd)

mkdir -p "$run/parts"
find "$reports" -type f \( -name '*.nsys-rep' -o -name '*.sqlite' \) |
    sed 's|\.[^.]*$||' | sort -u > "$run/reports.txt" # a report and its export are one
count=$(wc -l < "$run/reports.txt")
[ "$count" -gt 0 ] || { echo "$reports holds no reports" >&2; exit 1; }

# A part is named like its report, and all parts lie in one folder.
twice=$(sed 's|.*/||' "$run/reports.txt" | sort | uniq -d)
[ -z "$twice" ] || { echo "several reports have one name: ${twice//$'\n'/, }" >&2; exit 1; }

[ "$count" -ge "$tasks" ] || tasks=$count
array=$(sbatch --parsable --array="0-$((tasks - 1))" --output="$run/%x-%A_%a.log" \
    "$scripts/extract.sbatch" "$run" "$tasks")
array=${array%%;*} # where several clusters are one, its name follows
merge=$(sbatch --parsable --dependency="${AFTER:-afterany}:$array" --kill-on-invalid-dep=yes \
    --output="$run/%x-%j.log" "$scripts/merge.sbatch" "$run" "$count")
echo "$count reports: array $array makes parts, then job ${merge%%;*} merges them; logs in $run/"
