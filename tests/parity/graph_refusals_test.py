"""Exports models that a layer cannot run, and damages exported files: each is refused with one error that says why."""

import json
import os
import pathlib
import subprocess
import unittest
import zipfile

import graph_case
from graph_case import nn, torch


class Refusals(graph_case.GraphTest):
    def test_inputs_of_other_sizes_are_refused(self):
        tokens = graph_case.TOKENS
        x, targets = tokens[:, :-1], tokens[:, 1:]
        self.export(graph_case.Language(), x)
        for inputs, outputs, says in ((x[:, :9], targets, "input of tokens"), (x, targets[:, :9], "they do not fit the model's output")):
            self.write(inputs, outputs)
            with self.assertRaisesRegex(AssertionError, says):
                self.strata(inputs, outputs)

    def refuse(self, model, x, says, **dynamic):
        shapes = dynamic.get("shapes", ({0: torch.export.Dim("batch", min=2)},))
        torch.export.save(torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False), str(self.folder / "model.pt2"))
        self.write(x, x)
        (self.folder / "run.json").write_text(json.dumps({"loss": "squared_error"}))
        done = subprocess.run([os.environ["PARITY_GRAPH"], str(self.folder)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stdout)
        for words in says:
            self.assertIn(words, done.stderr)

    def test_refuses_what_a_layer_cannot_do(self):
        class Noise(nn.Module):
            def forward(self, x):
                return x + torch.randn_like(x)

        class Write(nn.Module):
            def forward(self, x):
                y = x * 2
                y.view(-1).add_(1)
                return y

        class Stale(nn.Module):
            def forward(self, x):
                y = x * 2
                first = y[:, 0]
                y[:, 1:].add_(first.unsqueeze(1))
                y[:, :2].mul_(3)
                return y + first.unsqueeze(1)

        class Unsafe(nn.Module):
            def forward(self, x):
                return torch.ops.aten._unsafe_index(x, [torch.tensor([0, 1])])

        class Into(nn.Module):
            def forward(self, x):
                y = x * 2
                torch.add(x, 1, out=y)
                return y

        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(4, 4, num_layers=2, dropout=0.5, batch_first=True)

            def forward(self, x):
                return self.lstm(x.unsqueeze(1))[0]

        class Sideways(nn.Module):
            def forward(self, x):
                return nn.functional.dropout(x.transpose(0, 1), 0.5, self.training).transpose(0, 1)

        class Two(nn.Module):
            def forward(self, x):
                return x + 1, x + 2

        x = torch.randn(4, 4)
        here = pathlib.Path(__file__).name
        self.refuse(Noise(), x, ["[exported.read]", here, "random numbers would depend on the mesh", "aten::randn_like"])
        self.refuse(Write(), x, ["[exported.read]", here, "shares its bytes with another one"])
        self.refuse(Stale(), x, ["[exported.read]", here, "shares its bytes with another one"])
        self.refuse(Unsafe(), x, ["[exported.read]", here, "_unsafe_index", "checks too little"])
        self.refuse(Recurrent().train(), x, ["[exported.read]", "random numbers would depend on the mesh", "aten::lstm"])
        self.refuse(Into(), x, ["[exported.read]", here, "writes to its argument out"])
        self.refuse(nn.InstanceNorm1d(4, track_running_stats=True).train(), x.unsqueeze(1).expand(-1, 4, -1).contiguous(),
                    ["[exported.read]", "keeps statistics", "aten::instance_norm"])
        self.refuse(Sideways().train(), x, ["[exported.read]", "first dimension is not the samples"])
        self.refuse(Two(), x, ["[exported.model]", "more than one output"])
        self.refuse(nn.Linear(4, 4), x, ["the number of samples is fixed", "dynamic_shapes"], shapes=None)

    def test_outputs_that_have_no_loss_of_each_sample_are_refused(self):
        class Returns(nn.Module):
            def __init__(self, output):
                super().__init__()
                self.linear, self.output = nn.Linear(4, 6), output

            def forward(self, x):
                return self.output(self.linear(x))

        x = torch.randn(4, 4)
        for output in (lambda y: y.sum(), lambda y: y.argmax(1), lambda y: y.view(-1, 3), lambda y: y.t()):
            self.refuse(Returns(output), x, ["[exported.model]", "no real numbers for each sample"])

    def test_own_operations_accept_values_without_elements(self):
        class Empty(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.linear, self.last = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4)

            def forward(self, x):
                return self.last(x[:, 0]) + self.linear(self.norm(x[:, :0])).sum(1)

        x = torch.randn(4, 3, 4)
        self.export(Empty(), x)
        self.write(x, x[:, 0])
        self.strata(x, x[:, 0].contiguous(), steps=1, own=True)

    def records(self):
        whole = zipfile.ZipFile(self.folder / "model.pt2")
        return {name: whole.read(name) for name in whole.namelist()}

    def replace(self, records, old, new, ending):
        """Writes the records as an archive, those with this ending with other words."""
        with zipfile.ZipFile(self.folder / "model.pt2", "w") as changed:
            for name, record in records.items():
                changed.writestr(name, record.decode().replace(old, new).encode() if name.endswith(ending) else record)

    def test_own_operations_never_read_beyond_weights(self):
        """Operators get weights of other shapes than theirs; ATen refuses that, with own operations, too."""
        model, x = nn.Sequential(nn.Linear(4, 64), nn.LayerNorm(64), nn.Linear(64, 4)), torch.randn(4, 4)
        self.export(model, x)
        self.write(x, x)
        records = self.records()

        def argument(name, value):
            return '{"name": "%s", "arg": {"as_tensor": {"name": "%s"}}' % (name, value)

        both = {name: record.decode().replace(argument("weight", "p_1_weight"), argument("weight", "p_2_bias")).encode()
                if name.endswith("model.json") else record for name, record in records.items()}
        for name, old, new in (("weight", "p_0_weight", "p_2_weight"), ("weight", "p_2_weight", "p_0_weight"),
                               ("weight", "p_2_weight", "p_2_bias"), ("bias", "p_0_bias", "p_2_bias"),
                               ("weight", "p_1_weight", "p_2_bias"), ("bias", "p_1_bias", "p_2_bias")):
            self.replace(records, argument(name, old), argument(name, new), "model.json")
            if old == "p_1_bias":  # gain and bias
                self.replace(both, argument(name, old), argument(name, new), "model.json")
            says = "(?s)1 != 0.*normalized_shape" if old.startswith("p_1") else "1 != 0"
            for own in (False, True):
                with self.subTest(old=old, new=new, own=own), self.assertRaisesRegex(AssertionError, says):
                    self.strata(x, x, steps=1, own=own)

    def test_hostile_graphs_are_refused(self):
        """Parts of the graph of a cumulative sum, relu and a linear layer are replaced in a valid archive."""
        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.last = nn.Linear(4, 4)

            def forward(self, x):
                return self.last(x.cumsum(1, dtype=torch.float32).relu())

        x = torch.randn(4, 4)
        self.export(Sum(), x)
        self.write(x, x)
        records = self.records()
        relu = "torch.ops.aten.relu.default"
        of_linear = '"as_int": 4}, {"as_int": 4}]'
        for old, new, says, *only in (
                (relu, "torch.ops.aten.from_file.default", "checks too little"),
                (relu, "torch.ops.aten.empty_permuted.default", "checks too little"),
                (relu, "torch.ops.aten.nothing.default", "no operator aten::nothing"),
                (relu, "os.system", "a layer cannot run os.system"),
                (relu, "torch.ops.aten.sum.default", "an operator returns another value than the graph states"),
                ('{"as_scalar_type": 7}', '{"as_scalar_type": 999}', "no values of this type"),
                ('{"as_scalar_type": 7}', '{"as_int": 999}', "of another kind"),
                ('{"as_scalar_type": 7}', '{"as_string": ""}', "of another kind"),
                ('{"as_scalar_type": 7}', "{}", "an argument without a kind"),
                ('"name": "dim"', '"name": "dimension"', "an argument of aten::cumsum is missing"),
                ('{"name": "cumsum"}', '{"name": "later"}', "does not say the shape"),
                ('"parameter_name": "last.weight"', '"parameter_name": "first.weight"', "does not have this tensor"),
                ('"major": 8', '"major": 7', "another version of the format"),
                ('"nodes": [', '"nodes": [' + "[" * 100 + "]" * 100 + ", ", "levels"),
                (of_linear, '"as_int": 4}, {"as_int": 5}]', "disagree about this tensor", "model.json"),
                (of_linear, '"as_int": 4}, {"as_int": 5}]', "does not fit its bytes"),
                ('"storage_offset": {"as_int": 0}', '"storage_offset": {"as_int": 4611686018427387904}', "does not fit its bytes")):
            with self.subTest(new):
                self.replace(records, old, new, only[0] if only else ".json")
                for own in (False, True):
                    run = {"loss": "squared_error", "inputs": [self.spec(x)], "targets": self.spec(x), "samples": 4,
                           "valid": 16, "micro_batch": 4, "steps": 1, "learning_rate": 0, "own": own}
                    (self.folder / "run.json").write_text(json.dumps(run))
                    done = subprocess.run([os.environ["PARITY_GRAPH"], str(self.folder)], capture_output=True, text=True)
                    self.assertEqual(done.returncode, 1, f"own operations {own}: {done.stdout}{done.stderr}")
                    self.assertIn(says, done.stderr)
                    self.assertRegex(done.stderr, r"^\[(exported|train)\.\w+\] ")

    def test_damaged_files_are_refused(self):
        x, targets = torch.randn(16, 12), torch.randint(0, 5, (16,))
        self.export(graph_case.perceptron(), x)
        self.write(x, targets)
        self.strata(x, targets, steps=1)
        whole = (self.folder / "model.pt2").read_bytes()
        generator = torch.Generator().manual_seed(3)
        for i in range(60):
            damaged = bytearray(whole)
            if i % 3 == 0:
                damaged = damaged[:int(torch.randint(0, len(whole), (), generator=generator))]
            else:
                for _ in range(1 + i % 5):
                    at = int(torch.randint(0, len(whole), (), generator=generator))
                    damaged[at] = int(torch.randint(0, 256, (), generator=generator))
            (self.folder / "model.pt2").write_bytes(bytes(damaged))
            done = subprocess.run([os.environ["PARITY_GRAPH"], str(self.folder)], capture_output=True, text=True)
            self.assertIn(done.returncode, (0, 1), done.stderr)  # 0: a weight has changed

if __name__ == "__main__":
    unittest.main()
