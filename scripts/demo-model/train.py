"""Train the demo model on the encoded corpora and save a checkpoint.

The defaults are the published model's settings, in one run.
"""

import argparse
import math
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from model import Config, MoeModel

DOMAINS = ("code", "docs", "es")

WEIGHT_DECAY = 0.1
BETAS = (0.9, 0.95)
CLIP_NORM = 1.0
Z_LOSS_WEIGHT = 1e-4

WARM_UP_STEPS = 100
CONSTANT_SHARE = 0.4  # share of the steps before the linear decay begins
FINAL_RATE = 0.03  # where the decay ends, relative to the learning rate

LOG_EVERY = 50
EVALUATE_EVERY = 250
SAVE_EVERY = 250
EVALUATION_BATCH = 20


def rate_factor(step, steps):
    """Warm-up, constant, linear decay."""
    warm_up = min(1, (step + 1) / WARM_UP_STEPS)
    done = step / steps
    if done < CONSTANT_SHARE:
        return warm_up
    decayed = (done - CONSTANT_SHARE) / (1 - CONSTANT_SHARE)
    return warm_up * (FINAL_RATE + (1 - FINAL_RATE) * (1 - decayed))


def load_tokens(folder, part):
    return {
        domain: np.fromfile(folder / f"{domain}.{part}.u16", "<u2").astype(np.int64)
        for domain in DOMAINS
    }


def draw_batch(tokens, random, batch_size, context):
    """Windows of context + 1 tokens, each from a random place of a random domain."""
    batch = np.empty((batch_size, context + 1), np.int64)
    for row in range(batch_size):
        domain = DOMAINS[(row + random.integers(len(DOMAINS))) % len(DOMAINS)]
        stream = tokens[domain]
        start = random.integers(len(stream) - context - 1)
        batch[row] = stream[start : start + context + 1]
    return torch.from_numpy(batch)


@torch.no_grad()
def perplexities(model, tokens, max_windows):
    """Perplexity of each domain over its first windows, every token but the first predicted."""
    context = model.config.context
    result = {}
    for domain, stream in tokens.items():
        count = min(max_windows, len(stream) // context)
        windows = torch.from_numpy(stream[: count * context].reshape(count, context))
        loss = 0.0
        for batch in windows.split(EVALUATION_BATCH):
            logits = model(batch)[:, :-1].flatten(0, 1)
            loss += F.cross_entropy(logits, batch[:, 1:].flatten(), reduction="sum").item()
        result[domain] = round(math.exp(loss / (count * (context - 1))), 2)
    return result


def make_optimizer(model, learning_rate):
    """AdamW that decays the matrices and leaves the norms alone."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=BETAS, fused=True)


def save(model, step, args):
    settings = {name: str(value) for name, value in vars(args).items()}
    torch.save(
        {
            "config": asdict(model.config),
            "weights": model.state_dict(),
            "step": step,
            "settings": settings,
        },
        args.out,
    )


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="folder with the encoded corpora"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("model.pt"), help="checkpoint to write"
    )
    parser.add_argument("--steps", type=int, default=5200, help="optimiser steps")
    parser.add_argument("--batch-size", type=int, default=8, help="windows a step")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="peak rate")
    parser.add_argument(
        "--balance-weight", type=float, default=0.005, help="weight of the balance loss"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the weights and the batches")
    parser.add_argument("--threads", type=int, default=2, help="threads of PyTorch")
    parser.add_argument(
        "--start-from", type=Path, help="checkpoint whose weights to start from; the optimiser is new"
    )
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    random = np.random.default_rng(args.seed)

    model = MoeModel(Config())
    if args.start_from:
        model.load_state_dict(torch.load(args.start_from)["weights"])
    optimizer = make_optimizer(model, args.learning_rate)
    train_tokens = load_tokens(args.data, "train")
    test_tokens = load_tokens(args.data, "test")
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters} parameters, {model.config}", flush=True)

    started = time.monotonic()
    smooth_loss = None
    for step in range(args.steps):
        rate = args.learning_rate * rate_factor(step, args.steps)
        for group in optimizer.param_groups:
            group["lr"] = rate

        batch = draw_batch(train_tokens, random, args.batch_size, model.config.context)
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        balance, z_loss = model.router_losses()
        optimizer.zero_grad(set_to_none=True)
        (loss + args.balance_weight * balance + Z_LOSS_WEIGHT * z_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()

        if smooth_loss is None:
            smooth_loss = loss.item()
        smooth_loss = 0.98 * smooth_loss + 0.02 * loss.item()
        if step % LOG_EVERY == 0:
            seconds = time.monotonic() - started
            print(
                f"step {step} {seconds:.0f} s, loss {smooth_loss:.3f},"
                f" balance {balance.item():.3f}, rate {rate:.2e}",
                flush=True,
            )
        if step and step % EVALUATE_EVERY == 0:
            print(f"step {step} perplexities {perplexities(model, test_tokens, 40)}", flush=True)
        if (step + 1) % SAVE_EVERY == 0:
            save(model, step, args)

    save(model, args.steps - 1, args)
    seconds = time.monotonic() - started
    print(f"{args.steps} steps in {seconds:.0f} s")
    print(f"perplexities {perplexities(model, test_tokens, 300)}")


if __name__ == "__main__":
    main()
