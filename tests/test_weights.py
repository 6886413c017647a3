"""Safetensors in NumPy: what is written is read back, a damaged file is refused with its fault named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flashperf.dtypes import to_bf16
from flashperf.pipeline.config import PRESETS, SMALL, ModelConfig, preset
from flashperf.pipeline.weights import (
    check_shapes,
    load_weights,
    random_weights,
    read_safetensors,
    small_weights_path,
    write_safetensors,
)

TENSORS = {
    "half": np.array([[1.5, -2.0, 0.25]], np.float16),
    "single": np.arange(6, dtype=np.float32).reshape(2, 3),
    "double": np.array(2.5),
    "brain": to_bf16(np.array([1.0, -3.0], np.float32)),
    "bytes": np.arange(5, dtype=np.uint8),
    "empty": np.zeros((0, 4), np.int64),
}


def raw_file(path: Path, header: object, body: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def entry(dtype: str = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def test_roundtrip(tmp_path: Path):
    path = tmp_path / "some.safetensors"
    write_safetensors(path, TENSORS, {"seed": "0"})
    read = read_safetensors(path)
    assert list(read) == list(TENSORS)
    for name, array in TENSORS.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array, strict=True)
    assert [file.name for file in tmp_path.iterdir()] == ["some.safetensors"]


def test_equal_tensors_give_equal_bytes(tmp_path: Path):
    first, second = tmp_path / "a", tmp_path / "b"
    write_safetensors(first, TENSORS)
    write_safetensors(second, dict(TENSORS))
    assert first.read_bytes() == second.read_bytes()


def test_file_is_readable_by_the_safetensors_package(tmp_path: Path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="the safetensors package is not installed")
    path = tmp_path / "plain.safetensors"
    plain = {name: array for name, array in TENSORS.items() if name != "brain"}
    write_safetensors(path, plain, {"seed": "0"})
    read = safetensors.load_file(path)
    for name, array in plain.items():
        np.testing.assert_array_equal(read[name], array)


def test_a_non_contiguous_array_is_written_row_major(tmp_path: Path):
    path = tmp_path / "turned"
    write_safetensors(path, {"x": TENSORS["single"].T})
    np.testing.assert_array_equal(read_safetensors(path)["x"], TENSORS["single"].T)


def test_writing_an_unknown_dtype_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="complex128"):
        write_safetensors(tmp_path / "x", {"x": np.ones(2, complex)})


@pytest.mark.parametrize("keep", [0, 7, 8, 100, -1])
def test_every_truncation_is_noticed(tmp_path: Path, keep: int):
    path = tmp_path / "cut.safetensors"
    write_safetensors(path, TENSORS)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"cut\.safetensors.*(8-byte|truncated)"):
        read_safetensors(path)


@pytest.mark.parametrize(
    ("header", "body", "fault"),
    [
        (b"not json", b"", "no JSON"),
        (b"\xff\xfe", b"", "no JSON"),
        ([1], b"", "no JSON object"),
        ({"x": 3}, b"", "needs dtype"),
        ({"x": {"dtype": "F32"}}, b"", "needs dtype"),
        (entry(dtype="F8_E4M3"), bytes(8), "unknown dtype 'F8_E4M3'"),
        (entry(dtype=["F32"]), bytes(8), "unhashable|unknown dtype"),
        (entry(shape=[-2]), bytes(8), "invalid shape"),
        (entry(shape="2"), bytes(8), "invalid shape"),
        (entry(shape=[3]), bytes(8), "don't fit"),
        (entry(offsets=[8, 16]), bytes(16), "don't fit"),
        (entry(offsets=[0]), bytes(8), "values to unpack"),
        (entry(offsets=["0", "8"]), bytes(8), "unsupported|don't fit"),
        (entry(), bytes(12), "4 bytes belong to no tensor"),
        (entry() | {"y": entry()["x"]}, bytes(8), "don't fit"),
    ],
)
def test_a_corrupt_file_is_refused(tmp_path: Path, header: object, body: bytes, fault: str):
    with pytest.raises(ValueError, match=fault):
        read_safetensors(raw_file(tmp_path / "bad", header, body))


def test_load_weights_widens_and_checks(tmp_path: Path):
    path = tmp_path / "tiny.safetensors"
    weights = random_weights(PRESETS["tiny"], seed=3)
    write_safetensors(path, {name: to_bf16(array) for name, array in weights.items()})
    loaded = load_weights(path, PRESETS["tiny"])
    assert {array.dtype for array in loaded.values()} == {np.dtype(np.float32)}
    for name, array in weights.items():
        np.testing.assert_allclose(loaded[name], array, rtol=2**-8)
    with pytest.raises(ValueError, match=r"missing \['layers.1.down'"):
        load_weights(path, SMALL)


def test_load_weights_refuses_integers(tmp_path: Path):
    write_safetensors(tmp_path / "x", {"norm": np.arange(3)})
    with pytest.raises(ValueError, match="int64"):
        load_weights(tmp_path / "x")


def test_a_wrong_shape_is_named():
    weights = random_weights(PRESETS["tiny"])
    weights["layers.0.up"] = weights["layers.0.up"].T
    with pytest.raises(ValueError, match=r"layers\.0\.up has shape \(128, 64\)"):
        check_shapes(weights, PRESETS["tiny"])


def test_random_weights_follow_the_seed_and_keep_the_scale():
    config = PRESETS["tiny"]
    first, again, other = (random_weights(config, seed) for seed in (1, 1, 2))
    check_shapes(first, config)
    np.testing.assert_array_equal(first["embed"], again["embed"])
    assert not np.array_equal(first["embed"], other["embed"])
    assert first["layers.0.down"].std() == pytest.approx(128**-0.5, rel=0.05)
    assert {array.dtype for array in first.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("config", [SMALL, *PRESETS.values()], ids=lambda config: config.name)
def test_parameters_is_the_sum_of_the_shapes(config: ModelConfig):
    assert config.parameters() == sum(int(np.prod(shape)) for shape in config.shapes().values())


def test_small_weights_are_committed_complete_and_below_4_mb():
    path = small_weights_path()
    assert path.stat().st_size < 4_000_000
    tensors = read_safetensors(path)
    check_shapes(tensors, SMALL)
    assert {array.dtype for array in tensors.values()} == {np.dtype(np.uint16)}


def test_an_unknown_preset_gets_the_nearest_names():
    assert preset("tiny") is PRESETS["tiny"]
    with pytest.raises(ValueError, match="tiny"):
        preset("tinny")


@pytest.mark.parametrize("sizes", [{"heads": 5}, {"heads": 64}, {"layers": 0}])
def test_impossible_shapes_are_refused(sizes: dict[str, int]):
    with pytest.raises(ValueError, match="odd"):
        ModelConfig("odd", **({"layers": 1, "dim": 64, "heads": 2, "ffn": 128} | sizes))
