"""Records: what is written can be read, a cut-off end is tolerated, and what else is wrong is named."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flashperf.blocks import Block
from flashperf.environment import capture
from flashperf.records import SCHEMA_VERSION, Case, Check, Cost, Environment, Interval, Measurement
from flashperf.store import RecordError, RecordWriter, from_json, read_records, to_json


def record(path: Path, *lines: str) -> Path:
    """A record with a good header and these further lines, as they are."""
    with RecordWriter(path):
        pass
    with path.open("a") as file:
        file.write("".join(lines))
    return path


def test_written_lines_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "run.jsonl"
    with RecordWriter(path) as writer:
        writer.write("sample", worker=3, seconds=(0.25, 0.5), array=np.arange(3), case="a=1")
        writer.write("note", text="über\n")
    found = read_records(path)
    assert found.header["schema"] == SCHEMA_VERSION
    assert found.header["program"] == "flashperf"
    assert found.header["command"] == [Path(sys.argv[0]).name, *sys.argv[1:]]
    assert found.lines[0] == {
        "kind": "sample", "worker": 3, "seconds": [0.25, 0.5], "array": [0, 1, 2], "case": "a=1",
    }  # fmt: skip
    assert [line["text"] for line in found.of("note")] == ["über\n"]
    assert not found.truncated


def test_every_line_is_on_disk_when_write_returns(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom flashperf.store import RecordWriter\n"
        "writer = RecordWriter(sys.argv[1])\nwriter.write('sample', n=1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "killed.jsonl"
    done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert [line["n"] for line in read_records(path).lines] == [1]


def test_a_cut_off_last_line_is_left_out_and_flagged(tmp_path: Path) -> None:
    found = read_records(record(tmp_path / "r", '{"kind": "a"}\n', '{"kind": "b", "n": 1'))
    assert found.truncated
    assert [line["kind"] for line in found.lines] == ["a"]


def test_a_last_line_without_its_end_counts_if_it_is_whole(tmp_path: Path) -> None:
    found = read_records(record(tmp_path / "r", '{"kind": "a"}'))
    assert [line["kind"] for line in found.lines] == ["a"]
    assert not found.truncated


@pytest.mark.parametrize(
    "line", ['{"kind": "b", "n": 1\n', "[1]\n", '{"n": 1}\n', "\n", "\x00\xff\n"], ids=repr
)
def test_a_corrupt_line_is_named(tmp_path: Path, line: str) -> None:
    path = record(tmp_path / "r", '{"kind": "a"}\n', line, '{"kind": "c"}\n')
    with pytest.raises(RecordError, match=r"r, line 3: not a line of a record"):
        read_records(path)


def header(**changes: object) -> str:
    return json.dumps({"kind": "header", "program": "flashperf", "schema": SCHEMA_VERSION} | changes) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ('{"benchmarks": []}', "is not a record of flashperf"),
        ("not json\n", "is not a record of flashperf"),
        (header()[:20], "is not a record of flashperf"),
        (header(program="nvbench"), "is not a record of flashperf"),
        (header(kind="sample"), "is not a record of flashperf"),
        (header(schema=SCHEMA_VERSION + 1), rf"line 1: schema {SCHEMA_VERSION + 1}; this flashperf reads"),
        (header(schema="1"), "line 1: schema '1'"),
        (header(schema=True), "line 1: schema True"),
        ("[" * 100_000, "is not a record of flashperf"),
        ('{"kind": "header"' + " " * (1 << 21), "is not a record of flashperf"),
    ],
    ids=[
        "empty", "blank", "json", "text", "cut_header", "program", "kind", "newer", "schema_text",
        "schema_bool", "deep", "one_long_line",
    ],
)  # fmt: skip
def test_a_foreign_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "r"
    path.write_text(text)
    with pytest.raises(RecordError, match=message):
        read_records(path)


def test_what_can_not_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        read_records(tmp_path / "missing")
    with pytest.raises(RecordError, match="Is a directory"):
        read_records(tmp_path)
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(RecordError, match="not a record"):
        read_records(tmp_path / "binary")


def test_an_existing_record_is_kept_unless_told(tmp_path: Path) -> None:
    path = record(tmp_path / "r", '{"kind": "old"}\n')
    with pytest.raises(RecordError, match="exists already"):
        RecordWriter(path)
    assert read_records(path).lines[0]["kind"] == "old"
    RecordWriter(path, replace=True).close()
    assert read_records(path).lines == ()


def test_a_folder_that_can_not_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=r"can't write .*file/r\.jsonl.*choose another folder"):
        RecordWriter(tmp_path / "file" / "r.jsonl")

    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RecordError, match="Permission denied"):
        RecordWriter(tmp_path / "r.jsonl")


def test_a_full_disk_is_said_and_what_is_there_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RecordWriter(tmp_path / "r")
    writer.write("a")

    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(RecordError, match=r"No space left on device; what was written before is kept"):
            writer.write("b")
    writer.close()
    assert [line["kind"] for line in read_records(tmp_path / "r").lines] == ["a"]


def test_a_closed_record_takes_nothing(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "r")
    writer.close()
    writer.close()
    with pytest.raises(RecordError, match="is closed"):
        writer.write("a")


def measurement(environment: Environment | None) -> Measurement:
    return Measurement(
        case=Case.of("tiling", "blocked", "cpu", "f32", {"m": 512, "op": "softmax"}, seed=3),
        check=Check(True, 1e-6, 2e-6, math.inf, (1, 2), 1e-5, "", "y"),
        cost=Cost(10, 20, 30),
        samples_s=(0.1, 0.2),
        cpu_s=(0.1, 0.2),
        first_call_s=0.5,
        calls_per_sample=7,
        timer="scripted",
        cache_state="warm",
        environment=environment,
    )


@pytest.mark.parametrize("environment", [None, capture()], ids=["without", "with_environment"])
def test_a_measurement_survives_the_record(tmp_path: Path, environment: Environment | None) -> None:
    written = measurement(environment)
    with RecordWriter(tmp_path / "r") as writer:
        writer.write("measurement", value=written)
    (line,) = read_records(tmp_path / "r").of("measurement")
    assert from_json(Measurement, line["value"]) == written


def test_numbers_without_a_json_form_survive() -> None:
    for value in (math.inf, -math.inf):
        assert (
            from_json(Interval, json.loads(json.dumps(to_json(Interval(1.0, -math.inf, value))))).high
            == value
        )
    assert math.isnan(from_json(float, json.loads(json.dumps(to_json(math.nan)))))
    assert to_json(np.float32(0.5)) == 0.5
    assert to_json({"path": Path("a"), 1: None}) == {"path": "a", "1": None}
    with pytest.raises(TypeError, match="has no form in a record"):
        to_json(object())


def test_blocks_survive() -> None:
    block = Block("ABBABAAB", tuple(range(1, 9)), tuple(range(1, 9)), repeated=1, kept=2)
    assert from_json(Block, to_json(block)) == dataclasses.replace(
        block, wall_s=tuple(map(float, block.wall_s)), cpu_s=tuple(map(float, block.cpu_s))
    )


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (Interval, {"value": 1.0, "low": 0.0}, "Interval: .*high"),
        (Interval, {"value": "x", "low": 0.0, "high": 2.0}, "Interval.value: 'x' is not a number"),
        (Interval, [1.0], "a Interval is an object"),
        (Cost, {"flops": 1.5, "bytes_read": 1, "bytes_written": 1}, "Cost.flops: 1.5 is no int"),
        (Cost, {"flops": True, "bytes_read": 1, "bytes_written": 1}, "Cost.flops: true is no int"),
        (tuple[int, int], [1], "1 values where 2 belong"),
    ],
)
def test_data_that_do_not_fit_are_refused(kind: type, data: object, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        from_json(kind, data)


def test_unknown_fields_are_ignored_and_missing_ones_take_their_default() -> None:
    data = {"value": 1, "low": 0, "high": 2, "added_later": [1]}
    assert from_json(Interval, data) == Interval(1.0, 0.0, 2.0, 0.95)


def test_a_measurement_that_failed_its_check_can_not_be_read() -> None:
    data = to_json(measurement(None))
    data["check"]["passed"] = False
    with pytest.raises(RecordError, match="never timed"):
        from_json(Measurement, data)
