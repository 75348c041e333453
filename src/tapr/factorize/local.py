"""Factorize with a language model in this process: it reads the picture's caption and the edit. No server."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import secrets
import threading
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from tapr.encoders.base import Encoder
from tapr.encoders.model_files import LOCAL_MODEL
from tapr.encoders.weights import is_present
from tapr.errors import BadInput
from tapr.factorize.answers import CONTINUITY, read_answer
from tapr.factorize.caption.parse import parse
from tapr.factorize.failures import NoSpec
from tapr.factorize.records import Maker, seen_with
from tapr.factorize.row import FactorizerRow
from tapr.factorize.seeing import Seen, seer_of
from tapr.factorize.tagged import checked
from tapr.query.factorization import Factorization
from tapr.query.reference import Reference
from tapr.query.spec import EditSpec
from tapr.utils.extras import install_hint

NAME = "local:qwen2.5-coder-1.5b"
PROMPT = "local_v1"
TRIES = 2  # the second one is told what was wrong with the first
MAX_TOKENS = 300  # the grammar ends an answer earlier; this bounds one that rambles within it
_CONTEXT = 2048  # tokens: the prompt has about 900, an edit at most 500

# Every answer is JSON with three keys. Target first: written after the lists, it lost what they had forgotten.
# Latin letters only: the model knows Chinese too.
GRAMMAR = r"""
root ::= "{\"target\": " text ", \"remove\": " atoms ", \"add\": " atoms "}"
text ::= "\"" letter{1,240} "\""
atoms ::= "[" (atom (", " atom){0,5})? "]"
atom ::= "\"" letter{1,60} "\""
letter ::= [ !#-[\]-~À-ÖØ-öø-ɏ]
"""

Message = dict[str, str]
Generate = Callable[[list[Message]], str]  # a conversation -> the model's next words


class LocalFactorizer:
    """Caption and edit in, a spec out: temperature 0, a grammar, and the checks that every model's answer passes."""

    name = NAME

    def __init__(self, encoder: Encoder, generate: Generate | None = None) -> None:
        """`generate` stands in for the model of `tapr models pull local`, which is loaded at the first question."""
        seer = seer_of(encoder)
        if seer is None:
            raise BadInput(
                f"the local factorizer needs captions, and {encoder.card.name} has no captioner: use clip-b16"
            )
        self._see = seer.see
        self._encoder = encoder
        self._generate = generate or LlamaModel(_model_file())
        self._prompt = LocalPrompt(PROMPT)

    @property
    def maker(self) -> Maker:
        """What, with the picture and the edit, decides an answer."""
        model = seen_with(f"{NAME}:{LOCAL_MODEL.sha256[:12]}", self._encoder)
        return Maker(model, PROMPT, self._prompt.sha256, hashlib.sha256(GRAMMAR.encode()).hexdigest())

    def factorize(self, reference: Reference, edit: str) -> Factorization:
        return self.apply(self._see(reference.evidence.global_vectors[:1])[0], edit)

    def apply(self, seen: Seen, edit: str) -> Factorization:
        """The caption and the edit alone decide what is asked."""
        edit = " ".join(checked(edit).split())
        problem = ""
        for tries in range(1, TRIES + 1):
            answer = self._generate(self._prompt.messages(seen.text, edit, problem))
            try:
                spec = read(answer, seen.text, self._encoder.unread)
            except BadInput as error:
                problem = str(error)
            else:
                details = {"caption": seen.to_dict(), "prompt": PROMPT, "tries": tries}
                return Factorization(spec, NAME, _notes(seen), details)
        raise NoSpec(f"the local model gave no valid spec in {TRIES} answers: {problem}")


class LocalPrompt:
    """What the model is asked with: a versioned file of a rule, a question and examples written by hand."""

    def __init__(self, version: str) -> None:
        data = resources.files("tapr.factorize").joinpath(f"prompts/{version}.json").read_bytes()
        self.sha256 = hashlib.sha256(data).hexdigest()
        self._texts: dict[str, Any] = json.loads(data)

    def messages(self, caption: str, edit: str, problem: str = "") -> list[Message]:
        """The examples go first and never change, so that the model reads them once per process.

        A wrong answer is not shown again, only what was wrong with it: a model this small loses the thread of a talk.
        """
        said = [_message("system", self._texts["system"])]
        for example in self._texts["examples"]:
            said.append(self._question(example["caption"], example["edit"]))
            said.append(_message("assistant", json.dumps(example["answer"])))
        question = self._question(caption, edit)
        if problem:
            question["content"] += self._texts["correction"].replace("{problem}", problem)
        return [*said, question]

    def _question(self, caption: str, edit: str) -> Message:
        # the edit last: it is the one text that may hold a brace
        return _message("user", self._texts["user"].replace("{caption}", caption).replace("{edit}", edit))


class LlamaModel:
    """A GGUF file run by llama.cpp in this process, loaded when it is first asked; one question at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: Any = None
        self._lock = threading.Lock()

    def __call__(self, messages: list[Message]) -> str:
        question = {
            "messages": messages,
            "grammar": GRAMMAR,
            "temperature": 0,
            "max_tokens": MAX_TOKENS,
            "cache_prompt": True,
        }
        with self._lock:
            if self._server is None:
                self._server = self._load()
            reply = self._server.handle_chat_completions(question)
        if "choices" not in reply:
            reason = reply.get("error", {}).get("message", "it gave no reason")
            raise NoSpec(f"the local model gave no answer ({reason})")
        return str(reply["choices"][0]["message"]["content"])

    def _load(self) -> Any:
        import xllamacpp

        from tapr.utils.threads import thread_count

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._path)
        parameters.n_ctx = _CONTEXT
        parameters.n_parallel = 1
        parameters.cache_ram_mib = 0  # the one conversation in use is kept anyway
        parameters.warmup = False
        parameters.verbosity = -1
        for threads in (parameters.cpuparams, parameters.cpuparams_batch):
            threads.n_threads = thread_count()
        # it also listens on a port of this machine, which nobody is told: a key of its own keeps others out
        parameters.port = 0
        parameters.api_keys = [secrets.token_urlsafe(32)]
        parameters.ui = False
        return xllamacpp.Server(parameters)


def read(answer: str, caption: str, unread: Callable[[str], str] | None = None) -> EditSpec:
    """The spec in an answer of the grammar's form; the lists are made to agree with Target, which the model does best.

    Preserve is what Target keeps of the caption's phrases, and what Target still says is not removed. An atom stays in
    one factor: first Add, then Remove, then Preserve. Continuity is 0 where something is replaced and nothing kept.
    """
    try:
        value = json.loads(answer)
    except ValueError:
        raise BadInput("the answer is cut off") from None
    target, phrases = _words(value["target"]), parse(caption).phrases
    gone = [atom for atom in value["remove"] if f" {' '.join(_words(atom))} " not in f" {' '.join(target)} "]
    kept = [" ".join(word for word in phrase.named().split() if word in target) for phrase in phrases]
    used: set[str] = set()
    value["add"], value["remove"] = _unique(value["add"], used), _unique(gone, used)
    things = [text for text, phrase in zip(kept, phrases, strict=True) if set(text.split()) & set(phrase.head)]
    value["preserve"] = _unique(things, used)
    value[CONTINUITY] = 0 if value["add"] and value["remove"] and not any(kept) else None
    return read_answer(json.dumps(value), unread)


def _words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text.casefold())


def _unique(atoms: list[str], used: set[str]) -> list[str]:
    kept = []
    for atom in (" ".join(atom.split()) for atom in atoms):
        if atom and atom.casefold() not in used:
            used.add(atom.casefold())
            kept.append(atom)
    return kept


def _notes(seen: Seen) -> tuple[str, ...]:
    if seen.sure:
        return ()
    return (f'the caption "{seen.text}" is unsure, and the model has nothing else to read the picture by',)


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _model_file() -> Path:
    """The stored file; a gigabyte is not fetched unasked."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise BadInput(f"the local factorizer runs its model with xllamacpp: {install_hint('local')}")
    if not is_present(LOCAL_MODEL):
        size = LOCAL_MODEL.size / 1e9
        raise BadInput(f"the model of the local factorizer ({size:.1f} GB) is not here: run `tapr models pull local`")
    return LOCAL_MODEL.path


ROWS = (
    FactorizerRow(
        "local",
        "A small language model on this machine.",
        lambda setting: LocalFactorizer(setting.eyes),
        order=30,
        needs_encoder=True,
    ),
)
