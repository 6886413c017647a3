"""Large scenarios: 1024 tokens, and 64 sequences of 8 to 2048, are right and stay within 4 GiB."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CHECK = """
import json, resource, sys
from flashperf.pipeline.subject import PipelineSubject
from flashperf.pipeline.switches import FLASH_PRESETS, STANDARD

subject = PipelineSubject(scenario=sys.argv[1])
snr_db = subject.check([{**STANDARD, **FLASH_PRESETS.get(name, {})} for name in ("standard", "a", "b")])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"snr_db": snr_db, "tokens": subject.scenario.tokens, "peak_bytes": peak}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "tokens"), [("long", 1024), ("ragged", 24_000)])
def test_large_scenarios_match_float64_within_four_gib(scenario: str, tokens: int) -> None:
    done = subprocess.run([sys.executable, "-c", CHECK, scenario], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    standard, a, b = found["snr_db"]
    assert min(standard, b) > 100
    assert a > 10  # INT8 and bf16
    assert found["tokens"] >= tokens
    assert found["peak_bytes"] < 4 << 30
