"""Why is the "fast" version of my model slow? An example for ``flashperf explain``.

    flashperf explain docs/examples/torch_mlp.py:factory \\
        --standard precision=f32,activation=fused,batching=batched \\
        --flash precision=autocast,activation=split,batching=one_by_one

``factory(**levels)`` builds one mixture of the switches and returns a callable that does all of its work; flashperf
runs every mixture that it needs in fresh processes and splits the slowdown over the three switches.
"""

import torch
from torch.nn import functional

torch.set_num_threads(1)


def split_gelu(x):
    """The tanh form of GELU, an operator for each step, as hand-written model code often has it."""
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def factory(precision, activation, batching):
    torch.manual_seed(0)
    up, down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)
    gelu = functional.gelu if activation == "fused" else split_gelu
    x = torch.randn(32, 256)
    batches = [x] if batching == "batched" else list(x.split(1))

    def run():
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            return [down(gelu(up(batch))) for batch in batches]

    return run
