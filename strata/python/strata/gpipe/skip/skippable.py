"""Modules that declare which tensors they stash and pop, and the check that the declarations of a sequence match."""

import types

from torch import nn

from strata.gpipe.skip.tracker import current_skip_tracker

__all__ = ["Namespace", "Skippable", "pop", "skippable", "skip_stages", "stash", "verify_skippables"]


class Namespace:
    """Separates equal names of skips in one sequence. A copy is the same namespace."""

    def __init__(self):
        self._id = object()

    def __copy__(self):
        other = Namespace()
        other._id = self._id
        return other

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __eq__(self, other):
        return isinstance(other, Namespace) and self._id is other._id

    def __hash__(self):
        return hash(self._id)


class stash:  # noqa: N801: a verb in the generators of users
    """`yield stash(name, tensor)` keeps a tensor, or None, for a later layer."""

    def __init__(self, name, tensor):
        self.name, self.tensor = name, tensor


class pop:  # noqa: N801
    """`tensor = yield pop(name)` takes what an earlier layer stashed."""

    def __init__(self, name):
        self.name = name


class Skippable(nn.Module):
    """A module with declared skips; skippable() makes subclasses."""

    module_class = None
    stashes = frozenset()
    pops = frozenset()

    def __init__(self, *args, **kwargs):
        super().__init__()
        self.module = self.module_class(*args, **kwargs)
        self._namespaces = {}

    def __repr__(self):
        return f"@skippable({self.module})"

    def isolate(self, namespace, *, only=None):
        """Puts the skips, or those in `only`, into a namespace. Returns this module."""
        for name in self.stashes | self.pops if only is None else only:
            self._namespaces[name] = namespace
        return self

    def stash_keys(self):
        return [self._key(name) for name in sorted(self.stashes)]

    def pop_keys(self):
        return [self._key(name) for name in sorted(self.pops)]

    def forward(self, value):
        returned = self.module(value)
        unused = {"stash": set(self.stashes), "pop": set(self.pops)}
        if isinstance(returned, types.GeneratorType):
            returned = self._drive(returned, unused)
        for what, names in unused.items():
            if names:
                raise RuntimeError(f"{self.module_class.__name__} declared '{min(names)}' for {what} and did not {what} it")
        return returned

    def _key(self, name):
        return self._namespaces.get(name), name

    def _drive(self, generator, unused):
        """Performs what the generator yields, until it returns."""
        answer = None
        while True:
            try:
                wish = generator.send(answer)
            except StopIteration as end:
                return end.value
            answer = self._perform(wish, unused)

    def _perform(self, wish, unused):
        kind = "stash" if isinstance(wish, stash) else "pop" if isinstance(wish, pop) else None
        if kind is None:
            raise TypeError(f"{self.module_class.__name__} yielded {type(wish).__name__}, which is neither stash() nor pop()")
        if wish.name not in (self.stashes if kind == "stash" else self.pops):
            raise RuntimeError(f"{self.module_class.__name__} did not declare '{wish.name}' for {kind}")
        unused[kind].discard(wish.name)
        if kind == "pop":
            return current_skip_tracker().pop(self._key(wish.name))
        current_skip_tracker().stash(self._key(wish.name), wish.tensor)
        return None


def skippable(stash=(), pop=()):
    """Decorates a class of modules: its forward may be a generator that yields stash() and pop() of these names."""

    def decorate(module_class):
        names = {"module_class": module_class, "stashes": frozenset(stash), "pops": frozenset(pop), "__doc__": module_class.__doc__}
        return type(module_class.__name__, (Skippable,), names)

    return decorate


def skip_stages(partitions):
    """For each skip that crosses partitions, by its key: (partition that stashes, partition that pops)."""
    stashed, stages = {}, {}
    for index, partition in enumerate(partitions):
        for layer in partition:
            if not isinstance(layer, Skippable):
                continue
            for key in layer.pop_keys():
                if stashed.get(key, index) != index:
                    stages[key] = (stashed[key], index)
            stashed.update(dict.fromkeys(layer.stash_keys(), index))
    return stages


def verify_skippables(module):
    """Refuses a sequence whose stashes and pops do not match (TypeError, with every mismatch)."""
    stashed, popped, problems = set(), set(), []
    for name, layer in module.named_children():
        if not isinstance(layer, Skippable):
            continue
        for key in sorted(layer.stashes & layer.pops):
            problems.append(f"'{name}' declared '{key}' both as stashable and as poppable")
        for key in layer.stash_keys():
            if key[1] in layer.pops:
                continue
            if key in stashed:
                problems.append(f"'{name}' redeclared '{key[1]}' as stashable")
            stashed.add(key)
        for key in layer.pop_keys():
            if key[1] in layer.stashes:
                continue
            if key in popped:
                problems.append(f"'{name}' redeclared '{key[1]}' as poppable")
            elif key not in stashed:
                problems.append(f"'{name}' declared '{key[1]}' as poppable but it was not stashed")
            popped.add(key)
    problems += [f"no module declared '{name}' as poppable but stashed" for _, name in stashed - popped]
    if problems:
        raise TypeError("the skips of the sequence do not match:\n\n" + "\n".join(f"* {problem}" for problem in problems))
