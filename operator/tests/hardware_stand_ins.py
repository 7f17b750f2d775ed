"""Hardware and packages that behave as told: libcuda, NVML and a C library in C, torch and the prefix cache in Python."""

from __future__ import annotations

from pathlib import Path

from check_env_builders import build

HANG, CRASH = -1, -2
"""As the result of an `INIT`: the call never returns, or the process dies in it."""

LIBCUDA = r"""
#include <stddef.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>
int cuDriverGetVersion(int *v) { *v = DRIVER; return VERSION_ERROR; }
int cuInit(unsigned f) {
  if (INIT == -1) for (;;) pause();
  if (INIT == -2) raise(SIGSEGV);
  return INIT;
}
int cuDeviceGetCount(int *n) { *n = COUNT; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "NVIDIA H200", n); return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? CAPABILITY / 10 : CAPABILITY % 10; return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = 141ul << 30; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)1; return d == BROKEN ? 2 : 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = (size_t)FREE_GIB << 30; *t = 141ul << 30; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
"""
_CUDA = {
    "DRIVER": 12080, "VERSION_ERROR": 0, "INIT": 0, "COUNT": 2, "CAPABILITY": 90, "FREE_GIB": 100, "BROKEN": -1,
}  # fmt: skip

NVML = r"""
#include <signal.h>
#include <unistd.h>
int nvmlInit_v2(void) {
  if (INIT == -1) for (;;) pause();
  if (INIT == -2) raise(SIGSEGV);
  return INIT;
}
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = COUNT; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(long)(i + 1); return i == LOST ? 15 : 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *next) { *now = *next = MIG == 1; return MIG < 0 ? 3 : 0; }
int nvmlDeviceGetEccMode(void *d, unsigned *now, unsigned *next) { *now = *next = ECC == 1; return ECC < 0 ? 3 : 0; }
int nvmlDeviceGetTotalEccErrors(void *d, int kind, int counter, unsigned long long *n) {
  *n = kind == 1 && counter == 0 && d == (void *)2 ? ERRORS : 0; return ECC == 1 ? 0 : 3;
}
#ifndef OLD
int nvmlDeviceGetRemappedRows(void *d, unsigned *a, unsigned *b, unsigned *pending, unsigned *failed) {
  *a = *b = 0; *pending = PENDING; *failed = FAILED; return 0;
}
#endif
"""
_HEALTHY = {
    "INIT": 0, "COUNT": 2, "MIG": 0, "ECC": 1, "ERRORS": 0, "PENDING": 0, "FAILED": 0, "LOST": -1,
}  # fmt: skip

_OLD_LIBC = r"""
#include <stddef.h>
#include <string.h>
size_t confstr(int name, char *buffer, size_t size) {
  const char *told = "glibc 2.17";
  if (buffer && size) { strncpy(buffer, told, size); buffer[size - 1] = 0; }
  return strlen(told) + 1;
}
"""

FAKE_TORCH = """
__version__ = "2.10.0+cu128"
class version: cuda = "12.8"
class cuda:
    is_available = staticmethod(lambda: {available})
class Tensor:
    def __init__(self, error=0.0): self.error = error
    reshape = to = lambda self, *a: self
    cpu = abs = lambda self: self
    def __matmul__(self, other): {product}
    def __sub__(self, other): return self
    def max(self): return self.error
arange = lambda n: Tensor()
"""

NATIVE_IN_PYTHON = """
from rampway_prefix_cache import _native
class PrefixCache:
    def __init__(self, pages, size): pass
    match_lock = lambda self, ns, tokens: (1, {matched})
    alloc = lambda self, n, row: True
    insert = lambda self, handle, tokens, row: None
    release = check = lambda self, *a: None
"""


def libcuda(target: Path, **behaviour: int) -> Path:
    """Compile a driver library that behaves as told."""
    flags = [f"-D{name}={value}" for name, value in {**_CUDA, **behaviour}.items()]
    return build(target, LIBCUDA, "-Wl,-soname,libcuda.so.1", *flags)


def nvml(target: Path, *flags: str, **behaviour: int) -> Path:
    """Compile a management library that behaves as told."""
    told = [f"-D{name}={value}" for name, value in {**_HEALTHY, **behaviour}.items()]
    return build(target, NVML, "-Wl,-soname,libnvidia-ml.so.1", *told, *flags)


def old_libc(target: Path) -> Path:
    """Compile what, loaded before the C library, has it say that it is glibc 2.17."""
    return build(target, _OLD_LIBC)
