"""Training loops as other people write them: each trains the same with and without dtbench.

``torchrun --nproc-per-node 2 loops.py NAME OUT [RESULTS]`` trains the loop NAME and writes what it trained, rank by
rank, to ``OUT/<rank>.json``; with RESULTS it is measured by ``dtbench``, else by nobody.
"""

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.foreign import along_axes, lightnings
from tests.foreign.job import FEW, ROWS, Job, batches, begin, make_mlp, train


def closure_over_fsdp2(job: Job) -> None:
    """An optimizer that is given a closure, over FSDP2: forward and backward are inside its step."""
    begin(job)
    model = make_mlp()
    for block in model:
        fully_shard(block)
    fully_shard(model)
    _run_closures(job, model, torch.optim.SGD(model.parameters(), lr=0.1))


def lbfgs(job: Job) -> None:
    """torch's LBFGS over DDP, which calls its closure twice in a step."""
    begin(job)
    model = DistributedDataParallel(make_mlp())
    _run_closures(job, model, torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=2, max_eval=2))


def _run_closures(job: Job, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with job.steps() as step:
        for batch in batches(24):

            def closure(batch: Tensor = batch) -> Tensor:
                optimizer.zero_grad()
                loss: Tensor = model(batch).square().mean()
                loss.backward()
                return loss

            with step():
                loss: Any = optimizer.step(closure)
            job.keep(loss)


def sam(job: Job) -> None:
    """Sharpness-aware minimization over DDP: the optimizer climbs, calls the closure again, and comes down."""
    begin(job)
    model = DistributedDataParallel(make_mlp())

    class Sam(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {"rho": 0.05})
            self.base = torch.optim.SGD(self.param_groups, lr=0.1)

        def step(self, closure: Any = None) -> Any:
            with torch.enable_grad():
                loss = closure()
            parameters = [one for group in self.param_groups for one in group["params"]]
            climbs = [0.05 * one.grad / (one.grad.norm() + 1e-12) for one in parameters]
            with torch.no_grad():
                for one, climb in zip(parameters, climbs, strict=True):
                    one.add_(climb)
            with torch.enable_grad():
                closure()
            with torch.no_grad():
                for one, climb in zip(parameters, climbs, strict=True):
                    one.sub_(climb)
            self.base.step()
            return loss

    _run_closures(job, model, Sam(model.parameters()))


def clip_as_torchtitan(job: Job) -> None:
    """torchtitan's clip_grad_norm_: the norm is a DTensor that the script completes itself, then clips by."""
    begin(job)
    model = make_mlp()
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp_shard",))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    with job.steps() as step:
        for batch in batches(24):
            with step():
                loss = model(batch).square().mean()
                loss.backward()
                gradients = [parameter.grad for parameter in model.parameters()]
                norm: Any = torch.nn.utils.get_total_norm(gradients)
                norm = norm.full_tensor()
                torch.nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)
                optimizer.step()
                optimizer.zero_grad()
            job.keep(loss)


def compiled_ddp(job: Job) -> None:
    """``torch.compile`` around DDP."""
    begin(job)
    model = torch.compile(DistributedDataParallel(make_mlp()), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(job, model, optimizer)


def local_sgd(job: Job) -> None:
    """Parameters are averaged every fourth step, gradients never are."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

    begin(job)
    model = make_mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    averager = PeriodicModelAverager(period=4)
    with job.steps(max_warmup_steps=24) as step:
        for batch in batches(60):
            with step():
                loss = model(batch).square().mean()
                loss.backward()
                optimizer.step()
                averager.average_parameters(model.parameters())
                optimizer.zero_grad()
            job.keep(loss)


def post_local_sgd(job: Job) -> None:
    """torch's PostLocalSGDOptimizer: after four steps gradients are summed by twos, parameters averaged by turns."""
    from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    begin(job)
    subgroup, _ = dist.new_subgroups(2)
    model = DistributedDataParallel(make_mlp())
    state = PostLocalSGDState(process_group=None, subgroup=subgroup, start_localSGD_iter=4)
    model.register_comm_hook(state, post_localSGD_hook)
    averager = PeriodicModelAverager(period=4, warmup_steps=4)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)
    train(job, model, optimizer, rounds=60, max_warmup_steps=24)


def accumulated(job: Job) -> None:
    """Gradients of four batches in DDP's ``no_sync``, each batch a step of the person's."""
    begin(job)
    model = DistributedDataParallel(make_mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with job.steps(max_warmup_steps=24) as step:
        for number, batch in enumerate(batches(60)):
            with step(), model.no_sync() if number % 4 != 3 else contextlib.nullcontext():
                loss = model(batch).square().mean()
                loss.backward()
                if number % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()
            job.keep(loss)


class Dataset(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Tokens for a language model of transformers."""

    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = torch.randint(0, 50, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def transformers_trainer(job: Job) -> None:
    """transformers' Trainer over DDP, through its callback."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Keep(TrainerCallback):
        def on_log(self, _arguments: Any, _state: Any, _control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in (logs or {}):
                job.losses.append(logs["loss"])

    begin(job)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=16, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        output_dir=os.environ["DTBENCH_SCRATCH"],
        use_cpu=True,
        per_device_train_batch_size=2,
        num_train_epochs=1,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        max_grad_norm=1.0,
    )
    callbacks: list[Any] = [Keep()]
    if job.results is not None:
        from dtbench.integrations.transformers import DtbenchCallback

        callbacks.append(DtbenchCallback(job.results, **FEW))
    Trainer(model=model, args=arguments, train_dataset=Dataset(), callbacks=callbacks).train()


def accelerate_ddp(job: Job) -> None:
    """accelerate, with gradients of two batches accumulated."""
    from accelerate import Accelerator

    begin(job)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    plain = make_mlp()
    model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    with job.steps(max_warmup_steps=24) as step:
        for batch in batches(40):
            with step(), accelerator.accumulate(model):
                loss = model(batch).square().mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            job.keep(loss)


def simple_fsdp(job: Job) -> None:
    """Parameters are DTensors that a compiled parametrization gathers: nothing of FSDP is there to name."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.nn.utils.parametrize import register_parametrization

    class Gather(nn.Module):
        def forward(self, shard: Any) -> Tensor:
            whole: DTensor = shard.redistribute(placements=[Replicate()])
            gathered: Tensor = whole.to_local(grad_placements=[_partial()])
            return gathered

    def _partial() -> Any:
        from torch.distributed.tensor import Partial

        return Partial("avg")

    begin(job)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp_shard",))
    model = make_mlp()
    for block in model:
        linear: Any = block[0]
        for name, parameter in list(linear.named_parameters(recurse=False)):
            shard = nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)]))
            linear.register_parameter(name, shard)
            register_parametrization(linear, name, Gather(), unsafe=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="aot_eager")
    train(job, compiled, optimizer)


def nano_gpt(job: Job) -> None:
    """nanoGPT's loop: micro-batches inside one step, synchronised by a flag, a scaler that is off, clipping."""
    begin(job)
    model = DistributedDataParallel(make_mlp())
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler(enabled=False)
    source = batches(48)
    with job.steps() as step:
        for _ in range(24):
            with step():
                for micro in range(2):
                    model.require_backward_grad_sync = micro == 1
                    loss = model(next(source)).square().mean() / 2
                    scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
            job.keep(loss)


def fsdp1(job: Job) -> None:
    """FSDP1, which clips by a method of its own."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    begin(job)
    model = FullyShardedDataParallel(make_mlp(), device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with job.steps() as step:
        for batch in batches(24):
            with step():
                loss = model(batch).square().mean()
                loss.backward()
                model.clip_grad_norm_(1.0)
                optimizer.step()
                optimizer.zero_grad()
            job.keep(loss)


def deepspeed_zero2(job: Job) -> None:
    """DeepSpeed's ZeRO-2 on CPU."""
    _run_deepspeed(job, 2)


def deepspeed_zero3(job: Job) -> None:
    """DeepSpeed's ZeRO-3 on CPU."""
    _run_deepspeed(job, 3)


def _run_deepspeed(job: Job, stage: int) -> None:
    import deepspeed

    deepspeed.comm.torch.build_shm_op = lambda: None  # a carrier of its own, which takes minutes to compile
    begin(job)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo carries all, and nothing is compiled for it
    deepspeed.init_distributed(dist_backend="gloo")
    settings = {
        "train_micro_batch_size_per_gpu": ROWS,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "gradient_clipping": 1.0,
    }
    model, _, _, _ = deepspeed.initialize(model=make_mlp(), config=settings)
    with job.steps() as step:
        for batch in batches(24):
            with step():
                loss = model(batch).square().mean()
                model.backward(loss)
                model.step()
            job.keep(loss)


def titan_fsdp2(job: Job) -> None:
    """torchtitan's Trainer with FSDP2."""
    _run_titan(job)


def titan_fsdp2_tp(job: Job) -> None:
    """torchtitan's Trainer with FSDP2 over its tensor parallelism."""
    _run_titan(job, tensor_parallel_degree=2)


def titan_pp(job: Job) -> None:
    """torchtitan's Trainer with a pipeline of two stages, 1F1B."""
    _run_titan(job, pipeline_parallel_degree=2, pipeline_parallel_schedule="1F1B")


def titan_cp(job: Job) -> None:
    """torchtitan's Trainer with its context parallelism over FSDP2: keys and values of the sequence are gathered."""
    _run_titan(job, context_parallel_degree=2, context_parallel_load_balancer=None)


def _run_titan(job: Job, **parallelism: Any) -> None:
    from tests.foreign.titan import make_trainer

    begin(job)
    trainer: Any = make_trainer(os.environ["DTBENCH_SCRATCH"], 24, **parallelism)
    train_step, log = trainer.train_step, trainer.metrics_processor.log

    def keep(step: int, global_avg_loss: float, *others: Any, **named: Any) -> None:
        job.losses.append(float(global_avg_loss))
        log(step, global_avg_loss, *others, **named)

    trainer.metrics_processor.log = keep
    with job.steps() as step:

        def measured(data: Any) -> None:
            with step():
                train_step(data)

        trainer.train_step = measured
        trainer.train()
    trainer.close()


LOOPS: dict[str, Callable[[Job], None]] = {
    loop.__name__: loop
    for loop in (
        closure_over_fsdp2,
        lbfgs,
        sam,
        clip_as_torchtitan,
        compiled_ddp,
        local_sgd,
        post_local_sgd,
        accumulated,
        transformers_trainer,
        *lightnings.LOOPS,
        accelerate_ddp,
        simple_fsdp,
        nano_gpt,
        fsdp1,
        deepspeed_zero2,
        deepspeed_zero3,
        titan_fsdp2,
        titan_fsdp2_tp,
        titan_pp,
        titan_cp,
        *along_axes.LOOPS,
    )
}


def main() -> None:
    name, out, *results = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    job = Job(Path(results[0]) if results else None)
    LOOPS[name](job)
    rank = int(os.environ["RANK"])
    Path(out, f"{rank}.json").write_text(json.dumps(job.losses))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
