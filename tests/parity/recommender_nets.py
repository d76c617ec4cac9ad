"""Implements the nets of recommenders in plain PyTorch from the papers; only the names of weights
are ours."""

import torch
from torch import nn
from torch.nn import functional


class Hidden(nn.Module):
    def __init__(self, width_in, width_out, norm, relu):
        super().__init__()
        self.linear = nn.Linear(width_in, width_out)
        self.norm = nn.BatchNorm1d(width_out) if norm else None
        self.relu = relu

    def forward(self, x):
        x = self.linear(x)
        if self.norm:
            x = self.norm(x)
        return functional.relu(x) if self.relu else x

    def named(self, prefix):
        tensors = {prefix + "weight": self.linear.weight, prefix + "bias": self.linear.bias}
        if self.norm:
            tensors.update({prefix + "norm.weight": self.norm.weight,
                            prefix + "norm.bias": self.norm.bias,
                            prefix + "norm.running_mean": self.norm.running_mean,
                            prefix + "norm.running_var": self.norm.running_var})
        return tensors


class Net(nn.Module):
    """The hidden layers of the top and the score; each kind adds the layers below."""

    def __init__(self, case):
        super().__init__()
        self.case, model = case, case["model"]
        self.relu = model.get("activation", "relu") == "relu"
        self.place = model.get("batch_norm", "none")
        self.rows = sum(case["row_widths"])

    def hidden(self, width_in, widths, norm):
        sizes = [width_in, *widths]
        return nn.ModuleList(Hidden(a, b, norm, self.relu) for a, b in zip(sizes, sizes[1:]))

    def make_top(self, width, score_width=None):
        widths = self.case["model"]["top"]
        self.top = self.hidden(width, widths, self.place == "all")
        last = widths[-1] if widths else width
        self.head = nn.Linear(score_width or last, 1)

    def named(self):
        tensors = {"head.weight": self.head.weight, "head.bias": self.head.bias}
        for i, layer in enumerate(self.top):
            tensors.update(layer.named(f"top{i}."))
        return tensors

    def load(self, weights):
        ours = self.named()
        assert set(ours) == set(weights), set(ours) ^ set(weights)
        with torch.no_grad():
            for name, tensor in ours.items():
                tensor.copy_(weights[name])


class Dlrm(Net):
    def __init__(self, case):
        super().__init__(case)
        numeric, bottom = case["numeric"], case["model"]["bottom"]
        self.width = bottom[-1] if numeric else min(case["row_widths"])
        self.bottom = self.hidden(numeric, bottom if numeric else [], self.place != "none")
        vectors = self.rows // self.width + (1 if numeric else 0)
        self.cat = case["model"].get("interaction") == "cat"
        below = self.width if numeric else 0
        self.make_top(below + (self.rows if self.cat else vectors * (vectors - 1) // 2))

    def forward(self, numeric, rows):
        parts = []
        if self.case["numeric"]:
            for layer in self.bottom:
                numeric = layer(numeric)
            parts = [numeric]
        if self.cat:
            x = torch.cat([*parts, rows], 1)
        else:
            vectors = torch.cat([*parts, rows], 1).reshape(len(rows), -1, self.width)
            products = vectors @ vectors.transpose(1, 2)
            i, j = torch.tril_indices(vectors.size(1), vectors.size(1), -1)
            x = torch.cat([*parts, products[:, i, j]], 1)
        for layer in self.top:
            x = layer(x)
        return self.head(x).squeeze(1)

    def named(self):
        tensors = super().named()
        for i, layer in enumerate(self.bottom):
            tensors.update(layer.named(f"bottom{i}."))
        return tensors


class Dcn(Net):
    def __init__(self, case):
        super().__init__(case)
        model = case["model"]
        width, self.rank = case["numeric"] + self.rows, model.get("rank", 0)
        count = model.get("cross_layers", 3)
        if self.rank:
            self.down = nn.ModuleList(nn.Linear(width, self.rank, bias=False) for _ in range(count))
        self.up = nn.ModuleList(nn.Linear(self.rank or width, width) for _ in range(count))
        self.parallel = model.get("interaction") == "parallel"
        deep = model["top"][-1] if model["top"] else width
        self.make_top(width, width + deep if self.parallel else None)

    def forward(self, numeric, rows):
        x0 = torch.cat([numeric, rows], 1) if self.case["numeric"] else rows
        x = x0
        for i, up in enumerate(self.up):
            x = x0 * up(self.down[i](x) if self.rank else x) + x
        deep = x0 if self.parallel else x
        for layer in self.top:
            deep = layer(deep)
        return self.head(torch.cat([x, deep], 1) if self.parallel else deep).squeeze(1)

    def named(self):
        tensors = super().named()
        for i, up in enumerate(self.up):
            name = "up.weight" if self.rank else "weight"
            tensors.update({f"cross{i}.{name}": up.weight, f"cross{i}.bias": up.bias})
            if self.rank:
                tensors[f"cross{i}.down.weight"] = self.down[i].weight
        return tensors


class DeepWide(Net):
    def __init__(self, case):
        super().__init__(case)
        numeric, bottom, norm = case["numeric"], case["model"]["bottom"], self.place != "none"
        self.of_rows = Hidden(self.rows, bottom[-1], norm, self.relu)
        self.of_numeric = Hidden(numeric, bottom[0], norm, self.relu) if numeric else None
        self.wide = case["model"].get("wide", True)
        if self.wide:
            self.wide_rows = nn.Linear(self.rows, 1, bias=False)
            self.wide_numeric = nn.Linear(numeric, 1, bias=False) if numeric else None
        self.make_top(sum(bottom))

    def forward(self, numeric, rows):
        x = self.of_rows(rows)
        if self.of_numeric:
            x = torch.cat([self.of_numeric(numeric), x], 1)
        for layer in self.top:
            x = layer(x)
        score = self.head(x)
        if self.wide:
            score = score + self.wide_rows(rows)
            if self.of_numeric:
                score = score + self.wide_numeric(numeric)
        return score.squeeze(1)

    def named(self):
        tensors = {**super().named(), **self.of_rows.named("input.rows.")}
        if self.of_numeric:
            tensors.update(self.of_numeric.named("input.numeric."))
        if self.wide:
            tensors["input.wide.rows.weight"] = self.wide_rows.weight
            if self.of_numeric:
                tensors["input.wide.numeric.weight"] = self.wide_numeric.weight
        return tensors


KINDS = {"dlrm": Dlrm, "dcn": Dcn, "deep_wide": DeepWide}
