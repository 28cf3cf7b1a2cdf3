"""Runs the tests against one mutant after the other, each in a fork of a process that has imported the rest.

To start pytest with Airflow takes longer than most tests, so it is done once. The mutant is put into the fork
by an import hook: no file is changed. Only tests that execute the mutated line run, the fastest first.
"""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

NOT_IMPORTED = 99  # the code of a fork whose tests have not imported what was mutated
OURS = ("airflow_provider", "tests", "mutants", "__main__")


@dataclass
class Fork:
    """A process that runs tests; `code` is pytest's, or None where the time was up."""

    pid: int
    folder: Path
    started: float = field(default_factory=time.monotonic)
    code: int | None = None
    seconds: float = 0.0

    def is_over(self, limit: float) -> bool:
        """Whether it has ended; ends it when its time is up."""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        self.seconds = time.monotonic() - self.started
        if not done and self.seconds < limit:
            return False
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what the tests have started, too
        if done:
            self.code = os.waitstatus_to_exitcode(status)
        else:
            os.waitpid(self.pid, 0)
        shutil.rmtree(self.folder, ignore_errors=True)
        return True


def run_forked(tests: list[str], log: Path, module: str, tree: ast.Module | None = None) -> Fork:
    """Begin to run tests in a fork, where `module` is made of another syntax tree, or traced without one."""
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return Fork(pid, folder)
    code = 70
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = _run_tests(tests, folder, module, tree)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # threads that a mutant has left behind end here, too
    raise AssertionError  # for mypy, which does not know that this is never reached


def _run_tests(tests: list[str], folder: Path, module: str, tree: ast.Module | None) -> int:
    import pytest

    finder = None
    if tree is not None:
        name = f"airflow_provider.{module.replace('/', '.')}"
        if name in sys.modules:
            raise AssertionError(f"{name} is imported too early.")
        finder = _Finder(name, tree)
        sys.meta_path.insert(0, finder)
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", MARKS, f"--basetemp={folder}/pytest"]
    # Pytest's own import hook, which rewrites assertions, would come before ours.
    options += ["--assert=plain"]
    if finder is not None:
        code = int(pytest.main([*options, *tests], plugins=[_SameExamples()]))
        return code if finder.was_used else NOT_IMPORTED
    trace = _Trace(f"airflow_provider/{module}.py")
    code = int(pytest.main([*options, *tests], plugins=[_SameExamples(), trace]))
    trace.save(_baseline_file(folder))
    return code


def _baseline_file(folder: Path) -> Path:
    return folder.with_suffix(".json")


@dataclass
class Baseline:
    """What the tests do without a mutant.

    :param modules: all that they import
    :param seconds: how long each takes
    :param lines: the tests that execute each line of the module
    """

    modules: list[str]
    seconds: dict[str, float]
    lines: dict[int, set[str]]

    @classmethod
    def of(cls, fork: Fork) -> Baseline:
        """Read what a fork without a mutant has written."""
        file = _baseline_file(fork.folder)
        record = json.loads(file.read_text())
        file.unlink()
        lines = {int(line): set(tests) for line, tests in record["lines"].items()}
        return cls(record["modules"], record["seconds"], lines)

    def tests_of(self, lines: range) -> list[str]:
        """Return the tests that execute some lines, the fastest first; all for lines executed on import."""
        found = {test for line in lines for test in self.lines.get(line, ())}
        return sorted(found or self.seconds, key=self.seconds.__getitem__)


class _Trace:
    """Records which test executes which lines of a file, in any thread, and how long it takes."""

    def __init__(self, path: str) -> None:
        import coverage

        self._path = str(Path(path).absolute())
        self._coverage = coverage.Coverage(data_file=None, include=[self._path], config_file=False)
        self._seconds: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._coverage.switch_context("")

    def save(self, file: Path) -> None:
        self._coverage.stop()
        found = self._coverage.get_data().contexts_by_lineno(self._path)
        lines = {line: [test for test in tests if test in self._seconds] for line, tests in found.items()}
        record = {"modules": list(sys.modules), "seconds": self._seconds, "lines": lines}
        file.write_text(json.dumps(record))


MARKS = "not " + " and not ".join(
    ("browser", "deployment", "distributed", "identity_provider", "once", "release", "stores")
)


class _SameExamples:
    """Lets Hypothesis try the same few examples in each run."""

    def pytest_sessionstart(self) -> None:
        import hypothesis

        hypothesis.settings.register_profile("mutants", derandomize=True, database=None, max_examples=30)
        hypothesis.settings.load_profile("mutants")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, and makes it of a syntax tree."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.was_used = False
        self._name = name
        self._tree = tree
        self._path = f"{name.replace('.', '/')}.py"

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=self._path)

    def exec_module(self, module: ModuleType) -> None:
        self.was_used = True
        module.__file__ = str(Path(self._path).absolute())
        exec(compile(self._tree, self._path, "exec"), module.__dict__)  # noqa: S102 - that is what it is for


def wait_for(fork: Fork, limit: float) -> Fork:
    """Wait until a fork is over."""
    try:
        while not fork.is_over(limit):
            time.sleep(0.02)
    except BaseException:
        fork.is_over(0)
        raise
    return fork


def preload(names: list[str]) -> None:
    """Import what the tests needed that is not mutated, so that forks find it there."""
    for name in _foreign(names):
        with suppress(Exception):
            importlib.import_module(name)
    gc.freeze()  # pytest collects garbage several times, which took a third of the time of a mutant


def _foreign(names: list[str]) -> Iterator[str]:
    for name in names:
        if name.startswith("airflow_provider.emulator") or not name.startswith(OURS):
            yield name
