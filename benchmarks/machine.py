"""What this process and this machine are: processors, versions, memory, and how busy it is."""

import os
import platform
import re
import subprocess
import time
from importlib import metadata
from pathlib import Path

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")
VECTORS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")
GPUPACKAGES = ("puregraph", "numpy", "cupy-cuda12x", "cupy-cuda13x", "nvidia-cudnn-frontend", "torch", "triton", "jax")
PACKAGES = ("puregraph", "numpy", "llvmlite", "torch", "jax", "jaxlib", "onnxruntime")


def processor():
    """The name of the processor, how many of it there are, and the vector instructions that it has."""
    text = Path("/proc/cpuinfo").read_text()
    facts = dict(re.findall(r"^([^\t\n]+?)\s*: (.*)$", text, re.M))
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    found = [flag for flag in VECTORS if flag in flags]
    model = f", family {facts['cpu family']} model {facts['model']}" if "cpu family" in facts else ""
    return f"{os.cpu_count()} x {facts.get('model name', platform.machine())}{model} ({' '.join(found)})"


def memory():
    """The memory of the whole machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def versions(packages=PACKAGES):
    """Python, the kernel, and the packages that are compared."""
    found = [f"Python {platform.python_version()}", f"Linux {platform.release()}"]
    for package in packages:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            found.append(f"{package} not installed")
    return ", ".join(found)


def gpu():
    """The GPU, its driver and its clocks, as the driver reports them."""
    asked = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory"
    try:
        found = subprocess.run(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"], capture_output=True)
    except OSError:
        return "no GPU was found: there is no nvidia-smi"
    return found.stdout.decode().strip() or found.stderr.decode().strip()


def busy(cpus):
    """Seconds that these processors have worked since the machine started, for anybody, steal included."""
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cpus:
            values = [int(v) for v in fields[:8]]
            ticks += sum(values) - values[3] - values[4]  # all but idle and waiting for a disk
    return ticks / os.sysconf("SC_CLK_TCK")


def awaitIdle(pause=0.03, most=2.0):
    """Wait until no thread of this process works, at most some seconds.

    Threads of a library may look for work after its last call: those of onnxruntime for about 30 ms of processor time,
    in which the library that is measured next lacks a processor.
    """
    stop = time.perf_counter() + most
    while time.perf_counter() < stop:
        before = time.process_time()
        time.sleep(pause)
        if time.process_time() - before < pause / 30:
            return


def resident():
    """The resident memory of this process by kind, in bytes: anonymous, of files, shared, and the peak of all."""
    text = STATUS.read_text()
    names = {"anonymous": "RssAnon", "files": "RssFile", "shared": "RssShmem", "peak": "VmHWM"}
    return {name: 1024 * int(re.search(rf"{key}:\s+(\d+)", text)[1]) for name, key in names.items()}


def forgetPeak():
    """Let the peak of the resident memory start anew from what is resident now."""
    RESET.write_text("5")


def anonymousPeak():
    """The most anonymous memory since `forgetPeak`: pages of libraries, which only ever grow, are taken off."""
    now = resident()
    return now["peak"] - now["files"] - now["shared"]
