"""Runs many fuzz inputs in children with little memory: an abort or a hang there fails the run.

Each child notes the number of the input it works on, so that whoever looks at a killed one knows
which input killed it: ``python -m tests.fuzz.runner SEED NUMBER`` tries that one alone.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import mmap
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from storage_core.errors import StorageError
from tests.fuzz.checks import check, written
from tests.fuzz.trees import TREES

MEMORY = 384 << 20
"""How much more a child may map than it has when it starts."""
HANG_S = 20


@dataclass
class Outcome:
    """How a child ended, and at which input."""

    number: int
    problem: str | None


def _limit_memory() -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))


def _work(seed: int, numbers: range, notes: mmap.mmap) -> None:
    """Try inputs until one fails; what is wrong stands in the notes after the number."""
    _limit_memory()
    faulthandler.disable()
    gc.disable()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    logging.getLogger("storage_core").setLevel(logging.CRITICAL)
    for number in numbers:
        notes[:8] = number.to_bytes(8, "big")
        signal.alarm(HANG_S)
        if number % 2000 == 0:
            gc.collect()
        try:
            check(seed, number)
        except StorageError:
            continue
        except BaseException:
            text = traceback.format_exc()[-3000:].encode()
            notes[8 : 8 + len(text)] = text
            os._exit(1)
    os._exit(0)


def run_child(seed: int, numbers: range) -> tuple[int, mmap.mmap]:
    """Start a child; its process id and its notes."""
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        notes = mmap.mmap(file.fileno(), 4096)
    pid = os.fork()
    if pid == 0:
        _work(seed, numbers, notes)
    return pid, notes


def outcome_of(status: int, notes: mmap.mmap) -> Outcome:
    number = int.from_bytes(notes[:8], "big")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return Outcome(number, "it hangs" if name == "SIGALRM" else f"it dies of {name}")
    if os.WEXITSTATUS(status):
        return Outcome(number, bytes(notes[8:]).rstrip(b"\0").decode(errors="replace"))
    return Outcome(number, None)


def fuzz(seed: int, inputs: int, processes: int) -> list[Outcome]:
    """Try this many inputs; the ones that went wrong. Another child follows one that crashed."""
    for tree in TREES:
        written(tree)  # every child has these from its parent
    share = -(-inputs // processes)
    work = [range(at, min(at + share, inputs)) for at in range(0, inputs, share)]
    failed: list[Outcome] = []
    running: dict[int, tuple[range, mmap.mmap]] = {}
    while work or running:
        while work and len(running) < processes:
            numbers = work.pop()
            pid, notes = run_child(seed, numbers)
            running[pid] = numbers, notes
        pid, status = os.waitpid(-1, 0)
        if pid not in running:
            continue
        numbers, notes = running.pop(pid)
        outcome = outcome_of(status, notes)
        if outcome.problem is not None:
            failed.append(outcome)
            rest = range(outcome.number + 1, numbers.stop)
            if rest and len(failed) < 20:
                work.append(rest)
    return failed


def main() -> int:
    """Run this many inputs from a seed, or try one of them alone."""
    if len(sys.argv) == 3:
        check(int(sys.argv[1]), int(sys.argv[2]))
        return 0
    _, seed, inputs, processes = (int(word) for word in ("0", *sys.argv[1:]))
    before = time.monotonic()
    failed = fuzz(seed, inputs, processes)
    for outcome in failed:
        print(f"input {outcome.number}: {outcome.problem}")
    print(f"fuzz: seed {seed}, {inputs} inputs, {len(failed)} failed, ", end="")
    print(f"{time.monotonic() - before:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
