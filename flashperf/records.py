"""The central types: what is measured, what it costs, what came out. Frozen, pure, units in the names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SCHEMA_VERSION = 1

Sizes = Mapping[str, int | str]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One variant of a mechanism at one size; its ``id`` is the pytest id, the JSON key and the plot label."""

    mechanism: str
    variant: str
    backend: str
    dtype: str
    sizes: tuple[tuple[str, int | str], ...]
    seed: int = 0

    @staticmethod
    def of(mechanism: str, variant: str, backend: str, dtype: str, sizes: Sizes, seed: int = 0) -> Case:
        """Build a case from a mapping of sizes, kept in the mapping's order."""
        return Case(mechanism, variant, backend, dtype, tuple(sizes.items()), seed)

    @property
    def id(self) -> str:
        """``mechanism/variant/backend/dtype/m=512-n=512``; the seed is not part of it."""
        sizes = "-".join(f"{name}={value}" for name, value in self.sizes)
        return f"{self.mechanism}/{self.variant}/{self.backend}/{self.dtype}/{sizes}"

    @staticmethod
    def parse(text: str, seed: int = 0) -> Case:
        """The inverse of ``id``. Raises ValueError on anything that no ``id`` looks like."""
        match = re.fullmatch(r"([\w.]+)/([\w.]+)/(\w+)/(\w+)/((?:\w+=\w+)(?:-\w+=\w+)*)", text)
        if not match:
            raise ValueError(f"not a case id: {text!r}")
        mechanism, variant, backend, dtype, tail = match.groups()
        sizes = (part.split("=") for part in tail.split("-"))
        return Case.of(
            mechanism, variant, backend, dtype, {k: int(v) if v.isdigit() else v for k, v in sizes}, seed
        )

    def __getitem__(self, name: str) -> int:
        """An integer size by name."""
        value = dict(self.sizes)[name]
        if not isinstance(value, int):
            raise TypeError(f"{self.id}: size {name} is {value!r}, not a number")
        return value

    def text(self, name: str) -> str:
        """A size that is a word, such as ``op=softmax``."""
        return str(dict(self.sizes)[name])

    def with_variant(self, variant: str) -> Case:
        """The same case for another variant: same sizes, same seed, hence the same inputs."""
        return Case(self.mechanism, variant, self.backend, self.dtype, self.sizes, self.seed)


@dataclass(frozen=True)
class Cost:
    """What one call must do, exact integers. Bytes are the unique bytes of each of its kernels, summed."""

    flops: int
    bytes_read: int
    bytes_written: int
    bytes_transferred: int = 0
    launches: int = 1
    allocations: int = 0
    syncs: int = 0

    @property
    def bytes(self) -> int:
        """Bytes read and written by all kernels of the call."""
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Tolerance:
    """When an output counts as right. ``reason`` says where the numbers come from.

    An element passes if |got - reference| <= absolute + relative * |reference|; the whole passes if every
    element does and the signal-to-noise ratio over all elements is at least ``min_snr_db`` (where given).
    """

    relative: float
    absolute: float
    reason: str
    min_snr_db: float | None = None


@dataclass(frozen=True)
class Check:
    """The verdict on an output against its float64 reference."""

    passed: bool
    max_abs_error: float
    max_rel_error: float
    snr_db: float
    worst_index: tuple[int, ...]
    limit: float
    reason: str = ""
    output: str = ""


@dataclass(frozen=True)
class ArraySpec:
    """Shape and short dtype name of one array."""

    shape: tuple[int, ...]
    dtype: str


#: Binds one case to its buffers once; the returned call takes nothing and does all the work of the variant.
Binder = Callable[[Case, Arrays, Arrays], Callable[[], None]]


@dataclass(frozen=True)
class Mechanism:
    """One trade-off: the same work done in the standard way and in others, on every backend that has it.

    variants:    variant name -> the backends that implement it
    standard:    the variant that the others are measured against
    flash:       the variant that a "Flash" model would use
    dtypes:      short names; the first is the default
    make_inputs: case -> named input arrays, from the case's seed alone
    outputs:     case -> the named outputs that a call must write (the engine allocates and poisons them)
    reference:   (case, inputs) -> named float64 outputs
    cost:        case -> Cost of that variant; ideal_bytes: case -> the mechanism's own minimum
    tolerance:   case -> Tolerance
    bind:        backend -> Binder
    supports:    case -> "" if it runs on this machine, else the reason why not (an ISA, a size)
    arithmetic:  case -> the format in which that variant multiplies; whose peak bounds it
    gpu_bench_sizes: bench sizes of the backends that run on a GPU, if others keep one busy
    stand_in:    variant -> what it stands in for on a CPU, of something that only a GPU has
    """

    name: str
    question: str
    claims: tuple[str, ...]
    variants: Mapping[str, tuple[str, ...]]
    standard: str
    flash: str
    dtypes: tuple[str, ...]
    test_sizes: Sequence[Sizes]
    bench_sizes: Sequence[Sizes]
    make_inputs: Callable[[Case], Arrays]
    outputs: Callable[[Case], dict[str, ArraySpec]]
    reference: Callable[[Case, Arrays], Arrays]
    cost: Callable[[Case], Cost]
    ideal_bytes: Callable[[Case], int]
    tolerance: Callable[[Case], Tolerance]
    bind: Mapping[str, Binder]
    supports: Callable[[Case], str] = lambda case: ""
    stand_in: Mapping[str, str] = field(default_factory=dict)
    gpu_bench_sizes: Sequence[Sizes] = ()
    arithmetic: Callable[[Case], str] = lambda case: case.dtype

    def sizes(self, kind: str, backend: str) -> Sequence[Sizes]:
        """The sizes for "test" or "bench" on a backend."""
        if kind == "test":
            return self.test_sizes
        return self.bench_sizes if backend == "cpu" else self.gpu_bench_sizes or self.bench_sizes

    def __post_init__(self) -> None:
        for role in (self.standard, self.flash):
            if role not in self.variants:
                raise ValueError(
                    f"mechanism {self.name}: no variant {role!r} among {', '.join(self.variants)}"
                )
        for variant, backends in self.variants.items():
            missing = [backend for backend in backends if backend not in self.bind]
            if missing:
                raise ValueError(
                    f"mechanism {self.name}: variant {variant} names {missing}, which bind lacks"
                )


@dataclass(frozen=True)
class Environment:
    """Where a measurement was made. ``comparable_key`` names what must be equal for two to be compared."""

    device: str
    isa: tuple[str, ...]
    threads: int
    cores: int
    quota_cores: float | None
    clock_mhz: float | None
    load_1min: float | None
    pressure_some_avg10: float | None
    timer: str
    timer_resolution_s: float
    python: str
    os: str
    compiler: str
    driver: str
    versions: Mapping[str, str]
    commit: str
    dirty: bool
    busy: bool
    busy_reason: str = ""

    @property
    def comparable_key(self) -> dict[str, Any]:
        """The fields that two runs must share; load, clock and commit may differ."""
        return {
            "device": self.device,
            "isa": tuple(self.isa),
            "threads": self.threads,
            "cores": self.cores,
            "quota_cores": self.quota_cores,
            "compiler": self.compiler,
            "driver": self.driver,
            "python": self.python,
        }


@dataclass(frozen=True)
class Measurement:
    """Raw samples of one checked case; every statistic is derived on reading."""

    case: Case
    check: Check
    cost: Cost
    samples_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    first_call_s: float
    calls_per_sample: int
    timer: str
    cache_state: str
    environment: Environment | None = None
    disturbed: int = 0
    details: Mapping[str, Any] = field(
        default_factory=dict
    )  # what the call says of itself: what a tuner tried

    def __post_init__(self) -> None:
        if not self.check.passed:
            raise ValueError(
                f"{self.case.id}: a kernel whose output is wrong is never timed ({self.check.reason})"
            )


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval. For a share or ratio: exp of the log-scale numbers."""

    value: float
    low: float
    high: float
    confidence: float = 0.95

    @property
    def half_width(self) -> float:
        """Half of high - low, in the unit of the value."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Comparison:
    """b against a: ratio = time of b / time of a; above 1 means that b is slower."""

    ratio: Interval
    verdict: str  # "faster", "slower", "equivalent", "unresolved"
    blocks: int
    processes: int
    margin: float
    reason: str = ""


@dataclass(frozen=True)
class Placement:
    """Where a measurement lies against the roofs of its machine. A fraction above 1 is a model error."""

    flops_per_s: float
    bytes_per_s: float
    intensity_flops_per_byte: float
    fraction_of_roof: float
    bound: str  # "memory", "compute", "launch"
    roof: str
    roof_source: str
    model_error: str = ""
    simulated_bytes: int | None = None  # counted by the emulator; None where they were not
    simulated_over_declared: float | None = None  # those bytes / the Cost's: 1 where the Cost is right


@dataclass(frozen=True)
class Share:
    """One switch of an attribution. All intervals are ratios of times (1 = no effect)."""

    switch: str
    standard: str
    flash: str
    active: bool
    share: Interval
    percent: Interval | None
    alone: Interval
    on_top: Interval
    predicted: Interval | None = None
    predicted_cold: Interval | None = None
    unexplained: Interval | None = None
    between_over_within: float | None = None


@dataclass(frozen=True)
class Interaction:
    """A pair of switches whose joint effect is not the product of their own; confirmed by fresh blocks."""

    switches: tuple[str, str]
    ratio_on_standard: Interval
    ratio_on_flash: Interval
    confirmed: bool
    ratio: Interval | None = None  # over both backgrounds; what ``confirmed`` rests on


@dataclass(frozen=True)
class Attribution:
    """The measured slowdown total = T(flash) / T(standard), split over switches; shares multiply to it."""

    total: Interval
    shares: tuple[Share, ...]
    interactions: tuple[Interaction, ...]
    workers: int
    runs: int
    repeated: int
    seconds: float
    stopped: str  # why measuring ended: "budget", "precise enough", "interrupted"
    widest_half_width_log: float
    widest_half_width_percent: float | None
    sum_unexplained_log: float | None = None
    notes: tuple[str, ...] = ()
    smallest_detectable_interaction: float | None = None  # ratio that fresh blocks would have found


@dataclass(frozen=True)
class Metric:
    """One row of the metrics table: both variants side by side. ``note`` says why a value is missing."""

    name: str
    unit: str
    better: str  # "lower", "higher" or "" where neither is better
    standard: Interval | None
    flash: Interval | None
    ratio: Interval | None = None  # flash / standard
    note: str = ""


@dataclass(frozen=True)
class Advice:
    """What to switch back first, and what that gave when that mixture was run."""

    switch: str
    level_from: str
    level_to: str
    ratio_to_flash: Interval  # time of the mixture / time of Flash; below 1 is a gain
    ratio_to_standard: Interval  # time of the mixture / time of Standard


@dataclass(frozen=True)
class Explanation:
    """All that ``flashperf explain`` found: every table, sentence and picture is drawn from this."""

    subject: str  # "pipeline small, scenario single" or "module:factory"
    environment: Environment
    standard: Mapping[str, str]
    flash: Mapping[str, str]
    metrics: tuple[Metric, ...]
    attribution: Attribution
    advice: Advice | None
    seed: int
    budget_s: float
    seconds: float
    busy: bool
    partial: bool = False
    notes: tuple[str, ...] = ()
