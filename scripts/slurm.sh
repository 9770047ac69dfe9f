#!/usr/bin/env bash
# A cluster of this machine alone, on which srun starts three processes of a script: they end as one process does.
#
#   scripts/slurm.sh        as root on Debian, with MPICH beside Python (PYTHON=python3)
#
# Debian's Slurm and munge are installed unless they are there. What is started is ended again.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
command -v srun slurmctld slurmd munged >/dev/null ||
  apt-get install -y -q --no-install-recommends slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge

folder=$(mktemp -d)
trap 'kill $(cat "$folder"/*.pid) 2>/dev/null || true; sleep 2; rm -rf "$folder"' EXIT
host=$(hostname -s)
export SLURM_CONF=$folder/slurm.conf PUREGRAPH_DEVICE=cpu PYTHONPATH=$PWD/tests/lib
cat >"$SLURM_CONF" <<END
ClusterName=trial
SlurmctldHost=$host
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
NodeName=$host CPUs=$(nproc)
PartitionName=all Nodes=ALL Default=YES State=UP
END
mkdir "$folder/state" "$folder/spool"
mkdir -p /run/munge && chown munge /run/munge
[ -f /etc/munge/munge.key ] || mungekey -c
pidof munged >/dev/null || runuser -u munge -- munged
slurmctld
slurmd

cat >"$folder/train.py" <<END
import recipes

print("hash", recipes.outcome("perceptron"))
END
alone=$("$python" "$folder/train.py")
found=$(srun --mpi=pmi2 -n 3 --overcommit "$python" -m puregraph.distributed "$folder/train.py" | sort -u)
[ "$found" = "$alone" ] || { echo "one process ends with $alone, three of srun with: $found"; exit 1; }
echo "three processes of srun end as one does: $alone"
