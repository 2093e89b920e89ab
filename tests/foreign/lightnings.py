"""Loops of Lightning: its Trainer, which calls dtbench back, and its Fabric, whose loop is a person's own."""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset

import dtbench
from tests.foreign.job import FEW, WIDTH, Job, batches, make_mlp


def lightning_ddp(job: Job) -> None:
    """Lightning's Trainer over DDP, through its callback; its step is a closure that the optimizer calls."""
    _fit(job, _make_ddp(job), gradient_clip_val=1.0)


def lightning_accumulated(job: Job) -> None:
    """The same, with gradients of two batches accumulated."""
    _fit(job, _make_ddp(job), gradient_clip_val=1.0, accumulate_grad_batches=2)


def lightning_fsdp2(job: Job) -> None:
    """Lightning's Trainer over FSDP2: its ``ModelParallelStrategy``, with what the module itself shards."""
    from lightning.pytorch.strategies import ModelParallelStrategy

    backend = _name_backend(job)
    _fit(job, ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1, process_group_backend=backend))


def _name_backend(job: Job) -> str:
    return "gloo" if job.results is None else dtbench.named_gloo()


def _make_ddp(job: Job) -> Any:
    from lightning.pytorch.strategies import DDPStrategy

    return DDPStrategy(process_group_backend=_name_backend(job))


def _shard(model: nn.Module, mesh: Any) -> nn.Module:
    for block in model.children():
        fully_shard(block, mesh=mesh["data_parallel"])
    return fully_shard(model, mesh=mesh["data_parallel"])


def _fit(job: Job, strategy: Any, **options: Any) -> None:
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import ModelParallelStrategy

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_mlp()

        def configure_model(self) -> None:
            if isinstance(strategy, ModelParallelStrategy):
                _shard(self.model, self.device_mesh)

        def training_step(self, batch: list[Tensor], _index: int) -> Tensor:
            loss: Tensor = self.model(batch[0]).square().mean()
            job.keep(loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callbacks = []
    if job.results is not None:
        from dtbench.integrations.lightning import DtbenchCallback

        callbacks.append(DtbenchCallback(job.results, **FEW))
    torch.manual_seed(1)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=strategy,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
        default_root_dir=os.environ["DTBENCH_SCRATCH"],
        **options,
    )
    trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(200, WIDTH)), batch_size=2))


def fabric_ddp(job: Job) -> None:
    """Lightning's Fabric over DDP."""
    from lightning.fabric.strategies import DDPStrategy

    _run_fabric(job, DDPStrategy(process_group_backend=_name_backend(job)))


def fabric_fsdp2(job: Job) -> None:
    """Lightning's Fabric over FSDP2."""
    from lightning.fabric.strategies import ModelParallelStrategy

    backend = _name_backend(job)
    _run_fabric(
        job,
        ModelParallelStrategy(_shard, data_parallel_size=2, tensor_parallel_size=1, process_group_backend=backend),
    )


def _run_fabric(job: Job, strategy: Any) -> None:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=2, strategy=strategy)
    fabric.launch()
    model = fabric.setup_module(make_mlp())
    optimizer = fabric.setup_optimizers(torch.optim.SGD(model.parameters(), lr=0.1))
    with job.steps() as step:
        for batch in batches(24):
            with step():
                loss = model(batch).square().mean()
                fabric.backward(loss)
                fabric.clip_gradients(model, optimizer, max_norm=1.0)
                optimizer.step()
                optimizer.zero_grad()
            job.keep(loss)


LOOPS = (lightning_ddp, lightning_accumulated, lightning_fsdp2, fabric_ddp, fabric_fsdp2)
