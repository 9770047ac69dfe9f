"""A stub driver: a libcuda.so.1 that lets cuDNN compile its kernels on a machine without a GPU.

    python scripts/stubcuda.py FOLDER

Every function of the driver is there. Those that load kernels say that they did; the others fail. It is for planning
alone, in a process that has FOLDER in LD_LIBRARY_PATH: where there is a GPU, it would hide it.
"""

import re
import subprocess
import sys
from pathlib import Path

from puregraph.ops.cuda.libraries import paths

CALL = re.compile(r"\b(cu[A-Z]\w+)\s*\(")
RENAMED = re.compile(r"#define\s+cu[A-Z]\w+\s+(?:__CUDA_API_PT[DS]S?Z?\()?(cu[A-Z]\w+?)\)?\s*$", re.M)
MAKES = (
    "cuLibraryLoadData cuLibraryGetKernel cuLibraryGetModule cuKernelGetFunction cuModuleLoadData cuModuleLoadDataEx "
    "cuModuleGetFunction"
)
SUCCEEDS = "cuLibraryUnload cuModuleUnload cuKernelSetAttribute cuFuncSetAttribute"
TELLS = "cuKernelGetAttribute cuFuncGetAttribute"
BODIES = {
    **dict.fromkeys(MAKES.split(), "(void **made) { *made = (void *)4096; return 0; }"),
    **dict.fromkeys(SUCCEEDS.split(), "(void) { return 0; }"),
    **dict.fromkeys(TELLS.split(), "(int *value) { *value = 0; return 0; }"),
    "cuDriverGetVersion": "(int *version) { *version = 13000; return 0; }",
    "cuInit": "(unsigned flags) { return 100; }",
    "cuGetErrorString": '(int error, const char **text) { *text = "there is no driver"; return 0; }',
    "cuGetErrorName": '(int error, const char **text) { *text = "CUDA_ERROR_STUB_LIBRARY"; return 0; }',
}
FAILS = "(void) { return 34; }"


def header():
    """The driver's header, of NVIDIA's wheel or of a toolkit."""
    candidates = [Path(folder).parent / "include" / "cuda.h" for folder in paths.folders()]
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        sys.exit("no cuda.h was found: pip install nvidia-cuda-runtime brings it")
    return found.read_text()


def build(folder):
    """Write and compile it; the number of its functions."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = header()
    names = sorted({*CALL.findall(text), *RENAMED.findall(text), *BODIES})
    source = folder / "stub.c"
    source.write_text("\n".join(f"int {name}{BODIES.get(name, FAILS)}" for name in names))
    made = str(folder / "libcuda.so.1")
    options = ["-shared", "-fPIC", "-w", "-fno-builtin", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *options, "-o", made, str(source)], check=True)
    return len(names)


if __name__ == "__main__":
    print(f"{build(sys.argv[1])} functions in {sys.argv[1]}/libcuda.so.1")
