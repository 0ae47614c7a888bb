"""The weights of a module in training: a flat fp32 master, and what the module computes with."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

_ROTARY = "inv_freq"  # buffers of rotary positions


class Weights:
    """Stores a module's parameters and gradients in flat buffers, fp32 or bf16.

    The optimizer updates one fp32 master tensor. In bf16, the module's parameters are views of a
    rounded copy, which one operation per step refreshes. So no operation casts weights, and
    optimizer, clipping and checkpoints handle two tensors instead of hundreds. Matrices come first:
    `decayed` and `plain` are the parts with and without weight decay.
    """

    def __init__(self, module: Any, bf16: bool) -> None:
        import torch

        self.module, self.bf16 = module, bf16
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        named.sort(key=lambda pair: pair[1].ndim <= 1)  # stable: matrices first
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        sizes = [parameter.numel() for parameter in self.parameters]
        self.master = torch.cat([p.detach().flatten().float() for p in self.parameters])
        self.gradient = torch.zeros_like(self.master)
        others = self._others(module).items()
        self.whole = {name: t.clone() for name, t in others} if bf16 else {}
        if bf16:
            module.to(torch.bfloat16)
            for name, buffer in module.named_buffers():
                if name.endswith(_ROTARY):  # rounded, far positions would rotate by other angles
                    buffer.data = self.whole[name].clone()
            self.computed = self.master.to(torch.bfloat16)
            self.collected = torch.zeros_like(self.computed)
        else:
            self.computed, self.collected = self.master, self.gradient
        values, gradients = self.computed.split(sizes), self.collected.split(sizes)
        for parameter, value, gradient in zip(self.parameters, values, gradients, strict=True):
            parameter.data = value.view_as(parameter)
            parameter.grad = gradient.view_as(parameter)
        matrices = sum(p.numel() for p in self.parameters if p.ndim > 1)
        self.decayed = self._part(0, matrices)
        self.plain = self._part(matrices, len(self.master))

    def _others(self, module: Any) -> dict[str, Any]:
        """Return the frozen parameters and buffers of floating-point type, by name."""
        frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        found = frozen | dict(module.named_buffers())
        return {name: t.detach() for name, t in found.items() if t.is_floating_point()}

    def _part(self, begin: int, end: int) -> Any:
        import torch

        part = torch.nn.Parameter(self.master[begin:end])
        part.grad = self.gradient[begin:end]
        return part

    def collect(self) -> None:
        """Copy the module's gradients to the master's."""
        if self.bf16:
            self.gradient.copy_(self.collected)

    def spread(self) -> None:
        """Copy the updated master to the module, and zero the module's gradients."""
        if self.bf16:
            self.computed.copy_(self.master)
        self.collected.zero_()

    def load(self, master: Any) -> None:
        """Copy another master into the weights."""
        self.master.copy_(master)
        self.spread()

    def release(self) -> None:
        """Replace the module's parameters by fp32 tensors of their own, equal to the master.

        Frozen parameters and buffers that training did not change get their unrounded values back.
        """
        self._restore(self.module)

    def copied(self) -> Any:
        """Return a copy of the module as after `release`; training can continue."""
        module = deepcopy(self.module)
        self._restore(module)
        return module

    def _restore(self, module: Any) -> None:
        import torch

        module.float()
        named = dict(module.named_parameters())
        sizes = [named[name].numel() for name in self.names]
        with torch.no_grad():
            for name, tensor in self._others(module).items():
                whole = self.whole.get(name)
                if whole is not None and torch.equal(tensor, whole.bfloat16().to(whole.dtype)):
                    tensor.copy_(whole)
            for name, value in zip(self.names, self.master.split(sizes), strict=True):
                named[name].data = value.view_as(named[name]).clone()
                named[name].grad = None
