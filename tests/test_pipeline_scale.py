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

levels = {**STANDARD, **FLASH_PRESETS.get(sys.argv[2], {})}
subject = PipelineSubject(scenario=sys.argv[1])
[snr_db] = subject.check([levels])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"snr_db": snr_db, "tokens": subject.scenario.tokens, "peak_bytes": peak}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("flash", ["standard", "a", "b"])
@pytest.mark.parametrize(("scenario", "tokens"), [("long", 1024), ("ragged", 24_000)])
def test_large_scenarios_match_float64_within_four_gib(scenario: str, tokens: int, flash: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHECK, scenario, flash], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tokens"] >= tokens
    assert found["snr_db"] > (100 if flash != "a" else 10)  # a has INT8 and bf16
    assert found["peak_bytes"] < 4 << 30
