"""A Hugging Face model from a local folder. Nothing is fetched, no code of the folder is run, and no pickle is read:
weights are safetensors. The only module that imports torch and transformers, when it loads (extra `transformers`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtrade.advisor.serve.api import Ask, Model, RequestError, Text
from jaxtrade.advisor.serve.process import LoadError

DTYPES = ("auto", "float32", "bfloat16", "float16")


def load(folder: Path, device: str = "auto", dtype: str = "auto", threads: int = 1) -> Model:
    """The model of a folder.

    Args:
        device: as torch names it; auto is `cuda` where there is one, else `cpu`. dtype: of `DTYPES`; auto is that of
            the weights. threads: of a CPU that it computes with.
    Raises:
        LoadError: an absent package, a folder that is not there or holds no such model, or not enough memory.
    """
    if not (folder / "config.json").is_file():
        raise LoadError(f"{folder}: no model there (no config.json)")
    if not list(folder.glob("*.safetensors")):
        raise LoadError(f"{folder}: no *.safetensors there; weights in other files are not read (pickle can run code): "
                        "convert them, as transformers' save_pretrained does")
    os.environ["HF_HUB_OFFLINE"] = "1"  # before the import, which reads it
    try:
        import torch  # pyright: ignore[reportMissingImports]
        import transformers  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise LoadError(f"a local model needs {error.name}: pip install 'jaxtrade[transformers]'") from None
    torch.set_num_threads(threads)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    kind: Any = "auto" if dtype == "auto" else getattr(torch, dtype)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=kind, local_files_only=True, use_safetensors=True, trust_remote_code=False)
        model = model.to(place).eval()
    except Exception as error:  # of three libraries; whatever it is, this model is not served
        if not _is_memory(error):
            what = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            raise LoadError(f"{folder}: cannot be loaded on {place}: {what}") from None
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        raise LoadError(f"{folder}: out of memory on {place} ({size / 1e9:.1f} GB of weights); choose a smaller model, "
                        "or another device or dtype (advisor.options)") from None
    return _Transformer(folder.resolve().name, tokenizer, model)


def _is_memory(error: BaseException) -> bool:
    """torch says so in the text of a RuntimeError: on a GPU `out of memory`, on a CPU `can't allocate memory`."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and ("out of memory" in text or "allocate memory" in text))


class _Transformer:
    """A loaded model and its tokenizer."""

    def __init__(self, name: str, tokenizer: Any, model: Any) -> None:
        self._name, self._tokenizer, self._model = name, tokenizer, model
        ends = model.generation_config.eos_token_id
        self._ends = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])

    @property
    def name(self) -> str:
        return self._name

    def write(self, ask: Ask, go_on: Callable[[], bool]) -> Text:
        import torch  # pyright: ignore[reportMissingImports]

        prompt = self._tokens(ask)
        used = int(prompt["input_ids"].shape[1])
        room = getattr(self._model.config, "max_position_embeddings", None)
        if room is not None and used + ask.max_tokens > room:
            raise RequestError(400, "context_length_exceeded",
                               f"{used} tokens of prompt and {ask.max_tokens} of answer do not fit into {room}")
        how: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if ask.temperature > 0:
            how = {"do_sample": True, "temperature": ask.temperature}
            if ask.seed is not None:
                torch.manual_seed(ask.seed)
        with torch.inference_mode():
            whole = self._model.generate(
                **prompt, max_new_tokens=ask.max_tokens, num_beams=1, pad_token_id=min(self._ends, default=0),
                stopping_criteria=[lambda ids, scores, **_: torch.full((ids.shape[0],), not go_on(), dtype=torch.bool,
                                                                       device=ids.device)], **how)
        written = whole[0, used:].tolist()
        ended = bool(written) and written[-1] in self._ends
        text = self._tokenizer.decode(written, skip_special_tokens=True)
        return Text(text, used, len(written), cut=not ended and len(written) >= ask.max_tokens)

    def _tokens(self, ask: Ask) -> dict[str, Any]:
        """The prompt by the model's own chat template, else its texts one after another."""
        messages = [{"role": role, "content": content} for role, content in ask.messages]
        if self._tokenizer.chat_template:
            found = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt",
                                                        return_dict=True)
        else:
            found = self._tokenizer("\n".join(content for _, content in ask.messages), return_tensors="pt")
        return {key: found[key].to(self._model.device) for key in ("input_ids", "attention_mask")}
