#!/usr/bin/env bash
# The whole suite on a GPU. Where there is none: the reason, the word skipped, and success.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$(command -v python || command -v python3)}

why=$(PUREGRAPH_DEVICE=auto "$python" -c "from puregraph import device; print(device.reason())")
if [[ $why != cuda* ]]; then
    echo "skipped: $why"
    exit 0
fi
echo "$why"
if ! "$python" -c "import puregraph.models" 2>/dev/null; then
    "$python" -m pip install -q --no-deps -e .
fi
PUREGRAPH_DEVICE=cuda exec "$python" -m pytest "$@"
