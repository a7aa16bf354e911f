"""Count where a program would wait for a GPU, by the calls that it makes on a CPU."""

from collections import Counter

import torch
from torch.overrides import TorchFunctionMode

# Each of these needs a value that the device computed, or copies from the host's memory and waits for the copy.
_READS = {
    torch.Tensor.tolist, torch.Tensor.item, torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__,
    torch.Tensor.__index__, torch.Tensor.cpu, torch.Tensor.numpy, torch.Tensor.nonzero, torch.nonzero, torch.equal,
    torch.Tensor.equal, torch.masked_select, torch.Tensor.masked_select, torch.unique,
}  # fmt: skip
_WRITES = {torch.tensor, torch.as_tensor}


class HostWaits(TorchFunctionMode):
    """Count the reads and writes within its context, by the name of the function."""

    def __init__(self) -> None:
        super().__init__()
        self.reads, self.writes = Counter(), Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in _READS:
            self.reads[func.__name__] += 1
        if func in _WRITES:
            self.writes[func.__name__] += 1
        return func(*args, **(kwargs or {}))

    @property
    def total(self) -> int:
        return self.reads.total() + self.writes.total()
