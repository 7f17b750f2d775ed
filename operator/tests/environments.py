"""Images and nodes, good and bad, by name, and what check_env has to say of each: class, exit code and message.

Nothing is asserted here. Hardware and packages are stand-ins; loader, libraries and file systems are real.
"""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from check_env_builders import Elf, build, glibcxx, needing, versioned
from environment_builder import PYTHON, Content, Environment
from hardware_stand_ins import CRASH, FAKE_TORCH, HANG, NATIVE_IN_PYTHON, libcuda, nvml, old_libc

STDCXX = "libstdc++.so.6"
_GLIBC = platform.libc_ver()[1]
_LIBC = next(
    line.split("=>")[1].split("(")[0].strip()
    for line in subprocess.run(
        ["ldd", PYTHON], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    if "libc.so.6" in line
)
_OPEN_FILES = 256


@dataclass(frozen=True)
class Case:
    """An environment and what is to come of it. `says` has `check: found; need …; remedy` of each failure."""

    environment: Environment
    code: int
    says: tuple[str, ...] = ()
    timeout: str = "60s"


def stdcxx(highest: int) -> Content:
    return lambda path: versioned(path, STDCXX, glibcxx(highest))


def extension(version: str, *flags: str, soname: str = STDCXX) -> Content:
    """An extension that needs one symbol version of a library."""

    def make(path: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            provider = versioned(Path(folder, soname), soname, [version])
            needing(path, provider, [0], *flags)

    return make


def truncated(path: Path) -> None:
    build(path, "int f(void) { return 1; }")
    os.truncate(path, 100)


def other_processor(path: Path) -> None:
    path.write_bytes(Elf(machine=183).pack())


def kernel_module(version: str) -> Environment:
    text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Thu Feb 22 01:44:30 UTC 2024"
    setup = f"""mount -t tmpfs tmpfs proc/driver
mkdir -p proc/driver/nvidia
echo '{text}' > proc/driver/nvidia/version
"""
    return Environment(setup=setup)


def gpus(driver: str = "550.54.14", cuda: int = 12040, **behaviour: int) -> Environment:
    """A node with two GPUs."""
    library: Content = lambda path: libcuda(path, DRIVER=cuda, **behaviour)  # noqa: E731 - typed so
    files = {"/drv/libcuda.so.1": library, "/dev/nvidia0": ""}
    return Environment(files=files, environ={"LD_LIBRARY_PATH": "/drv"}) + kernel_module(driver)


def managed(*flags: str, **behaviour: int) -> Environment:
    """The management library of such a node."""
    return Environment(
        files={"/drv/libnvidia-ml.so.1": lambda path: nvml(path, *flags, **behaviour)}
    )


def packages(**sources: str) -> Environment:
    """Python packages by name; `torch__version` is the module `torch/version.py`."""
    files: dict[str, Content] = {}
    for name, source in sources.items():
        package, _, module = name.partition("__")
        files[f"/site/{package}/{module or '__init__'}.py"] = source
    return Environment(files=files)


def torch(
    cuda: str = "12.8", *, available: bool = True, product: str = "return self"
) -> Environment:
    source = FAKE_TORCH.format(available=available, product=product)
    return packages(torch=source, torch__version=f"cuda: str = {cuda!r}\n")


def triton(version: str, language: str = "") -> Environment:
    metadata = f"/site/triton-{version}.dist-info/METADATA"
    return packages(triton="jit = lambda f: f", triton__language=language) + Environment(
        files={metadata: f"Name: triton\nVersion: {version}\n"}
    )


def needs(**wanted: Any) -> Environment:
    return Environment(wanted=wanted)


def env(**variables: str) -> Environment:
    return Environment(environ=variables)


def file(path: str, content: Content) -> Environment:
    return Environment(files={path: content})


def loads(path: str) -> Environment:
    """Have the real loader load the library, as a custom check: it must agree."""
    command = [PYTHON, "-c", f"import ctypes; ctypes.CDLL({path!r})"]
    return needs(custom=[{"name": "load", "command": command}])


def shell(text: str) -> Environment:
    return Environment(setup=text + "\n")


NATIVE = "/site/rampway_prefix_cache/_native.so"
OLD_CXX = file(f"/opt/old/{STDCXX}", stdcxx(25))
NEW_CXX = file(f"/opt/new/{STDCXX}", stdcxx(32))
NEEDS_32 = "GLIBCXX_3.4.32"
RPATH, RUNPATH = "-Wl,--disable-new-dtags,-rpath,", "-Wl,--enable-new-dtags,-rpath,"
CACHE = env(TRITON_CACHE_DIR="/cache") + torch() + triton("3.5.0", "raise RuntimeError('reached')")
GOOD = gpus() + needs(gpu={"count": 2}, cudaDriver=">=550.54.14")

CASES: Mapping[str, Case] = {
    # fmt: off
    # C and C++ libraries
    "nothing is required": Case(Environment(), 0),
    "libstdc++ is old in LD_LIBRARY_PATH": Case(OLD_CXX + env(LD_LIBRARY_PATH="/opt/old") + needs(glibcxx=">=3.4.30"), 10),
    "libstdc++ is new in LD_LIBRARY_PATH": Case(NEW_CXX + env(LD_LIBRARY_PATH="/opt/new") + needs(glibcxx=">=3.4.32"), 0),
    "CXXABI is old": Case(OLD_CXX + env(LD_LIBRARY_PATH="/opt/old") + needs(cxxabi=">=1.3.13"), 10),
    "an extension finds an old libstdc++ of conda by its RPATH": Case(OLD_CXX + file(NATIVE, extension(NEEDS_32, RPATH + "/opt/old")) + loads(NATIVE), 10),
    "an extension finds a new libstdc++ of conda by its RPATH": Case(NEW_CXX + file(NATIVE, extension(NEEDS_32, RPATH + "/opt/new")) + loads(NATIVE), 0),
    "RPATH to a new libstdc++ beats LD_LIBRARY_PATH to an old one": Case(OLD_CXX + NEW_CXX + env(LD_LIBRARY_PATH="/opt/old") + file(NATIVE, extension(NEEDS_32, RPATH + "/opt/new")) + loads(NATIVE), 0),
    "LD_LIBRARY_PATH to an old libstdc++ beats RUNPATH to a new one": Case(OLD_CXX + NEW_CXX + env(LD_LIBRARY_PATH="/opt/old") + file(NATIVE, extension(NEEDS_32, RUNPATH + "/opt/new")) + loads(NATIVE), 10),
    "an extension needs a newer glibc": Case(file(NATIVE, extension("GLIBC_2.99", soname="libc.so.6")) + loads(NATIVE), 10),
    "glibc says that it is old": Case(file("/opt/old.so", old_libc) + env(LD_PRELOAD="/opt/old.so") + needs(glibc=">=2.34"), 10),
    "glibc is older than required": Case(needs(glibc=">=2.99"), 10),
    "an extension is cut off": Case(file(NATIVE, truncated), 10),
    "an extension is for another processor": Case(file(NATIVE, other_processor), 10),
    "a named library is not there": Case(needs(libraries=["/opt/missing.so", "no_such_module"]), 10),
    # packages
    "torch is missing": Case(needs(torch=">=2.10"), 10),
    "torch is too old": Case(torch() + needs(torch=">=2.11"), 10),
    "torch is as required": Case(torch() + needs(torch=">=2.10"), 0),
    "torch misses a CUDA library": Case(packages(torch="raise ImportError('libcudart.so.13: cannot open shared object file: No such file or directory')") + needs(torch=">=2"), 10),
    "torch crashes in its import": Case(packages(torch="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)") + needs(torch=">=2"), 10),
    "torch hangs in its import": Case(packages(torch="import time; time.sleep(600)") + needs(torch=">=2"), 12, timeout="3s"),
    "torch floods its output": Case(packages(torch="while True: print('x' * 65536)") + needs(torch=">=2"), 10),
    "triton is missing": Case(needs(triton=">=3.4"), 10),
    "triton is too old": Case(triton("3.1.0") + needs(triton=">=3.4"), 10),
    "triton does not fit to torch": Case(GOOD + torch() + triton("3.1.0", "raise ImportError(\"cannot import name 'AttrsDescriptor' from 'triton.compiler'\")") + env(TRITON_CACHE_DIR="/tmp/cache"), 10),
    "triton finds no C compiler": Case(GOOD + torch() + triton("3.5.0", "raise RuntimeError('Failed to find C compiler. Please specify via CC environment variable.')") + env(TRITON_CACHE_DIR="/tmp/cache"), 10),
    "triton hangs as it compiles": Case(GOOD + torch() + triton("3.5.0", "import time; time.sleep(600)") + env(TRITON_CACHE_DIR="/tmp/cache"), 12, timeout="4s"),
    "the disk of Triton's cache is full": Case(GOOD + CACHE + Environment(tmpfs={"/cache": "size=16k"}), 11),
    "Triton's cache is on a read-only root": Case(GOOD + CACHE + Environment(read_only=True), 10),
    "Triton's cache belongs to root, the engine does not": Case(GOOD + CACHE + Environment(user="1000:1000"), 10),
    "the prefix cache is missing": Case(needs(prefixCache={"backend": "rust"}), 10),
    "the prefix cache crashes": Case(packages(rampway_prefix_cache="import os; os.abort()"), 10),
    "the prefix cache is not in Rust": Case(packages(rampway_prefix_cache=NATIVE_IN_PYTHON.format(matched=48), rampway_prefix_cache___native=""), 10),
    "the prefix cache does not find what was put in": Case(packages(rampway_prefix_cache=NATIVE_IN_PYTHON.format(matched=0), rampway_prefix_cache___native="__file__ = '/site/_native.so'"), 10),
    # driver and GPUs
    "driver and GPUs are as required": Case(GOOD + torch("12.4"), 0),
    "the driver is absent": Case(needs(cudaDriver=">=550", gpu={"count": 1}), 11),
    "the driver is too old": Case(gpus("535.161.08", 12020) + needs(cudaDriver=">=550.54.14"), 11),
    "the driver is known by nvidia-smi alone": Case(file("/opt/bin/nvidia-smi", "#!/bin/sh\necho 535.161.08\n") + env(PATH="/opt/bin:/usr/bin:/bin") + shell("chmod 755 opt/bin/nvidia-smi") + needs(cudaDriver=">=550"), 11),
    "the image is for CUDA 13, the driver for 12.4": Case(GOOD + torch("13.0"), 11),
    "the image is for CUDA 12.8, the driver for 12.4": Case(GOOD + torch("12.8"), 0),
    "the image is for CUDA 12, the driver from before": Case(gpus("470.57.02", 11040) + torch("12.4"), 11),
    "cuda-compat is first in LD_LIBRARY_PATH": Case(GOOD + torch("13.0") + file("/opt/cuda/compat/libcuda.so.1", lambda path: libcuda(path, DRIVER=13000)) + env(LD_LIBRARY_PATH="/opt/cuda/compat:/drv"), 0),
    "cuda-compat on a GPU that does not support it": Case(GOOD + torch("13.0") + file("/opt/cuda/compat/libcuda.so.1", lambda path: libcuda(path, DRIVER=13000, INIT=804)) + env(LD_LIBRARY_PATH="/opt/cuda/compat:/drv"), 11),
    "GPUs are too few": Case(gpus() + needs(gpu={"count": 4}), 11),
    "GPUs are too old": Case(gpus(CAPABILITY=75) + needs(gpu={"computeCapability": ["9.0", "10.0"]}), 11),
    "GPUs are full": Case(gpus(FREE_GIB=20) + needs(gpu={"freeMemory": "60Gi"}), 11),
    "a GPU takes no context": Case(gpus(BROKEN=1) + needs(gpu={"freeMemory": "1Gi"}), 11),
    "cuInit finds no device": Case(gpus(INIT=100), 11),
    "cuInit waits for the fabric manager": Case(gpus(INIT=802), 11),
    "cuInit sees another kernel module": Case(gpus(INIT=803), 11),
    "cuInit fails for unknown reasons": Case(gpus(INIT=999), 11),
    "cuInit says that the library is a stub": Case(gpus(INIT=34), 11),
    "cuInit hangs": Case(gpus(INIT=HANG) + needs(gpu={"count": 1}), 12, timeout="3s"),
    "cuInit crashes": Case(gpus(INIT=CRASH) + needs(gpu={"count": 1}), 11),
    "libcuda is no library": Case(gpus() + file("/drv/libcuda.so.1", "not ELF") + needs(gpu={"count": 1}), 11),
    "a CPU engine on a node with a broken driver": Case(gpus(INIT=999) + shell("rm dev/nvidia0"), 0),
    "torch sees no GPU": Case(GOOD + torch("12.4", available=False), 11),
    "the GPU has no memory left for a product": Case(GOOD + torch("12.4", product="raise RuntimeError('CUDA error: out of memory')"), 11),
    "the GPU computes wrong numbers": Case(GOOD + torch("12.4", product="return Tensor(0.5)"), 11),
    "multi-instance mode is on": Case(GOOD + managed(MIG=1) + needs(gpu={"mig": "Disabled"}), 11),
    "memory errors are more than allowed": Case(GOOD + managed(ERRORS=3) + needs(gpu={"eccErrors": 0}), 11),
    "a memory row waits to be remapped": Case(GOOD + managed(PENDING=1), 11),
    "a GPU is lost": Case(GOOD + managed(LOST=1) + needs(gpu={"eccErrors": 0}), 12),
    "NVML hangs": Case(GOOD + managed(INIT=HANG) + needs(gpu={"mig": "Disabled"}), 12, timeout="3s"),
    "a GPU fell off the bus": Case(GOOD + file("/dev/kmsg", "4,1,1,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n") + needs(gpu={"xidErrors": 0}), 11),
    "the kernel log cannot be read": Case(GOOD + needs(gpu={"xidErrors": 0}), 12),
    # the container
    "shared memory is small": Case(needs(shm="1Gi"), 11),
    "the disk is full": Case(Environment(tmpfs={"/models": "size=1m"}) + needs(disk=[{"path": "/models", "free": "20Gi"}]), 11),
    "the volume of the model is not mounted": Case(needs(disk=[{"path": "/models", "free": "20Gi"}]), 12),
    "open files are few": Case(shell(f"ulimit -n {_OPEN_FILES}") + needs(openFiles=65536), 11),
    "little memory may be locked": Case(shell("ulimit -l 64") + needs(memlock="unlimited"), 11),
    "the root is read-only": Case(GOOD + torch("12.4") + Environment(read_only=True), 0),
    "the user is not root": Case(GOOD + torch("12.4") + Environment(user="1000:1000"), 0),
    "neither root nor writable, and no home": Case(GOOD + Environment(read_only=True, user="65534:65534") + env(HOME="/nonexistent"), 0),
    "a command of the user fails": Case(needs(custom=[{"name": "model", "command": ["sh", "-c", "echo no such model; exit 3"], "class": "BadNode"}]), 11),
    "a command of the user hangs": Case(needs(custom=[{"name": "slow", "command": ["sleep", "600"], "timeout": "1s"}]), 12),
    "a command of the user is not in the image": Case(needs(custom=[{"name": "odd", "command": ["no-such-program"]}]), 10),
    # the contract
    "a requirement is misspelled": Case(needs(glibcx=">=3.4"), 2),
    "many things are wrong": Case(gpus(INIT=999) + OLD_CXX + env(LD_LIBRARY_PATH="/opt/old:/drv") + needs(glibcxx=">=3.4.30", gpu={"count": 1}, disk=[{"path": "/models", "free": "1Gi"}]), 10),
    "it is only to warn": Case(Environment(arguments=["--warn"]) + needs(glibc=">=2.99"), 0),
    "another image is checked in": Case(gpus() + OLD_CXX + env(LD_LIBRARY_PATH="/opt/old:/drv") + Environment(arguments=["--other-image"]) + needs(glibcxx=">=3.4.30", torch=">=2", gpu={"count": 4}), 11),
    # fmt: on
}
