#!/bin/bash
# Start a real Slurm with two nodes on this machine, in a folder of its own, as the current user.
#
#     tests/tools/start_slurm.sh FOLDER
#
# For tests only. It prints the path of a `slurm.conf` once both nodes are ready: with `SLURM_CONF` set to
# that, sbatch and srun are this Slurm's. It listens on the loopback alone, and runs until its standard
# input ends or it is terminated; then all that it started has ended, too. Each node gives its jobs a
# TMPDIR of its own, as if it had a disk of its own. Where it cannot work it says why and ends with status 3.
#
# Debian's packages slurmctld, slurmd and slurm-client (22.05) are enough: no systemd, no cgroups, no munge.
set -euo pipefail

folder=${1:?usage: start_slurm.sh FOLDER}

fail() {
    echo "start_slurm: $1" >&2
    exit 3
}

PATH=$PATH:/usr/sbin
for program in slurmctld slurmd sbatch srun sinfo; do
    command -v "$program" > /dev/null || fail "no $program here: apt-get install slurmctld slurmd slurm-client"
done
mkdir -p "$folder"/{state,node1,node2}
folder=$(cd "$folder" && pwd)

read -r -a ports < <(python3 -c '
import socket
free = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(one.getsockname()[1] for one in free))
for one in free:
    one.close()')

cat > "$folder/slurm.conf" << END
ClusterName=local
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=${ports[0]}
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$folder/prolog
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
MailProg=/bin/true
NodeName=node1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[1]} CPUs=8 RealMemory=64000
NodeName=node2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[2]} CPUs=8 RealMemory=64000
PartitionName=all Nodes=ALL Default=YES
END
cat > "$folder/prolog" << END
#!/bin/sh
mkdir -p "$folder/\$SLURMD_NODENAME/tmp"
echo "export TMPDIR=$folder/\$SLURMD_NODENAME/tmp"
END
chmod +x "$folder/prolog"

export SLURM_CONF=$folder/slurm.conf
daemons=()
trap 'kill "${daemons[@]}" 2> /dev/null || true; wait' EXIT
trap 'exit 0' TERM INT
start() {
    "${@:2}" > "$folder/$1.out" 2>&1 < /dev/null &
    daemons+=($!)
}
start slurmctld slurmctld -D -i
start node1 slurmd -D -N node1
start node2 slurmd -D -N node2

for _ in $(seq 300); do
    kill -0 "${daemons[@]}" 2> /dev/null || fail "a daemon ended: $(tail -n 3 "$folder"/*.out)"
    [ "$(sinfo --noheader --states=idle --format=%D 2> /dev/null)" = 2 ] && break
    sleep 0.1
done
[ "$(sinfo --noheader --states=idle --format=%D)" = 2 ] || fail "the nodes are not ready after 30 s: $(sinfo 2>&1)"
echo "$SLURM_CONF"

# Bash acts upon a signal while it waits for a process in the background, not for one in the foreground.
exec 3<&0
cat <&3 > /dev/null &
daemons+=($!)
wait $!
