"""The digest of a result: a hash of the meaning of the code that computed it.

Starting from the functions that compute a result, every function, class and constant
that they reach by name is hashed on its syntax tree, without docstrings, comments,
annotations, error messages, import lines and names of modules. So moving a function,
rewording a docstring or deleting unused code keeps the digest; changing a formula,
constant or default that is used changes it.

Methods and fields of a class count only if code that is reached uses an attribute of
their name, because the syntax tree does not say which class an object has.
"""

import ast
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ncai
from ncai.study.engine import DerivedStudy

SOURCE = Path(ncai.__file__).parent
# Packages that do not affect numbers, so the digest leaves them out.
WITHOUT = (
    "ncai.runtime",
    "ncai.interop",
    "ncai.comparison",
    "ncai.tables",
    "ncai.plot",
    "ncai.report",
    "ncai.cli",
    "ncai.study.console",
    "ncai.study.demo",
    "ncai.study.engine.digest",
    "ncai.study.engine.run",
    "ncai.study.engine.store",
    "ncai.study.output",
    "ncai.estimators._display",
    "ncai.estimators._memory",
    "ncai.estimators._restore",
    "ncai.estimators.model_file",
    "ncai.estimators.persistence",
    # The registry reaches every method, but a result names the one that it uses.
    "ncai.inference.registry",
)
LENGTH = 12  # hexadecimal digits of a digest

Place = tuple[str, str]  # a module, and a name that it defines


def digest_of(
    entries: Iterable[Place], settings: Mapping[str, Any] | None = None, *more: Path
) -> str:
    """Return the digest of the code that the entries reach, and of the settings.

    Args:
        entries: modules and names of the functions, or `Class.method`, to start from.
        settings: the settings that differ from the defaults, as plain values.
        more: folders with further code, such as that of the benchmarks.
    """
    text = json.dumps(settings or {}, sort_keys=True, default=str)
    return _short_hash(text + _meaning(tuple(entries), (SOURCE, *more)))


@functools.cache
def _meaning(entries: tuple[Place, ...], folders: tuple[Path, ...]) -> str:
    return _short_hash("\n".join(sorted(_code(folders).reach(entries))))


@functools.cache
def digest_of_study(study: object) -> str:
    """Return the digest of the code that computes a cell, without its settings.

    The digest of a study that is computed from another study includes the digest of the
    other.
    """
    kind = type(study)
    if not kind.__module__.startswith("ncai."):  # such as a toy study in a test
        return ""
    if not isinstance(study, DerivedStudy):
        return digest_of([(kind.__module__, f"{kind.__name__}.run")])
    own = digest_of([(kind.__module__, f"{kind.__name__}.derive")])
    return _short_hash(own + digest_of_study(study.fits))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


@functools.cache
def _code(folders: tuple[Path, ...]) -> "Code":
    sources = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            module = ".".join(parts).removesuffix(".__init__")
            if not module.startswith(WITHOUT):
                sources[module] = path.read_text("utf-8")
    return Code.of(sources)


@dataclass(frozen=True)
class Item:
    """A function, a method, a constant, or a field of a class.

    Args:
        meaning: its normalised syntax tree, as text.
        uses: places that the item names.
        attributes: names of attributes, keyword arguments and keys that the item uses.
        name: the item counts only if an attribute of this name is used; None if it
            always counts.
    """

    meaning: str
    uses: frozenset[Place]
    attributes: frozenset[str]
    name: str | None = None

    def counts(self, attributes: set[str]) -> bool:
        """Whether the item counts, if code uses these attributes."""
        return self.name is None or self.name in attributes


@dataclass
class Code:
    """The definitions of some modules.

    Args:
        modules: names of all modules.
        definitions: statements that define a name of a module; statements that define
            none, such as the call that registers a class, have the name "".
        imported: the place that an imported name stands for; a module has the name "".
    """

    modules: frozenset[str]
    definitions: dict[Place, list[ast.stmt]] = field(default_factory=dict)
    imported: dict[Place, Place] = field(default_factory=dict)

    @classmethod
    def of(cls, sources: Mapping[str, str]) -> "Code":
        """Parse modules, given as text under their dotted names."""
        code = cls(frozenset(sources))
        for module, text in sources.items():
            for statement in ast.parse(text).body:
                if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                    for name, place in code.imports_of(module, statement):
                        code.imported[module, name] = place
                for name in _names_defined(statement):
                    code.definitions.setdefault((module, name), []).append(statement)
        return code

    def reach(self, entries: Iterable[Place]) -> set[str]:
        """Return the meanings of everything that the entries reach."""
        todo, attributes = set[Place](), set[str]()
        for module, name in entries:
            name, _, method = name.partition(".")
            if (module, name) not in self.definitions:
                raise ValueError(f"{module} has no {name} to take the digest of.")
            todo.add((module, name))
            attributes.add(method)
        seen, waiting, meanings = set[Place](), list[Item](), set[str]()
        while todo:
            place = todo.pop()
            seen.add(place)
            waiting += self.items(place)
            while ready := [
                i for i in waiting if i.name is None or i.name in attributes
            ]:
                waiting = [item for item in waiting if item not in ready]
                for item in ready:
                    meanings.add(item.meaning)
                    attributes |= item.attributes
                    todo |= item.uses - seen
        return meanings

    def items(self, place: Place) -> Iterator[Item]:
        """Return the items defined at a place: one, but several for a class."""
        module, name = place
        for statement in self.definitions[place]:
            if isinstance(statement, ast.ClassDef):
                yield from self._items_of_class(module, statement)
            else:
                yield self._item(module, statement)
        if name and (module, "") in self.definitions:
            yield Item("", frozenset({(module, "")}), frozenset())

    def _items_of_class(self, module: str, node: ast.ClassDef) -> Iterator[Item]:
        header = ast.ClassDef(
            node.name, node.bases, node.keywords, [ast.Pass()], node.decorator_list
        )
        yield self._item(module, header)
        for part in node.body:
            if isinstance(part, ast.FunctionDef) and _only_stores(part):
                for name, default in _defaults(part):
                    line = ast.Assign([ast.Name(name)], default)
                    yield self._item(module, line, name)
            elif isinstance(part, ast.FunctionDef):
                dunder = part.name.startswith("__")
                yield self._item(module, part, None if dunder else part.name)
            elif not _is_text(part):
                names = _names_defined(part)
                yield self._item(module, part, names[0] if names[0] else None)

    def _item(self, module: str, node: ast.AST, name: str | None = None) -> Item:
        local = dict(self.imports_of(module, node))
        normalise = _Normalise(lambda word: self.resolve(module, word, local))
        tree = normalise.visit(ast.parse(ast.unparse(ast.fix_missing_locations(node))))
        # As source text, because the result of `ast.dump` differs between Python
        # versions.
        meaning = ast.unparse(tree)
        uses = frozenset(normalise.uses)
        return Item(meaning, uses, frozenset(normalise.attributes), name)

    def resolve(self, module: str, word: str, local: Mapping) -> Place | None:
        """Return where a dotted name is defined; a module has the name ""."""
        first, *others = word.split(".")
        place = local.get(first, (module, first))
        for other in [None, *others]:
            if other is not None:
                if place[1]:  # an attribute of something that is not a module
                    return None
                inner = f"{place[0]}.{other}"
                place = (inner, "") if inner in self.modules else (place[0], other)
            while place in self.imported and place not in self.definitions:
                place = self.imported[place]
            if place not in self.definitions and place[1]:
                return None
        return place

    def imports_of(self, module: str, node: ast.AST) -> Iterator[tuple[str, Place]]:
        """Return the names that imports anywhere inside a statement bind."""
        for line in ast.walk(node):
            if isinstance(line, ast.Import):
                for alias in line.names:
                    whole = alias.name if alias.asname else alias.name.split(".")[0]
                    yield alias.asname or whole, (whole, "")
            elif isinstance(line, ast.ImportFrom) and line.module:
                source = line.module
                beside = f"{module.rpartition('.')[0]}.{source}"  # a script's neighbour
                if source not in self.modules and beside in self.modules:
                    source = beside
                for alias in line.names:
                    inner = f"{source}.{alias.name}"
                    place = (
                        (inner, "") if inner in self.modules else (source, alias.name)
                    )
                    yield alias.asname or alias.name, place


class _Normalise(ast.NodeTransformer):
    """Keeps only what can change numbers, and records the names that it uses."""

    def __init__(self, resolve):
        self.resolve = resolve
        self.uses: set[Place] = set()
        self.attributes: set[str] = set()

    def visit_FunctionDef(self, node):
        node.returns = None
        node.type_params = []  # pyright: ignore[reportAttributeAccessIssue]
        return self.generic_visit(node)

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_AnnAssign(self, node):
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Import(self, node):
        return None

    def visit_ImportFrom(self, node):
        return None

    def visit_Expr(self, node):
        return None if _is_text(node) else self.generic_visit(node)

    def visit_Raise(self, node):
        node.exc = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        node.cause = None
        return self.generic_visit(node)

    def visit_Assert(self, node):
        node.msg = None
        return self.generic_visit(node)

    def visit_Call(self, node):
        if ast.unparse(node.func) == "warnings.warn":
            node.args, node.keywords = [], []
        return self.generic_visit(node)

    def visit_keyword(self, node):
        self.attributes |= {node.arg} if node.arg else set()
        return self.generic_visit(node)

    def visit_Constant(self, node):
        if isinstance(node.value, str) and node.value.isidentifier():
            self.attributes.add(node.value)  # a key, or an argument of getattr
        return node

    def visit_Name(self, node):
        return self._named(node) or node

    def visit_Attribute(self, node):
        self.attributes.add(node.attr)
        return self._named(node) or self.generic_visit(node)

    def _named(self, node) -> ast.Name | None:
        """Return the name without the module or alias through which it is used."""
        word = ast.unparse(node)
        place = self.resolve(word) if word.replace(".", "").isidentifier() else None
        if place is None or not place[1]:
            return None
        self.uses.add(place)
        return ast.Name(place[1], node.ctx)


def _names_defined(statement: ast.stmt) -> list[str]:
    """Return the names that a statement defines; "" if it only has an effect."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        single = isinstance(statement, ast.AnnAssign)
        targets = [statement.target] if single else statement.targets
        found = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        if all(isinstance(t, ast.Name | ast.Tuple) for t in targets):
            return [name for name in found if name != "__all__"]
    if isinstance(statement, ast.Import | ast.ImportFrom) or _is_text(statement):
        return []
    guards = ("TYPE_CHECKING", "__name__ ==")
    if isinstance(statement, ast.If) and ast.unparse(statement.test).startswith(guards):
        return []
    return [""]


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, or another string that is not used."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _only_stores(function: ast.FunctionDef) -> bool:
    """Whether a function is a constructor that only does `self.name = name`."""
    lines = [ast.unparse(line) for line in function.body if not _is_text(line)]
    names = [name for name, _ in _defaults(function)]
    stored = {f"self.{name} = {name}" for name in names}
    return function.name == "__init__" and bool(lines) and set(lines) <= stored


def _defaults(function: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """Return the parameters with their defaults; None stands for no default."""
    listed = function.args
    positional = [*listed.posonlyargs, *listed.args]
    missing: list[ast.expr] = [ast.Constant(None)]
    given = missing * (len(positional) - len(listed.defaults)) + listed.defaults
    named = [d or ast.Constant(None) for d in listed.kw_defaults]
    both = zip([*positional, *listed.kwonlyargs], [*given, *named], strict=True)
    return [(arg.arg, default) for arg, default in both]
