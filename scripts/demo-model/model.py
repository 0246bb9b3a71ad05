"""The demo model in PyTorch: a small Mixture-of-Experts transformer laid out as llama.cpp's `qwen3moe`.

Shapes in comments: B sequences of T tokens, N = B * T; the other sizes are fields of `Config`.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab_size: int = 2048
    embedding: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    experts: int = 32
    experts_used: int = 4
    expert_hidden: int = 64
    context: int = 256  # length of the training windows
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-6


class GroupedExperts(torch.autograd.Function):
    """SwiGLU experts applied to rows that are already sorted by expert.

    One matrix product an expert over its group of rows. The backward pass is written by hand:
    autograd would record every one of these small products.
    """

    @staticmethod
    def forward(ctx, rows, gate_up, down, counts):
        """rows [R, embedding]; gate_up [experts, 2 * hidden, embedding]; down [experts, embedding, hidden].

        `counts[e]` rows belong to expert e.
        """
        hidden = down.shape[2]
        gate_and_up = rows.new_empty(rows.shape[0], 2 * hidden)
        for expert, group in expert_groups(counts):
            torch.mm(rows[group], gate_up[expert].t(), out=gate_and_up[group])
        activated = F.silu(gate_and_up[:, :hidden]) * gate_and_up[:, hidden:]
        output = torch.empty_like(rows)
        for expert, group in expert_groups(counts):
            torch.mm(activated[group], down[expert].t(), out=output[group])
        ctx.save_for_backward(rows, gate_up, down, gate_and_up)
        ctx.counts = counts
        return output

    @staticmethod
    def backward(ctx, grad_output):
        rows, gate_up, down, gate_and_up = ctx.saved_tensors
        hidden = down.shape[2]
        gate, up = gate_and_up[:, :hidden], gate_and_up[:, hidden:]
        sigmoid = torch.sigmoid(gate)
        silu = sigmoid * gate
        activated = silu * up

        grad_activated = torch.empty_like(activated)
        grad_down = torch.zeros_like(down)
        for expert, group in expert_groups(ctx.counts):
            torch.mm(grad_output[group], down[expert], out=grad_activated[group])
            torch.mm(grad_output[group].t(), activated[group], out=grad_down[expert])

        grad_gate_and_up = torch.empty_like(gate_and_up)
        grad_gate_and_up[:, :hidden] = grad_activated * up * (sigmoid + silu * (1 - sigmoid))
        grad_gate_and_up[:, hidden:] = grad_activated * silu

        grad_rows = torch.empty_like(rows)
        grad_gate_up = torch.zeros_like(gate_up)
        for expert, group in expert_groups(ctx.counts):
            torch.mm(grad_gate_and_up[group], gate_up[expert], out=grad_rows[group])
            torch.mm(grad_gate_and_up[group].t(), rows[group], out=grad_gate_up[expert])
        return grad_rows, grad_gate_up, grad_down, None


def expert_groups(counts):
    """Yield (expert, slice of its rows) for each expert that has rows."""
    start = 0
    for expert, count in enumerate(counts):
        if count:
            yield expert, slice(start, start + count)
            start += count


def rms_norm(x, weight, epsilon):
    return F.rms_norm(x, (x.shape[-1],), weight, epsilon)


def rotate(x, cos, sin):
    """Rotary position embedding, first half against second half (llama.cpp's NEOX order)."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def random_weight(*shape, std):
    return nn.Parameter(torch.randn(*shape) * std)


def ones_weight(size):
    return nn.Parameter(torch.ones(size))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        embedding, hidden = config.embedding, config.expert_hidden
        query_size = config.heads * config.head_size
        kv_size = config.kv_heads * config.head_size
        input_std = 1 / math.sqrt(embedding)
        # Each layer adds two terms to the residual stream; their scale keeps its variance steady.
        residual_scale = 1 / math.sqrt(2 * config.layers)

        self.attention_norm = ones_weight(embedding)
        self.expert_norm = ones_weight(embedding)
        self.query_norm = ones_weight(config.head_size)
        self.key_norm = ones_weight(config.head_size)
        self.query = random_weight(query_size, embedding, std=input_std)
        self.key = random_weight(kv_size, embedding, std=input_std)
        self.value = random_weight(kv_size, embedding, std=input_std)
        self.attention_output = random_weight(
            embedding, query_size, std=residual_scale / math.sqrt(query_size)
        )
        self.router = random_weight(config.experts, embedding, std=input_std)
        self.gate_up = random_weight(config.experts, 2 * hidden, embedding, std=input_std)
        self.down = random_weight(
            config.experts, embedding, hidden, std=residual_scale / math.sqrt(hidden)
        )
        # (tokens of each expert, probabilities, logits) of the latest pass, for the router's losses
        self.routing = None

    def forward(self, x, cos, sin):
        x = x + self.attend(rms_norm(x, self.attention_norm, self.config.norm_epsilon), cos, sin)
        return x + self.mix_experts(rms_norm(x, self.expert_norm, self.config.norm_epsilon))

    def attend(self, x, cos, sin):
        config = self.config
        batch, length, _ = x.shape

        def heads(weight, count):
            return F.linear(x, weight).view(batch, length, count, config.head_size)

        query = rms_norm(heads(self.query, config.heads), self.query_norm, config.norm_epsilon)
        key = rms_norm(heads(self.key, config.kv_heads), self.key_norm, config.norm_epsilon)
        value = heads(self.value, config.kv_heads).transpose(1, 2)
        query = rotate(query.transpose(1, 2), cos, sin)
        key = rotate(key.transpose(1, 2), cos, sin)
        repeats = config.heads // config.kv_heads
        key = key.repeat_interleave(repeats, 1)
        value = value.repeat_interleave(repeats, 1)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return F.linear(mixed.transpose(1, 2).reshape(batch, length, -1), self.attention_output)

    def mix_experts(self, x):
        config = self.config
        tokens = x.view(-1, config.embedding)
        logits = F.linear(tokens, self.router)
        probabilities = F.softmax(logits, -1)
        weights, chosen = probabilities.topk(config.experts_used, -1)
        weights = weights / weights.sum(-1, keepdim=True)

        # Sort the N * experts_used (token, expert) pairs by expert.
        chosen = chosen.reshape(-1)
        order = chosen.argsort(stable=True)
        token_of_row = order // config.experts_used
        counts = torch.bincount(chosen, minlength=config.experts)
        rows = tokens.index_select(0, token_of_row)
        output = GroupedExperts.apply(rows, self.gate_up, self.down, counts.tolist())
        weighted = output * weights.reshape(-1).index_select(0, order).unsqueeze(1)
        mixed = torch.zeros_like(tokens).index_add(0, token_of_row, weighted)
        self.routing = (counts, probabilities, logits)
        return mixed.view(x.shape)


class MoeModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        # Also the output matrix.
        self.token_embedding = random_weight(config.vocab_size, config.embedding, std=0.05)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.output_norm = ones_weight(config.embedding)
        frequencies = config.rope_base ** (
            -torch.arange(0, config.head_size, 2).float() / config.head_size
        )
        angles = torch.outer(torch.arange(config.context).float(), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        """ids [B, T] -> logits [B, T, vocab_size]."""
        length = ids.shape[1]
        x = F.embedding(ids, self.token_embedding)
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        x = rms_norm(x, self.output_norm, self.config.norm_epsilon)
        return F.linear(x, self.token_embedding)

    def router_losses(self):
        """Balance loss and z-loss of the latest pass, averaged over the layers.

        The balance loss is that of the Switch Transformer; 1.0 means perfectly balanced.
        """
        balance = z_loss = 0.0
        for layer in self.layers:
            counts, probabilities, logits = layer.routing
            share = counts.float() / counts.sum()
            balance = balance + self.config.experts * (share * probabilities.mean(0)).sum()
            z_loss = z_loss + logits.logsumexp(-1).square().mean()
        return balance / self.config.layers, z_loss / self.config.layers
