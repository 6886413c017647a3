"""What a real token costs when sequences of unequal length share a product: batches of 1, 8, 32 and 64.

``python bench/real_tokens.py [--longest T] [--k K] [--n N] [--repeats R]``. Lengths are log-normal, half of the
longest on average; real / multiplied is the share of rows that mean something, from each variant's counted work.
"""

from __future__ import annotations

import argparse

from rounds import NOTE, in_turns, with_interval

from flashperf import registry
from flashperf.measure import bind_case
from flashperf.records import Case

BATCHES = (1, 8, 32, 64)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name, default in (("longest", 64), ("k", 192), ("n", 576), ("repeats", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    if options.repeats < 2 or min(options.longest, options.k, options.n) < 2:
        parser.error("sizes and --repeats must be at least 2")
    mechanism = registry.mechanism("batching")
    print(
        f"rows of {options.k} values times [{options.k}, {options.n}], f32; up to {options.longest} a sequence"
    )
    print(
        f"{'batch':>6}  {'variant':10}{'real rows':>10}{'multiplied':>12}{'real share':>12}{'ns per real row':>28}"
    )
    for batch in BATCHES:
        rows = options.longest if batch == 1 else batch * options.longest // 2
        sizes = {"sequences": batch, "rows": rows, "longest": options.longest, "k": options.k, "n": options.n}
        cases = [Case.of("batching", variant, "cpu", "f32", sizes) for variant in mechanism.variants]
        seconds = in_turns([bind_case(mechanism, case).call for case in cases], options.repeats)
        for case, column in zip(cases, seconds.T, strict=True):
            multiplied = mechanism.cost(case).flops // (2 * options.k * options.n)
            shown = f"{rows:>10}{multiplied:>12}{rows / multiplied:>12.0%}"
            print(f"{batch:>6}  {case.variant:10}{shown}{with_interval(column / rows, 1e9):>28}")
    print(NOTE)


if __name__ == "__main__":
    main()
