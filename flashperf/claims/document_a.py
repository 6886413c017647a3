"""Claims of "Performance Paradox in Model Deployment"."""

from __future__ import annotations

from flashperf.claims.arithmetic import slip_of_latency
from flashperf.claims.definition import (
    Claim,
    ExplainMetric,
    ExplainShare,
    HitRate,
    Pair,
    ScenarioTotal,
    Untestable,
)

_NO_GPU = "it speaks of a GPU's counters, and none was used"

CLAIMS = (
    Claim(
        "A1", "A single task takes 14.4 minutes in Flash and 6.8 in Standard.", ExplainMetric("a", "task latency"),
        "task latency of the pipeline, Flash A / Standard", 14.4 / 6.8, slip=slip_of_latency(),
    ),
    Claim(
        "A2", "Throughput falls from 243.1 to 115.7 samples a second.", ExplainMetric("a", "throughput"),
        "throughput of the pipeline, Flash A / Standard", 115.7 / 243.1, above=False,
    ),
    Claim(
        "A3", "Flash needs 10.1 % less peak memory.", ExplainMetric("a", "peak memory"),
        "peak memory of the pipeline, Flash A / Standard", 38.2 / 42.5, above=False,
    ),
    Claim(
        "A4", "CPU utilisation rises from 48 to 65 %.",
        Untestable("the model itself runs on the CPU here, which is busy in both variants"),
    ),
    Claim(
        "A5", "Half precision in some layers only leaves the matrix units under-used.", ExplainShare("a", "precision"),
        "time of the pipeline with casts around each product / Standard; what the units did is not counted",
    ),
    Claim(
        "A6", "Tiling the parameters adds transfers over the bus.", Pair("transfer", "resident", "streamed_tiles"),
        "weights copied tile by tile / resident; copies in memory stand in for the bus",
    ),
    Claim(
        "A7", "Pure data parallelism loses about 30 % of the compute efficiency on long sequences.",
        ScenarioTotal("parallelism", "data parallel", factor=2),
        "2 x time of two ranks, data parallel / time of one, at the longest length: 1 is no loss, the claim implies "
        "1 / 0.7", 1 / 0.7,
    ),
    Claim("A8", "Utilisation of a GPU's units falls from 89 to 68 % with fragmented batches.", Untestable(_NO_GPU)),
    Claim(
        "A9", "Preprocessing on the host delays soft interrupts two- to threefold under load.",
        Untestable(
            "no device raises interrupts here that a load could delay; flashperf explain --scenario serve shows the "
            "run-queue delay and the time in soft interrupts"
        ),
    ),
    Claim(
        "A10", "Fusion gives hit rates of the cache that are 15 to 20 % higher.",
        HitRate("fusion", "split", "fused", "a100", {"op": "residual_rmsnorm", "rows": 64, "cols": 1024}),
        "hit rate of an A100's L2, simulated, fused / split: passes find what the one before left, so a split "
        "operator hits more often and still moves more (flashperf traffic fusion)", 1.175,
    ),
    Claim(
        "A11", "Calibrating INT8 on every call costs 12 to 15 % of extra computation.",
        Pair("quantization", "int8_static", "int8_dynamic", {"m": 128, "k": 512, "n": 512}),
        "scales found on every call / fixed scales", 1.135,
    ),
    Claim(
        "A12", "Finer tasks raise the time of launches from 7 to 18 % of the total at small batches.",
        Pair("launch", "whole", "chunked", {"n": 4096, "chunks": 64}),
        "64 calls / one; a function call stands in for a launch. The claim implies 0.93 / 0.82", 0.93 / 0.82,
    ),
    Claim(
        "A13", "A dynamic graph has 40 % more overhead of issuing operators than a static one.",
        Pair("graph", "planned", "eager", {"ops": 64, "n": 192}),
        "eager / planned on small operators; a native replay stands in for a captured graph", 1.4,
    ),
    Claim("A14", "NVLink improves Flash's throughput by 22 % over PCIe.", Untestable("no two GPUs, and no two buses")),
    Claim("A15", "A batch of 64 instead of 32 raises the utilisation of a GPU to 82 %.", Untestable(_NO_GPU)),
    Claim(
        "A16", "Converting to a static graph cuts the overhead at run time by 35 %.",
        Pair("graph", "eager", "planned", {"ops": 64, "n": 192}),
        "planned / eager on small operators", 0.65, above=False,
    ),
    Claim(
        "A17", "Pooling memory cuts the latency of access by 18 %.",
        Pair("allocation", "fresh", "reused", {"n": 1048576, "blocks": 16}),
        "buffers reused / asked for anew", 0.82, above=False,
    ),
    Claim(
        "A18", "Flash starts faster from cold.", ScenarioTotal("warmup", "until the first answer"),
        "from starting a process until its first task is done, Flash A / Standard", above=False,
    ),
    Claim(
        "A19", "Adaptive precision, tuning by hardware and compiling ahead of time are to come.",
        Untestable(
            "it announces work and gives no figure; flashperf explain --flash precision=adaptive measures the first"
        ),
    ),
    Claim(
        "A20", "Choose by scenario: Standard where latency matters, Flash at the edge.",
        Untestable("it is advice; A1, A3 and A18 hold what it rests on"),
    ),
)  # fmt: skip
