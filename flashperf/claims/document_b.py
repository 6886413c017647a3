"""Claims of "Performance Paradox Explained"."""

from __future__ import annotations

from flashperf.claims.arithmetic import (
    FLASH_TASKS_PER_H,
    STANDARD_TASKS_PER_H,
    slip_of_throughput,
    slip_of_utilisation,
)
from flashperf.claims.definition import Claim, ExplainMetric, Pair, Untestable

_NO_GPU = "it speaks of a GPU's counters, and none was used"
_SEQUENCES = {"sequences": 32, "rows": 1024, "longest": 128, "k": 192, "n": 576}
_RAGGED = {"rows": 1024, "values": 8388608, "longest": 65536, "threads": 2}
_METHOD = "it asks for a method and claims nothing about speed"

CLAIMS = (
    Claim(
        "B1", "A single task takes 14.4 minutes in Flash and 6.8 in Base.", ExplainMetric("b", "task latency"),
        "task latency of the pipeline, Flash B / Standard", 14.4 / 6.8, slip="printed +110 %; it is +111.8 %",
    ),
    Claim(
        "B2", "Throughput falls from 8.82 to 4.17 tasks an hour.", ExplainMetric("b", "throughput"),
        "throughput of the pipeline, Flash B / Standard", FLASH_TASKS_PER_H / STANDARD_TASKS_PER_H, above=False,
        slip=slip_of_throughput(),
    ),
    Claim(
        "B3", "The accuracy score falls from 60 to 57.", ExplainMetric("b", "next-byte accuracy"),
        "accuracy on held-out text, Flash B / Standard", 57 / 60, above=False,
    ),
    Claim(
        "B4", "A dynamic graph, chosen for its faster start, loses what a static one optimises.",
        Pair("graph", "planned", "eager", {"ops": 64, "n": 65536}),
        "eager / planned on larger operators; a native replay stands in for a captured graph",
    ),
    Claim(
        "B5", "Fixed pools leave less than 60 % of the bandwidth.",
        Pair("allocation", "reused", "fixed_pool", {"n": 1048576, "blocks": 16}),
        "buffers in a fixed pool / aligned ones", 1 / 0.6, at_least=True,
    ),
    Claim(
        "B6", "Fusing aggressively reduces parallelism.",
        Pair("overfusion", "fused", "over", {"m": 64, "d": 192, "f": 512}),
        "the whole MLP in one kernel / fused where it pays, on one core: with rows the only axis left, weights are "
        "read again for each",
    ),
    Claim("B7", "Utilisation of the GPU is above 85 % in Base, and drops often in Flash.", Untestable(_NO_GPU)),
    Claim(
        "B8", "Copies overlap computation to 92 % in Base and 67 % in Flash.",
        Untestable("it speaks of copies to a GPU; flashperf bench overlap times a stand-in, and so does B17"),
    ),
    Claim(
        "B9", "A batch of one is enforced, at the cost of throughput.",
        Pair("batching", "bucketed", "single", _SEQUENCES),
        "sequences one by one / in buckets of like length",
    ),
    Claim(
        "B10", "State is saved every 512 tokens, and that takes time.",
        Pair("checkpoint", "none", "every_n_sync", {"megabytes": 1, "steps": 128}),
        "a save of 1 MB every 128 steps, waited for / none",
    ),
    Claim(
        "B11", "Binding threads to cores causes imbalance.",
        Pair("pinning", "work_queue", "pinned_partition", _RAGGED),
        "bound threads with fixed shares / a work queue; flashperf scenario pinning has more",
    ),
    Claim(
        "B12", "Utilisation is the time of kernels over last minus first time stamp.", Untestable("it is a formula"),
        slip=slip_of_utilisation(),
    ),
    Claim(
        "B13", "Sparse or local attention cuts computation.",
        Pair("attention", "online", "window", {"heads": 4, "rows": 384, "keys": 384, "head_dim": 64, "window": 96}),
        "a window whose blocks are skipped / full attention", above=False,
    ),
    Claim(
        "B14", "Merging linear layers with their activations helps.",
        Pair("fusion", "split", "fused", {"op": "bias_gelu", "rows": 256, "cols": 2048}),
        "bias and GELU in one pass / in several", above=False,
    ),
    Claim(
        "B15", "Products must use the matrix units.", Pair("precision", "f32", "bf16", {"m": 128, "k": 512, "n": 512}),
        "products in bf16, on matrix units where the CPU has them / in f32", above=False,
    ),
    Claim(
        "B16", "Memory of intermediates should be reused.",
        Pair("allocation", "fresh", "reused", {"n": 1048576, "blocks": 16}),
        "buffers reused / asked for anew", above=False,
    ),
    Claim(
        "B17", "Streams overlap computation and transfer.",
        Pair("overlap", "serial", "overlapped", {"layers": 8, "m": 64, "k": 512, "n": 1024}),
        "copies by a thread while computing / in turn; copies in memory stand in for the bus", above=False,
    ),
    Claim(
        "B18", "Batch sizes should follow the hardware, and warm-up runs stabilise.",
        Untestable("it is advice; flashperf scenario warmup has first and later tasks, flashperf bench batching sizes"),
    ),
    Claim(
        "B19", "Baselines and alerts on degradation are needed.",
        Untestable(f"{_METHOD}; flashperf compare is such an alert"),
    ),
    Claim(
        "B20", "Vary lengths and tasks, fix seeds, measure cold and warm.",
        Untestable(f"{_METHOD}; flashperf explain --scenario and flashperf bench do that"),
    ),
    Claim(
        "B21", "Report time to first token, throughput, and performance per watt.",
        Untestable(f"{_METHOD}; flashperf explain has the first two, and energy where a machine counts it"),
    ),
)  # fmt: skip
