"""Weights in the layouts that kernels want, made afresh at every cycle.

A layout is made when a plan first asks for it: a mixture that never quantises holds no INT8 weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashperf.dtypes import cast
from flashperf.mechanisms._products import PANEL, packed_spec
from flashperf.mechanisms.quantization import quantize_columns
from flashperf.pipeline.engine import Engine


@dataclass(frozen=True)
class Int8Weight:
    """A weight [k, n] quantised per column: values, the sums of its columns (packed only), scales f32 [n]."""

    values: Any
    column_sums: Any
    scale: Any


def column_blocks(n: int, chunks: int) -> list[slice]:
    """At most ``chunks`` column ranges of whole panels that cover n columns."""
    panels = -(-n // PANEL)
    pieces = min(chunks, panels)
    edges = [panels * i // pieces * PANEL for i in range(pieces)] + [n]
    return [slice(edges[i], edges[i + 1]) for i in range(pieces)]


def _uncalibrated(name: str) -> float:
    raise ValueError(f"static INT8 scales need a calibration, and {name} has none")


class WeightStore:
    """The model's weights, converted and packed on demand and kept.

    ``calibration`` gives the INT8 scale of the input of a product by the weight's name (see ``calibration.py``).
    """

    def __init__(
        self,
        engine: Engine,
        weights: Mapping[str, np.ndarray],
        calibration: Callable[[str], float] | None = None,
    ) -> None:
        self.engine, self.calibration = engine, calibration or _uncalibrated
        self._source = weights
        self._made: dict[tuple[Any, ...], Any] = {}

    def vector(self, name: str, dtype: str) -> Any:
        """A 1-D or embedding weight as it is stored, converted to ``dtype``."""
        source = self._matrix(name)
        return self._once(
            ("vector", name, dtype),
            lambda: self.engine.constant(source.shape, dtype, lambda: cast(source, dtype)),
        )

    def plain(self, name: str, dtype: str, columns: slice) -> Any:
        """Columns of a weight [k, n], row-major."""
        source = self._matrix(name)[:, columns]
        return self._once(
            ("plain", name, dtype, columns.start, columns.stop),
            lambda: self.engine.constant(source.shape, dtype, lambda: cast(source, dtype)),
        )

    def packed(self, name: str, dtype: str, columns: slice) -> Any:
        """Columns of a weight packed in panels of 32 (bf16: pairs of rows interleaved)."""
        k, n = self._matrix(name)[:, columns].shape
        shape = packed_spec(k, n, dtype).shape

        def make() -> Any:
            packed = self.engine.empty(shape, dtype)
            self.engine.prepare(f"pack_{dtype}", self.plain(name, dtype, columns), packed).run()
            return packed

        return self._once(("packed", name, dtype, columns.start, columns.stop), make)

    def int8_plain(self, name: str, columns: slice) -> Int8Weight:
        """Columns of a weight quantised per column, row-major."""

        def make() -> Int8Weight:
            values, scale = self._quantized(name)
            part, part_scale = values[:, columns], scale[columns]
            engine = self.engine
            return Int8Weight(
                engine.constant(part.shape, "i8", lambda: np.ascontiguousarray(part)),
                None,
                engine.constant(part_scale.shape, "f32", lambda: part_scale),
            )

        return self._once(("int8", name, columns.start, columns.stop), make)

    def int8_packed(self, name: str, columns: slice) -> Int8Weight:
        """Columns of a weight quantised per column and packed, with the sums of its columns."""

        def make() -> Int8Weight:
            plain = self.int8_plain(name, columns)
            k, n = plain.values.shape
            packed = self.engine.empty(packed_spec(k, n, "i8").shape, "i8")
            sums = self.engine.empty((n,), "i32")
            self.engine.prepare("pack_i8", plain.values, packed, sums).run()
            return Int8Weight(packed, sums, plain.scale)

        return self._once(("int8_packed", name, columns.start, columns.stop), make)

    def w8_packed(self, name: str, columns: slice) -> Int8Weight:
        """Columns of a weight quantised per column, in panels of 32 without interleaving; for float activations."""

        def make() -> Int8Weight:
            plain = self.int8_plain(name, columns)
            k, n = plain.values.shape
            packed = self.engine.empty((-(-n // PANEL), k, PANEL), "i8")
            self.engine.prepare("pack_w8", plain.values, packed).run()
            return Int8Weight(packed, None, plain.scale)

        return self._once(("w8_packed", name, columns.start, columns.stop), make)

    def static_scale(self, name: str, rows: int) -> Any:
        """The scale that calibration found for the input of a product, f32 [rows], every element the same."""
        value = self.calibration(name)
        make = lambda: np.full(rows, value, np.float32)  # noqa: E731
        return self.table(f"static_scale.{name}", (rows,), "f32", make)

    def begin(self, number: int) -> None:
        """A segment of a program begins; what is resident needs nothing."""

    def table(self, name: str, shape: tuple[int, ...], dtype: str, make: Callable[[], np.ndarray]) -> Any:
        """A constant that is not a weight (a mask, rotary angles), made once."""
        return self._once(("table", name, shape), lambda: self.engine.constant(shape, dtype, make))

    def _matrix(self, name: str) -> np.ndarray:
        """A weight by name; ``head`` is the transposed embedding (tied)."""
        return self._source["embed"].T if name == "head" else self._source[name]

    def _quantized(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self._once(("quantized", name), lambda: quantize_columns(self._matrix(name)))

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]
