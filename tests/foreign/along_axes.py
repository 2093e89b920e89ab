"""Loops whose ranks hold different parts: stages of a pipeline, chunks of a sequence, experts; as people write them."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.nn.functional import gelu
from torch.nn.parallel import DistributedDataParallel

from tests.foreign.job import ROWS, WIDTH, Job, batches, begin, make_mlp, train

MICRO_BATCHES = 4
TOKENS, EXPERTS_EACH = 8, 2


def pipeline_1f1b(job: Job) -> None:
    """torch's 1F1B over the default group: each rank is one stage, of two layers."""
    begin(job)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    stage = _make_stage(rank, ranks, None)
    _run_schedule(job, [stage], Schedule1F1B(stage, MICRO_BATCHES, loss_fn=_square_error))


def pipeline_interleaved(job: Job) -> None:
    """torch's interleaved 1F1B over a mesh's axis: each rank is two stages of four."""
    begin(job)
    ranks = dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("pp",))
    stages = [
        _make_stage(index, 2 * ranks, mesh.get_group("pp")) for index in (dist.get_rank(), dist.get_rank() + ranks)
    ]
    _run_schedule(job, stages, ScheduleInterleaved1F1B(stages, MICRO_BATCHES, loss_fn=_square_error))


def _make_stage(index: int, stages: int, group: Any) -> PipelineStage:
    layers = make_mlp(2 * stages)[2 * index : 2 * index + 2]
    return PipelineStage(layers, index, stages, torch.device("cpu"), group=group)


def _square_error(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean()


def _run_schedule(job: Job, stages: list[PipelineStage], schedule: Any) -> None:
    optimizer = torch.optim.SGD([one for stage in stages for one in stage.submod.parameters()], lr=0.1)
    is_first, is_last = (any(getattr(stage, name) for stage in stages) for name in ("is_first", "is_last"))
    with job.steps() as step:
        for batch in batches(24):
            losses: list[Tensor] = []
            given = {"target": torch.zeros_like(batch), "losses": losses} if is_last else {}
            with step():
                schedule.step(*([batch] if is_first else []), **given)
                optimizer.step()
                optimizer.zero_grad()
            job.keep(torch.stack(losses).mean() if losses else stages[0].submod[0][0].weight.sum())


class RingComm:
    """Passes tensors on around a ring of ranks, as the packages of ring attention do."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        self._group = group
        self._next = dist.get_global_rank(group, (rank + 1) % ranks)
        self._last = dist.get_global_rank(group, (rank - 1) % ranks)
        self._asked: list[dist.P2POp] = []
        self._works: list[dist.Work] = []

    def pass_on(self, tensor: Tensor) -> Tensor:
        """Return where what the rank before holds will be."""
        received = torch.empty_like(tensor)
        send = dist.P2POp(dist.isend, tensor, self._next, group=self._group)
        recv = dist.P2POp(dist.irecv, received, self._last, group=self._group)
        self._asked += [send, recv] if dist.get_rank(self._group) % 2 == 0 else [recv, send]
        return received

    def commit(self) -> None:
        self._works, self._asked = dist.batch_isend_irecv(self._asked), []

    def wait(self) -> None:
        while self._works:
            self._works.pop().wait()


class RingAttention(torch.autograd.Function):
    """Attention of this rank's queries to the keys of all, which go around a ring."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, group: dist.ProcessGroup) -> Tensor:
        ring, keys, values, scores = RingComm(group), [key], [value], []
        for turn in range(dist.get_world_size(group)):
            if turn + 1 < dist.get_world_size(group):
                keys.append(ring.pass_on(keys[-1].contiguous()))
                values.append(ring.pass_on(values[-1].contiguous()))
                ring.commit()
            scores.append(query @ keys[turn].mT)
            ring.wait()
        weights = torch.cat(scores, -1).softmax(-1)
        ctx.group = group
        ctx.save_for_backward(query, weights, *keys, *values)
        return weights @ torch.cat(values, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        query, weights, *both = ctx.saved_tensors
        keys, values = both[: len(both) // 2], both[len(both) // 2 :]
        by_weight = gradient @ torch.cat(values, 1).mT
        by_score = weights * (by_weight - (by_weight * weights).sum(-1, keepdim=True))
        size, ring = query.shape[1], RingComm(ctx.group)
        by_key = by_value = torch.zeros_like(query)
        for turn in reversed(range(len(keys))):  # the gradient of a block goes on until it is where the block came from
            part = slice(turn * size, (turn + 1) * size)
            by_key, by_value = by_key + by_score[..., part].mT @ query, by_value + weights[..., part].mT @ gradient
            if turn:
                by_key, by_value = _send_back(ring, by_key, by_value)
        return by_score @ torch.cat(keys, 1), by_key, by_value, None


def _send_back(ring: RingComm, *gradients: Tensor) -> list[Tensor]:
    received = [ring.pass_on(one.contiguous()) for one in gradients]
    ring.commit()
    ring.wait()
    return received


class RingBlock(nn.Module):
    """A layer of attention over a sequence of which each rank has a part."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.query_key_value, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: Tensor) -> Tensor:
        attended = RingAttention.apply(*self.query_key_value(inputs).chunk(3, -1), self.group)
        summed: Tensor = inputs + self.out(attended)
        return summed


def ring_attention(job: Job) -> None:
    """Ring attention over an axis ``cp`` of two; gradients of its parameters are summed by DDP over all ranks."""
    begin(job)
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "cp"))
    torch.manual_seed(0)
    blocks = nn.Sequential(*(RingBlock(mesh.get_group("cp")) for _ in range(2)))
    model = DistributedDataParallel(blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(job, lambda batch: model(batch.view(1, ROWS, WIDTH)), optimizer)


class _AllToAll(torch.autograd.Function):
    """As Megatron, DeepSpeed and Tutel have it: its backward is itself."""

    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup, rows: Tensor) -> Tensor:
        ctx.group = group
        output = torch.empty_like(rows)
        dist.all_to_all_single(output, rows.contiguous(), group=group)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return None, _AllToAll.apply(ctx.group, gradient)


class Experts(nn.Module):
    """The experts of this rank, each for its part of the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS_EACH))

    def forward(self, rows: Tensor) -> Tensor:
        return torch.stack([gelu(expert(rows[:, at])) for at, expert in enumerate(self.each)], 1)


class MoE(nn.Module):
    """Rows go to the rank of their expert and come back; every expert gets as many, so that shapes stay."""

    def __init__(self, group: dist.ProcessGroup, replicas: dist.ProcessGroup | None) -> None:
        super().__init__()
        self.group, experts = group, EXPERTS_EACH * dist.get_world_size(group)
        self.router = nn.Linear(WIDTH, experts)
        self.experts = Experts()
        if replicas is not None:
            self.experts = DistributedDataParallel(self.experts, process_group=replicas)

    def forward(self, rows: Tensor) -> Tensor:
        scores = self.router(rows).softmax(-1)
        chosen = scores.topk(len(rows) // scores.shape[-1], dim=0)
        order = chosen.indices.T.reshape(-1)
        received = _AllToAll.apply(self.group, rows[order])
        done = self.experts(received.view(dist.get_world_size(self.group), EXPERTS_EACH, -1, WIDTH))
        back = _AllToAll.apply(self.group, done.reshape(-1, WIDTH))
        return rows.index_add(0, order, back * chosen.values.T.reshape(-1, 1))


def moe_own_group(job: Job) -> None:
    """Experts over an axis ``ep`` of two beside ``dp``, over which their gradients are summed, all others over both."""
    begin(job)
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "ep"))
    _run_moe(job, mesh.get_group("ep"), mesh.get_group("dp"))


def moe_shared_group(job: Job) -> None:
    """Experts over the group that DDP sums gradients over, as where every data-parallel rank has its experts."""
    begin(job)
    assert dist.group.WORLD is not None
    _run_moe(job, dist.group.WORLD, None)


def _run_moe(job: Job, group: dist.ProcessGroup, replicas: dist.ProcessGroup | None) -> None:
    torch.manual_seed(dist.get_rank(group))
    blocks = nn.Sequential(*(MoE(group, replicas) for _ in range(2)))
    experts = [name for name, _ in blocks.named_parameters() if "experts" in name]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(blocks, experts)
    model = DistributedDataParallel(blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(job, lambda batch: model(batch.view(TOKENS, WIDTH)), optimizer, width=WIDTH * TOKENS // ROWS)


LOOPS = (pipeline_1f1b, pipeline_interleaved, ring_attention, moe_own_group, moe_shared_group)
