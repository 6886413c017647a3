"""The pipeline's saved state: when it is saved, that decoding goes on from it, and a disk that has no room."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flashperf.errors import UserError
from flashperf.pipeline.buffers import Buffers
from flashperf.pipeline.checkpoint import AsyncCheckpoint, Checkpoint, restore
from flashperf.pipeline.config import ModelConfig
from flashperf.pipeline.engine import CpuEngine
from flashperf.pipeline.scenario import Scenario, custom_scenario
from flashperf.pipeline.storage import WeightStore
from flashperf.pipeline.switches import STANDARD
from flashperf.pipeline.task import Task
from flashperf.pipeline.weights import random_weights
from flashperf.state_file import StateFile

ODD = ModelConfig("odd", layers=2, dim=48, heads=4, ffn=104)
ODD_WEIGHTS = random_weights(ODD, seed=3)
WHOLE = custom_scenario((7, 1, 12), steps=6, seed=1)
KINDS = {"every_n_sync": Checkpoint, "every_n_async": AsyncCheckpoint}


def make_task(level: str, what: Scenario = WHOLE) -> Task:
    engine = CpuEngine()
    levels = {**STANDARD, "checkpoint": level}
    return Task(engine, ODD, WeightStore(engine, ODD_WEIGHTS), Buffers(engine), what, levels)


@pytest.mark.parametrize("level", KINDS)
def test_state_is_saved_every_n_steps(level: str) -> None:
    task = make_task(level)
    task.run()
    save = task.checkpoint
    assert isinstance(save, KINDS[level])
    assert save.saves == WHOLE.steps // WHOLE.checkpoint_every
    assert save.wait_s > 0
    with np.load(save.file.path) as state:
        position = state["position"]
        used = int(position.max()) + 1
        for number, cache in enumerate(save.caches):
            np.testing.assert_array_equal(state[f"cache{number}"], cache[:, :, :used])
    assert position.tolist() == (WHOLE.lengths + WHOLE.steps - 1).tolist()
    task.close()


@pytest.mark.parametrize("level", KINDS)
def test_decoding_goes_on_from_a_restored_state_with_the_same_numbers(level: str) -> None:
    whole: list[np.ndarray] = []
    make_task("none").run(collect=whole)

    first_steps = 4
    first = Scenario("first", WHOLE.prompts, WHOLE.continuation[:, :first_steps], 2, window=WHOLE.window)
    saved = make_task(level, first)
    saved.run()
    assert saved.checkpoint is not None

    fresh = make_task(level)  # nothing but the file is left of the first
    caches = fresh.checkpoint.caches  # type: ignore[union-attr]
    position = restore(saved.checkpoint.file.path, caches)
    np.testing.assert_array_equal(position, WHOLE.lengths + first_steps - 1)
    decode = next(step for step in fresh.steps if step.decodes)
    for step in range(first_steps, WHOLE.steps):
        decode.program.inputs.set(decode.blocks[step])
        decode.program.replay()
        np.testing.assert_array_equal(decode.program.logits, whole[step + 1])
    saved.close()


@pytest.mark.parametrize("level", KINDS)
def test_a_full_disk_is_one_clear_line_and_leaves_the_last_state(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(level)
    task.run()
    assert task.checkpoint is not None
    before = task.checkpoint.file.path.read_bytes()

    def full(file: object, **state: np.ndarray) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(UserError, match=r"can't be saved in .*: no space left on device; make room"):
        task.run()
    assert task.checkpoint.file.path.read_bytes() == before
    assert list(task.checkpoint.file.path.parent.iterdir()) == [task.checkpoint.file.path]
    task.close()


def test_a_state_file_keeps_the_last_whole_state_alone(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    assert list(tmp_path.iterdir()) == []
    for text in (b"one", b"two"):
        file.write(lambda open_file, text=text: open_file.write(text))  # type: ignore[misc]
        assert file.path.read_bytes() == text
        assert list(file.path.parent.iterdir()) == [file.path]
    file.close()
    assert list(tmp_path.iterdir()) == []


def test_mixtures_of_a_process_save_to_one_file_which_goes_with_it() -> None:
    script = (
        "import numpy as np; from flashperf.pipeline.checkpoint import Checkpoint\n"
        "saves = [Checkpoint([np.zeros((1, 1, 4, 2))], 1) for _ in range(2)]\n"
        "for save in saves: save.after_step(1, np.array([2]))\n"
        "assert saves[0].file.path.exists() and saves[0].file is saves[1].file\n"
        "print(saves[0].file.path.parent)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not Path(ran.stdout.strip()).exists()


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    save = Checkpoint([np.zeros((1, 1, 4, 2))], 1, StateFile(tmp_path / "gone"))
    with pytest.raises(UserError, match="no such file or directory"):
        save.after_step(1, np.array([2]))


def test_the_thread_is_waited_for_before_the_next_save(tmp_path: Path) -> None:
    order: list[str] = []

    class Slow(AsyncCheckpoint):
        def _copy(self, position: np.ndarray) -> dict[str, np.ndarray]:
            order.append("copy")
            return super()._copy(position)

        def _write(self, state: dict[str, np.ndarray]) -> None:
            super()._write(state)
            order.append("written")

    save = Slow([np.zeros((1, 1, 4, 2))], 1, StateFile(tmp_path))
    for step in range(3):
        save.after_step(step + 1, np.array([step]))
    save.finish()
    save.close()
    assert order == ["copy", "written"] * 3


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    path.write_bytes(b"PK not an archive")
    with pytest.raises(UserError, match="no state that these caches can be restored from"):
        restore(path, [np.zeros((1, 1, 4, 2))])
