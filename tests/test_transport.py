"""What can be sent to another process arrives there and works; what can't is named."""

from __future__ import annotations

import functools
import math
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from flashperf.comparing import transport

SCALE = 3.0
RECEIVE = """
import sys
from pathlib import Path
from flashperf.comparing import transport
call, arguments = transport.loads(Path(sys.argv[1]).read_bytes())
print(call(*arguments))
"""


def send(tmp_path: Path, call: object, *arguments: object) -> str:
    """What a fresh process prints for ``call(*arguments)``."""
    file = tmp_path / "payload"
    file.write_bytes(transport.dumps((call, arguments)))
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", RECEIVE, str(file)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def times_scale(x: float) -> float:
    return x * SCALE


def test_a_function_of_a_module_goes_by_name(tmp_path: Path) -> None:
    assert send(tmp_path, times_scale, 2.0) == "6.0"
    assert b"test_transport" in transport.dumps(times_scale)


def test_a_lambda_goes_with_the_globals_that_it_names(tmp_path: Path) -> None:
    assert send(tmp_path, lambda x: math.sqrt(times_scale(x) * np.float64(SCALE)), 4.0) == "6.0"


def test_a_closure_goes_with_its_cells_and_defaults(tmp_path: Path) -> None:
    offset = np.arange(3.0)

    def shifted(x: float, by: float = 10.0, *, sign: int = -1) -> float:
        def inner() -> float:
            return float(offset.sum()) + x

        return sign * (inner() + by)

    assert send(tmp_path, shifted, 1.0) == "-14.0"


def test_a_recursive_closure_goes(tmp_path: Path) -> None:
    def factorial(n: int) -> int:
        return n * factorial(n - 1) if n else 1

    assert send(tmp_path, factorial, 5) == "120"


def test_a_partial_goes(tmp_path: Path) -> None:
    assert send(tmp_path, functools.partial(lambda x, y: x - y, 5), 3) == "2"


def test_submodules_named_by_attribute_are_imported(tmp_path: Path) -> None:
    import xml.dom.minidom

    assert send(tmp_path, lambda: xml.dom.minidom.parseString("<a/>").firstChild.tagName) == "a"


def test_what_can_not_be_sent_is_said() -> None:
    lock = threading.Lock()
    with pytest.raises(transport.TransportError, match=r"cannot pickle '_thread.lock'"):
        transport.dumps(lambda: lock.locked())


def run_script(tmp_path: Path, text: str) -> str:
    """Run a script as a main program; what it prints."""
    script = tmp_path / "script.py"
    script.write_text(text)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path, "RECEIVE": RECEIVE}, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


SEND = """
import os, subprocess, sys
from flashperf.comparing import transport
def sent(call, *arguments):
    transport.stop_if_loading()
    open("payload", "wb").write(transport.dumps((call, arguments)))
    command = [sys.executable, "-c", os.environ["RECEIVE"], "payload"]
    return subprocess.check_output(command, text=True).strip()
os.chdir(os.path.dirname(__file__))
"""


def test_a_function_of_a_script_goes_without_running_it(tmp_path: Path) -> None:
    text = SEND + "print('ran', flush=True)\nK = 2\ndef f(x):\n    return K * x\nprint(sent(f, 4))\n"
    assert run_script(tmp_path, text).split() == ["ran", "8"]


def test_a_class_of_a_script_is_found_by_running_it_up_to_the_comparison(tmp_path: Path) -> None:
    text = SEND + (
        "class Scale:\n    def __init__(self, k): self.k = k\n    def __call__(self, x): return self.k * x\n"
        "print(sent(Scale(3), 5))\nopen('after', 'a').write('x')\n"
    )
    assert run_script(tmp_path, text).split() == ["15"]
    assert (tmp_path / "after").read_text() == "x"  # once, by the script itself


def test_a_script_that_guards_its_main_part_works_too(tmp_path: Path) -> None:
    text = SEND + (
        "class Scale:\n    def __call__(self, x): return 2 * x\n"
        "if __name__ == '__main__':\n    print(sent(Scale(), 5))\n"
    )
    assert run_script(tmp_path, text).split() == ["10"]


def test_a_class_of_an_interactive_session_can_not_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("Typed", (), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Typed", kind, raising=False)
    monkeypatch.setattr(transport, "script_path", lambda: "")
    with pytest.raises(transport.TransportError, match="Typed is a class of an interactive session"):
        transport.dumps(kind())


def test_loading_stops_only_in_a_worker() -> None:
    transport.stop_if_loading()


def test_the_payload_is_plain_pickle() -> None:
    script, _ = pickle.loads(transport.dumps(1))
    assert script == ""
