"""Builds C sources into a shared library on first use, keeps it, loads it.

A library is named after everything that could change its code: sources and headers,
macros, flags, compiler and processor. So a stale or foreign file is never loaded, and
nothing has to be cleaned up by hand. The file ends in a SHA-256 of itself: a loader that
maps a truncated library dies on a bus error, a checksum that differs is only rebuilt.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock

from kernels.errors import BuildError

FLAGS: tuple[str, ...] = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-pthread",
    "-fPIC",
    "-shared",
    # The parts of -ffast-math that never reorder a sum. The whole of it also links code
    # that makes the process flush denormals to zero, torch's operations included.
    "-fno-math-errno",
    "-fno-trapping-math",
    # Left to itself the compiler fuses as a loop happens to be unrolled: simd.h says where.
    "-ffp-contract=off",
)
BUILD_TIMEOUT_S = 900
"""No build takes so long; a compiler that hangs must not hang the start for ever."""
_DIGEST_BYTES = 32

_loaded: dict[str, ctypes.CDLL] = {}
_lock = Lock()


def load(sources: list[Path], macros: dict[str, int]) -> ctypes.CDLL:
    """The library of `sources` compiled with `macros`; built if the cache lacks it.

    Safe to call from several threads and processes at once. Raises BuildError.
    """
    compiler = find_compiler()
    key = _key(sources, macros, compiler)
    with _lock:
        if key not in _loaded:
            path = cache_folder() / f"{sources[0].stem}-{key[:24]}.so"
            _loaded[key] = _open(path) or _build_and_open(path, sources, macros, compiler)
        return _loaded[key]


def compile_library(
    target: Path, sources: list[Path], macros: dict[str, int], extra_flags: tuple[str, ...] = ()
) -> None:
    """Compile into `target`, uncached. Raises BuildError with the compiler's first error."""
    defines = [f"-D{name}={value}" for name, value in sorted(macros.items())]
    files = [str(source) for source in sources]
    command = [*find_compiler(), *FLAGS, *extra_flags, *defines, *files, "-o", str(target), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} did not run: {error}") from error
    if done.returncode:
        raise BuildError(f"{command[0]} failed on {sources[0].name}: {_first_error(done.stderr)}")


@cache
def find_compiler() -> tuple[str, ...]:
    """Command of the C compiler: $CC, cc, gcc or clang. Raises BuildError."""
    for candidate in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return tuple(words)
    raise BuildError("no C compiler (tried $CC, cc, gcc, clang); install gcc for speed")


def cache_folder() -> Path:
    """Where libraries are kept; made on demand."""
    if home := os.environ.get("EVEWATCH_HOME"):
        folder = Path(home) / "kernels"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "evewatch" / "kernels"
    try:
        for part in (*reversed(folder.parents), folder):
            if not part.is_dir():  # what is loaded from there only its owner may write
                part.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise BuildError(f"{folder}: cannot keep compiled kernels there ({error})") from error
    return folder


def _build_and_open(
    path: Path, sources: list[Path], macros: dict[str, int], compiler: tuple[str, ...]
) -> ctypes.CDLL:
    """Built under a name of its own, then renamed: a reader sees all of it or none."""
    with _alone_in(path.parent):
        return _open(path) or _built(path, sources, macros, compiler)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """One process compiles; those that want the same wait for it. Saves work, is not needed."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _built(
    path: Path, sources: list[Path], macros: dict[str, int], compiler: tuple[str, ...]
) -> ctypes.CDLL:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".so")
    except OSError as error:
        raise BuildError(f"{path.parent}: cannot be written ({error})") from error
    os.close(handle)
    scratch = Path(name)
    try:
        compile_library(scratch, sources, macros)
        with scratch.open("ab") as file:
            file.write(hashlib.sha256(scratch.read_bytes()).digest())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    library = _open(path)
    if library is None:
        raise BuildError(f"{path}: built by {compiler[0]}, but does not load")
    return library


def _open(path: Path) -> ctypes.CDLL | None:
    """None if there is no such library; one that is damaged is removed."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BuildError(f"{path}: cannot be read ({error})") from error
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() == digest:
        try:
            return ctypes.CDLL(str(path))
        except OSError:
            pass
    path.unlink(missing_ok=True)
    return None


def _key(sources: list[Path], macros: dict[str, int], compiler: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    headers = sorted({header for source in sources for header in source.parent.glob("*.h")})
    for file in (*sources, *headers):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    digest.update(repr((sorted(macros.items()), FLAGS, _compiler_version(compiler))).encode())
    digest.update(_processor().encode())
    return digest.hexdigest()


@cache
def _compiler_version(compiler: tuple[str, ...]) -> str:
    done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False)
    return " ".join(compiler) + done.stdout


@cache
def _processor() -> str:
    """What -march=native looks at: model and instruction sets."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    first = text.split("\n\n")[0]
    fields = re.findall(r"^(?:vendor_id|model name|flags|Features|CPU part)\s*:.*$", first, re.M)
    return f"{platform.machine()} {fields}"


def _first_error(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "no message")
