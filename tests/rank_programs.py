"""Ranks for tests of the watcher: they need no torch. FLASHPERF_OPTIONS says what rank 1 does."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

if __name__ == "__main__":
    does = (
        json.loads(os.environ["FLASHPERF_OPTIONS"]).get("does", "answers")
        if os.environ["RANK"] == "1"
        else ""
    )
    if does == "fails":
        sys.exit("the weights do not fit")
    if does == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if does != "answers" and does != "":
        time.sleep(600)
    if os.environ["RANK"] == "0":
        waits = json.loads(os.environ["FLASHPERF_OPTIONS"]).get("does", "answers")
        if waits != "answers":
            time.sleep(600)  # as a collective would, whose partner is gone
        print("a word on standard output that is no answer")
        print(json.dumps({"kind": "times", "world": os.environ["WORLD_SIZE"]}))
