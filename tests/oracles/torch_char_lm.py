"""The character-aware language model in PyTorch, written after the papers and without a look at ours.

Kim et al. 2015 with the gatings of [UIE]: embedding of characters,
convolutions over a word, tanh, maximum over time, highway layers, two LSTMs,
a linear layer. Every distinct word of a batch is computed once. As in Kim et
al.'s program, an LSTM has two biases, and the padding's gradient counts in the
clipped norm: its embedding is set to zero after each update.
"""

import torch
from torch import nn
from torch.nn import functional

GATINGS = ("plain", "residual", "t_only", "c_only", "coupled", "full")


class Highway(nn.Module):
    """y = H(x) T(x) + x C(x), H a rectified linear layer."""

    def __init__(self, width, gating):
        super().__init__()
        self.gating = gating
        self.h = nn.Linear(width, width)
        if gating in ("t_only", "coupled", "full"):
            self.t = nn.Linear(width, width)
        if gating in ("c_only", "full"):
            self.c = nn.Linear(width, width)

    def forward(self, x):
        h = functional.relu(self.h(x))
        t = torch.sigmoid(self.t(x)) if hasattr(self, "t") else None
        c = torch.sigmoid(self.c(x)) if hasattr(self, "c") else None
        return {
            "plain": lambda: h,
            "residual": lambda: h + x,
            "t_only": lambda: h * t + x,
            "c_only": lambda: h + x * c,
            "coupled": lambda: h * t + x * (1 - t),
            "full": lambda: h * t + x * c,
        }[self.gating]()


class CharLM(nn.Module):
    """Logits `(streams, steps, words)` of spelled words `(n, length)` and positions `(streams, steps)`."""

    def __init__(self, characters, words, char_units, kernels, filters, highways, units, gating, dropout=0.5):
        super().__init__()
        self.embedding = nn.Embedding(characters, char_units)
        self.convolutions = nn.ModuleList(nn.Conv1d(char_units, f, k) for k, f in zip(kernels, filters, strict=True))
        self.highways = nn.ModuleList(Highway(sum(filters), gating) for _ in range(highways))
        self.lstm = nn.LSTM(sum(filters), units, num_layers=2, batch_first=True, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(units, words)
        self.zero_padding()

    def zero_padding(self):
        """Sets the embedding of the padding, character 0, to zero."""
        with torch.no_grad():
            self.embedding.weight[0] = 0

    def forward(self, spelled, positions, state):
        x = self.embedding(spelled).transpose(1, 2)
        x = torch.cat([torch.tanh(c(x)).amax(dim=2) for c in self.convolutions], dim=1)
        for layer in self.highways:
            x = layer(x)
        y, state = self.lstm(functional.embedding(positions, x), state)
        return self.head(self.dropout(y)), tuple(s.detach() for s in state)


def step(model, spelled, positions, targets, state, rate=1.0, norm=5.0):
    """Takes a step on the loss summed over steps, its mean over streams; returns the mean over tokens and the state."""
    logits, state = model(spelled, positions, state)
    total = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    model.zero_grad()
    (total / len(targets)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
    with torch.no_grad():
        for p in model.parameters():
            p -= rate * p.grad
    model.zero_padding()
    return total.item() / targets.numel(), state


def zero_state(model, streams):
    """Returns the state at the start of a text."""
    return tuple(torch.zeros(2, streams, model.lstm.hidden_size) for _ in range(2))
