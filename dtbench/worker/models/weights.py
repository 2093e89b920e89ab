"""First values of parameters: the same on every rank, under every strategy, and for whoever holds only a shard.

Models are built on the meta device. Each parameter's values depend on seed, FQN and whole shape alone: it is drawn
whole, in float32, on the rank's device, one parameter at a time, and each rank keeps its part. So a rank never holds
more than its share of the model and one parameter. (A CUDA generator draws other numbers than a CPU's: equal on all
ranks and for the single process that a run is checked against, since these share the kind of device.)
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.placement_types import _StridedShard

Fill = Callable[[str, Tensor, torch.Generator], None]
"""Return a parameter its values: FQN, the whole tensor in float32 to fill in place, and where randomness comes from."""


@dataclass(frozen=True)
class Weights:
    """Turns parameters on the meta device into real ones; what is real already is left alone.

    Attributes:
        fqns: of the plain module's parameters and modules, by ``id``: wrappers change names, not objects.
    """

    seed: int
    device: torch.device
    fill: Fill
    fqns: dict[int, str]

    @classmethod
    def of(cls, module: nn.Module, *, seed: int, device: torch.device, fill: Fill) -> "Weights":
        """Remember the names of a plain module."""
        return cls(seed, device, fill, {id(part): name for name, part in module.named_modules()})

    def materialize(self, module: nn.Module, *, home: torch.device | None = None) -> None:
        """Make every parameter real, tied ones once; ``home`` is where they live if not on the rank's device."""
        # one place to draw in for all: freeing a large tensor after each small one leaves the heap full of holes
        scratch = torch.empty(max((p.numel() for p in module.parameters()), default=0), device=self.device)
        for part in module.modules():
            self._materialize_own(part, scratch, home or self.device)

    def materialize_own(self, module: nn.Module) -> None:
        """Make the parameters real that a module holds itself, as FSDP1's ``param_init_fn`` is to do."""
        parameters = module.parameters(recurse=False)
        scratch = torch.empty(max((p.numel() for p in parameters), default=0), device=self.device)
        self._materialize_own(module, scratch, self.device)

    def _materialize_own(self, module: nn.Module, scratch: Tensor, home: torch.device) -> None:
        for key, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta:
                fqn = ".".join(filter(None, (self.fqns[id(module)], key)))
                whole = scratch[: parameter.numel()].view(parameter.shape)
                self.draw(fqn, whole)
                part = local_part(whole, parameter).to(home, parameter.dtype, copy=True).contiguous()
                # swapped, not replaced: tied modules and FSDP2's own references stay the same object
                torch.utils.swap_tensors(parameter, nn.Parameter(_like(parameter, part)))

    def draw(self, fqn: str, whole: Tensor) -> None:
        """Fill a whole parameter, float32 on the rank's device, in place."""
        digest = hashlib.sha256(f"{self.seed} {fqn} {tuple(whole.shape)}".encode()).digest()
        generator = torch.Generator(self.device).manual_seed(int.from_bytes(digest[:7], "big"))
        with torch.no_grad():
            self.fill(fqn, whole, generator)


def local_part(whole: Tensor, parameter: Tensor) -> Tensor:
    """Return this rank's part of a tensor, laid out as ``parameter`` is, as a view.

    The tensor axis cuts before FSDP does (``_StridedShard`` says so), though it is the inner one of the mesh.
    """
    if not isinstance(parameter, DTensor):
        return whole
    mesh, coordinate = parameter.device_mesh, parameter.device_mesh.get_coordinate()
    cuts = [(axis, cut) for axis, cut in enumerate(parameter.placements) if not isinstance(cut, Replicate)]
    part = whole
    for axis, cut in sorted(cuts, key=lambda item: isinstance(item[1], _StridedShard)):
        pieces = part.chunk(mesh.size(axis), dim=cut.dim)
        place = coordinate[axis]
        part = pieces[place] if place < len(pieces) else part.narrow(cut.dim, 0, 0)
    assert part.shape == parameter.to_local().shape, "DTensor cuts as torch.chunk does"
    return part


def _like(parameter: Tensor, local: Tensor) -> Tensor:
    """Return a DTensor for a part of one, where that is: ``DTensor.from_local`` moves it to the mesh's device."""
    if not isinstance(parameter, DTensor):
        return local
    return DTensor(local, parameter._spec, requires_grad=False)


def fill_matrices(std: Callable[[Tensor], float]) -> Fill:
    """Return the rule: matrices from a normal distribution, weights of norms one, biases zero."""

    def fill(fqn: str, whole: Tensor, generator: torch.Generator) -> None:
        if whole.dim() > 1:
            whole.normal_(0.0, std(whole), generator=generator)
        else:
            whole.fill_(0.0 if fqn.endswith("bias") else 1.0)

    return fill
