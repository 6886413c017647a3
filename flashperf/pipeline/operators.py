"""Lowering of single operators: a KernelSpec and its arrays become bound kernel calls.

Shapes: x [m, k] activations; weights by name; outputs are named buffers. Chunks cut rows where there are several
and columns of the weight where there is one, so that every call still sees contiguous arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flashperf.pipeline.lowering import Lowering
from flashperf.pipeline.plan import KernelSpec
from flashperf.pipeline.storage import column_blocks


def row_blocks(m: int, chunks: int) -> list[slice]:
    """At most ``chunks`` row ranges that cover m rows."""
    pieces = min(chunks, m)
    return [slice(m * i // pieces, m * (i + 1) // pieces) for i in range(pieces)]


def flat(array: Any) -> Any:
    """The array as one axis; elementwise kernels take it so."""
    return array.reshape(-1)


class Operators(Lowering):
    """Appends the calls of operators to a program."""

    def linear(self, spec: KernelSpec, x: Any, weight: str, n: int, out: str) -> Any:
        """y = x @ weight, [m, k] x [k, n] -> [m, n] in the storage type, as the buffer ``out``."""
        y = self.buffer(out, (x.shape[0], n), spec.storage)
        if spec.format in ("int8", "int8_static"):
            self._int8(spec, *self._quantize(spec, x, weight), weight, y)
        elif spec.format == "w8":
            self._weight_only(spec, x, weight, y)
        elif spec.format == "mixed":
            self._mixed(spec, x, weight, y)
        elif spec.casts:
            self._cast_around(spec, x, weight, y)
        else:
            for rows, columns in self._pieces(spec, x.shape[0], n):
                self._product(spec, x[rows], weight, columns, y[rows, columns])
        return y

    def _pieces(self, spec: KernelSpec, m: int, n: int) -> Iterator[tuple[slice, slice]]:
        """Row and column ranges of the calls that a product is issued as."""
        if m == 1:
            yield from ((slice(0, 1), columns) for columns in column_blocks(n, spec.chunks))
        else:
            yield from ((rows, slice(0, n)) for rows in row_blocks(m, spec.chunks))

    def _product(self, spec: KernelSpec, x: Any, weight: str, columns: slice, y: Any) -> None:
        kind = spec.format
        if spec.algorithm == "packed":
            self.emit(f"gemm_{kind}_packed", x, self.weights.packed(weight, kind, columns), y)
        else:
            self.emit(f"gemm_{kind}_{spec.algorithm}", x, self.weights.plain(weight, kind, columns), y)

    def _mixed(self, spec: KernelSpec, x: Any, weight: str, y: Any) -> None:
        """Operands and weights cast to bf16 in memory, product, result cast back: on every call."""
        algorithm = "blocked" if spec.algorithm == "packed" else spec.algorithm
        x_half = self.buffer("cast_x", x.shape, "bf16")
        y_half = self.buffer("cast_y", y.shape, "bf16")
        self.emit("cast_f32_bf16", flat(x), flat(x_half))
        pieces = list(self._pieces(spec, x.shape[0], y.shape[1]))
        halves = {}
        for columns in {(c.start, c.stop): c for _, c in pieces}.values():
            source = self.weights.plain(weight, "f32", columns)
            half = self.buffer(f"cast_w{columns.start}", source.shape, "bf16")
            self.emit("cast_f32_bf16", flat(source), flat(half))
            halves[columns.start] = half
        for rows, columns in pieces:
            self.emit(f"gemm_bf16_{algorithm}", x_half[rows], halves[columns.start], y_half[rows, columns])
        self.emit("cast_bf16_f32", flat(y_half), flat(y))

    def _cast_around(self, spec: KernelSpec, x: Any, weight: str, y: Any) -> None:
        """Activations cast to bf16 and back, weights kept in bf16."""
        x_half, y_half = (self.buffer(f"cast_{n}", a.shape, "bf16") for n, a in (("x", x), ("y", y)))
        self.emit("cast_f32_bf16", flat(x), flat(x_half))
        for rows, columns in self._pieces(spec, x.shape[0], y.shape[1]):
            self._product(spec, x_half[rows], weight, columns, y_half[rows, columns])
        self.emit("cast_bf16_f32", flat(y_half), flat(y))

    def _weight_only(self, spec: KernelSpec, x: Any, weight: str, y: Any) -> None:
        """INT8 weights widened inside the packed product; the other products get them as floats in memory."""
        for rows, columns in self._pieces(spec, *y.shape):
            if spec.algorithm == "packed":
                w = self.weights.w8_packed(weight, columns)
                self.emit(f"gemm_w8_packed_{spec.storage}", x[rows], w.values, w.scale, y[rows, columns])
                continue
            w = self.weights.int8_plain(weight, columns)
            wide = self.buffer("dequantized_w", w.values.shape, spec.storage)
            self.emit(f"dequantize_weight_{spec.storage}", w.values, w.scale, wide)
            self.emit(f"gemm_{spec.storage}_{spec.algorithm}", x[rows], wide, y[rows, columns])

    def _quantize(self, spec: KernelSpec, x: Any, weight: str) -> tuple[Any, Any]:
        """INT8 values of x [m, k] and the scale of each row: its absmax, or what calibration found for ``weight``."""
        q = self.buffer("int8_x", x.shape, "i8")
        if spec.format == "int8_static":
            scale = self.weights.static_scale(weight, x.shape[0])
            known = self.weights.calibration(weight)
            self.emit(f"quantize_rows_static_{spec.storage}", x, q, scale=known)
            return q, scale
        scale = self.buffer("int8_scale", x.shape[:1], "f32")
        self.emit(f"quantize_rows_{spec.storage}", x, q, scale)
        return q, scale

    def _int8(self, spec: KernelSpec, q: Any, q_scale: Any, weight: str, y: Any) -> None:
        for rows, columns in self._pieces(spec, *y.shape):
            out = y[rows, columns]
            if spec.algorithm != "packed":
                w = self.weights.int8_plain(weight, columns)
                acc = self.buffer("int8_acc", out.shape, "i32")
                self.emit(f"gemm_i8_{spec.algorithm}", q[rows], w.values, acc)
                self.emit(f"dequantize_{spec.storage}", acc, q_scale[rows], w.scale, out)
                continue
            w = self.weights.int8_packed(weight, columns)
            if spec.epilogue == "passes":
                acc = self.buffer("int8_acc", out.shape, "i32")
                self.emit("gemm_i8_packed", q[rows], w.values, w.column_sums, acc)
                self.emit(f"dequantize_{spec.storage}", acc, q_scale[rows], w.scale, out)
            else:
                kernel = f"gemm_i8_packed_dequant_{spec.storage}"
                self.emit(kernel, q[rows], w.values, w.column_sums, q_scale[rows], w.scale, out)

    def mlp(self, spec: KernelSpec, x: Any, layer: str, ffn: int, down: KernelSpec) -> Any:
        """(silu(x @ gate) * (x @ up)) @ down; x [m, d] -> [m, d], as the buffer ``delta``."""
        if spec.algorithm == "over":
            return self._mlp_over(spec, x, layer, ffn)
        if spec.epilogue == "fused":
            hidden = self._swiglu_product(spec, x, layer, ffn)
        else:
            gate = self.linear(spec, x, f"{layer}.gate", ffn, "gate")
            up = self.linear(spec, x, f"{layer}.up", ffn, "up")
            hidden = self._swiglu(spec, gate, up)
        return self.linear(down, hidden, f"{layer}.down", x.shape[1], "delta")

    def _swiglu(self, spec: KernelSpec, gate: Any, up: Any) -> Any:
        hidden = self.buffer("hidden", gate.shape, spec.storage)
        for rows, columns in self._pieces(spec, *gate.shape):
            parts = [flat(array[rows, columns]) for array in (gate, up, hidden)]
            if spec.epilogue == "passes":
                activated = flat(self.buffer("activated", gate.shape, spec.storage)[rows, columns])
                self.emit(f"silu_{spec.storage}", parts[0], activated)
                self.emit(f"multiply_{spec.storage}", activated, parts[1], parts[2])
            else:
                self.emit(f"swiglu_{spec.storage}", *parts)
        return hidden

    def _swiglu_product(self, spec: KernelSpec, x: Any, layer: str, ffn: int) -> Any:
        """Gate and up products with SwiGLU as their epilogue: one kernel, packed weights."""
        hidden = self.buffer("hidden", (x.shape[0], ffn), spec.storage)
        if spec.format == "w8":
            return self._swiglu_weight_only(spec, x, layer, hidden)
        integers = spec.format in ("int8", "int8_static")
        q = self._quantize(spec, x, f"{layer}.gate") if integers else None
        for rows, columns in self._pieces(spec, x.shape[0], ffn):
            out = hidden[rows, columns]
            if q is not None:
                gate, up = (self.weights.int8_packed(f"{layer}.{w}", columns) for w in ("gate", "up"))
                operands = (gate.values, gate.column_sums, up.values, up.column_sums)
                scales = (q[1][rows], gate.scale, up.scale)
                self.emit(f"gemm_swiglu_i8_packed_{spec.storage}", q[0][rows], *operands, *scales, out)
            else:
                pair = [self.weights.packed(f"{layer}.{w}", spec.format, columns) for w in ("gate", "up")]
                self.emit(f"gemm_swiglu_{spec.format}_packed", x[rows], *pair, out)
        return hidden

    def _swiglu_weight_only(self, spec: KernelSpec, x: Any, layer: str, hidden: Any) -> Any:
        for rows, columns in self._pieces(spec, *hidden.shape):
            gate, up = (self.weights.w8_packed(f"{layer}.{w}", columns) for w in ("gate", "up"))
            operands = (gate.values, gate.scale, up.values, up.scale)
            kernel = f"gemm_swiglu_w8_packed_{spec.storage}"
            self.emit(kernel, x[rows], *operands, hidden[rows, columns])
        return hidden

    def _mlp_over(self, spec: KernelSpec, x: Any, layer: str, ffn: int) -> Any:
        """The whole MLP in one kernel."""
        y = self.buffer("delta", x.shape, spec.storage)
        wide, narrow = slice(0, ffn), slice(0, x.shape[1])
        names = ((f"{layer}.gate", wide), (f"{layer}.up", wide), (f"{layer}.down", narrow))
        if spec.format == "int8":
            parts = [self.weights.int8_packed(*name) for name in names]
            operands = [array for w in parts for array in (w.values, w.column_sums, w.scale)]
            self.emit(f"mlp_over_i8_{spec.storage}", x, *operands, y, f=ffn)
        elif spec.casts:
            # The operands are cast for the call; the kernel wants packed weights, so those are packed once.
            x_half, y_half = (self.buffer(name, x.shape, "bf16") for name in ("cast_x", "cast_y"))
            self.emit("cast_f32_bf16", flat(x), flat(x_half))
            packed = [self.weights.packed(name, "bf16", columns) for name, columns in names]
            self.emit("mlp_over_bf16", x_half, *packed, y_half, f=ffn)
            self.emit("cast_bf16_f32", flat(y_half), flat(y))
        else:
            packed = [self.weights.packed(name, spec.format, columns) for name, columns in names]
            self.emit(f"mlp_over_{spec.format}", x, *packed, y, f=ffn)
        return y
