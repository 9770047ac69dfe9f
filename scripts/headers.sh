#!/usr/bin/env bash
# Whether what an extra installs compiles kernels on a machine without any CUDA toolkit: scripts/headers.sh [cuda13]
# Needs Linux and root, to hide the toolkits that there are; no GPU. Libraries of the extra that compile nothing are left out.
set -euo pipefail
cd "$(dirname "$0")/.."
family="${1:-cuda13}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

wanted=$(python3 - "$family" <<'PYTHON'
import re, sys
extra = re.search(rf'"{sys.argv[1]}": \[(.*?)\]', open("setup.py").read(), re.S)[1]
print("\n".join(name for name in re.findall(r'^\s*"(.+?)"', extra, re.M) if re.match("cupy|nvidia-cuda-", name)))
PYTHON
)
python3 -m venv "$folder/venv"
echo "$wanted" | "$folder/venv/bin/pip" install -q -r /dev/stdin

unshare -m bash -c '
    for each in /usr/local/cuda*; do [ -d "$each" ] && mount -t tmpfs none "$each"; done
    env -u CUDA_PATH -u CUDA_HOME "$0" -' "$folder/venv/bin/python" <<'PYTHON'
from cuda.pathfinder import find_nvidia_header_directory  # by which CuPy finds them
from cupy.cuda import nvrtc

text = '#include <cuda_fp16.h>\nextern "C" __global__ void f(float* x) { x[0] = __half2float(__float2half(x[0])); }'
root = find_nvidia_header_directory("cudart")
program = nvrtc.createProgram(text, "f.cu", (), ())
try:
    nvrtc.compileProgram(program, ("--gpu-architecture=compute_90", f"-I{root}"))
except Exception:
    raise SystemExit(f"cannot compile with the headers in {root}: {nvrtc.getProgramLog(program)}")
print("kernels compile with the headers of", root)
PYTHON
