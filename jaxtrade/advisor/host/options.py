"""Keys of the advice service."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ServiceOptions(BaseModel, frozen=True):
    """How questions are queued, asked, limited and remembered. None: no limit, or no file."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    workers: int = Field(default=8, ge=1, le=64, description="threads that ask, each one question at a time")
    deadline_s: float = Field(default=30.0, gt=0, description="seconds that one request may take in all")
    grace_s: float = Field(default=2.0, gt=0, description="seconds past its deadline after which a worker is given up")
    queue_size: int = Field(default=1024, ge=1, description="questions that wait at most; the least wanted goes first")
    ttl_chunks: int = Field(default=64, ge=1, description="submissions after which a question nobody repeats expires")
    ready_rows: int = Field(default=4096, ge=1, description="answers that may wait to be taken before asking pauses")
    attempts: int = Field(default=3, ge=1, le=10, description="attempts at a question before it has failed")
    retry_share: float = Field(default=0.1, ge=0, le=1, description="retries per request, over recent requests")
    retry_base_s: float = Field(default=0.5, gt=0, description="shortest wait before a retry")
    retry_cap_s: float = Field(default=20.0, gt=0, description="longest wait before a retry that nobody asked for")
    failed_for_s: float = Field(default=60.0, ge=0, description="seconds before a failed question may be asked anew")
    poison_after: int = Field(default=3, ge=1, description="same fault of the same question: not asked in this run")
    breaker_failures: int = Field(default=5, ge=1, description="failures in a row that open the circuit breaker")
    breaker_open_s: float = Field(default=30.0, gt=0, description="its first pause, doubled at every failed probe")
    breaker_longest_s: float = Field(default=600.0, gt=0, description="its longest pause")
    requests_per_minute: int | None = Field(default=None, ge=2)
    tokens_per_minute: int | None = Field(default=None, ge=2)
    max_calls: int | None = Field(default=None, ge=0, description="calls in all, those of earlier runs with the same "
                                  "ledger included")
    max_tokens: int | None = Field(default=None, ge=0, description="tokens in all, prompts and answers")
    max_cost: float | None = Field(default=None, ge=0, description="money in all, in the prices' currency")
    price_prompt: float | None = Field(default=None, ge=0, description="price of a million prompt tokens")
    price_completion: float | None = Field(default=None, ge=0, description="price of a million answer tokens")
    completion_tokens: int = Field(default=256, ge=1, description="tokens that an answer has at most")
    overhead_tokens: int = Field(default=1024, ge=0, description="tokens that a server counts beside the prompt at "
                                 "most: chat template, answer schema")
    same_model: bool = Field(default=False, description="where the server says that it now runs another model, its "
                             "answer counts as none and nothing more is asked; else one line tells so")
    cache: str | None = Field(default=None, description="sqlite file of answers, which runs may share")
    ledger: str | None = Field(default=None, description="sqlite file of what was spent, which the caps count on")
    seed: int = Field(default=0, ge=0, description="of the waits' jitter")

    @model_validator(mode="after")
    def _priced(self) -> ServiceOptions:
        if self.max_cost is not None and (self.price_prompt is None or self.price_completion is None):
            raise ValueError("advisor.max_cost needs advisor.price_prompt and advisor.price_completion "
                             "(per million tokens): without prices nothing can be counted against it")
        if self.retry_cap_s < self.retry_base_s:
            raise ValueError(f"advisor.retry_cap_s = {self.retry_cap_s} is below retry_base_s = {self.retry_base_s}")
        if self.breaker_longest_s < self.breaker_open_s:
            raise ValueError(f"advisor.breaker_longest_s = {self.breaker_longest_s} is below "
                             f"breaker_open_s = {self.breaker_open_s}")
        return self
