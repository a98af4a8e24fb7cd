"""What a request asks of its logits before a token is chosen, in the order that vLLM has.

One row, by its own request alone: what its neighbours ask changes nothing in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import torch

from engine.request import Request

NEVER = -1e30
"""Below every logit, and still a number: where nothing else is left, it is taken."""


def adjust(
    row: torch.Tensor, request: Request, eos_ids: Collection[int], ahead: Sequence[int] = ()
) -> None:
    """Change float32 [vocab] in place: which tokens are allowed, what ends the output too
    early, bias, penalties. The output is the request's with `ahead` behind it."""
    params, output = request.params, [*request.output_ids, *ahead]
    if params.allowed_token_ids:
        allowed = list(params.allowed_token_ids)
        kept = row[allowed]
        row.fill_(-torch.inf)
        row[allowed] = kept
    never = {word[-1] for word in params.bad_words if _begun(word, output)}
    if len(output) < params.min_tokens:
        never |= {*eos_ids, *(t for t in params.stop_token_ids if t < row.shape[0])}
    row[sorted(never)] = NEVER
    for token, bias in params.logit_bias:
        row[token] += bias
    _penalise(row, request, output)


def _begun(word: Sequence[int], output: Sequence[int]) -> bool:
    """All of the word but its last token stands at the output's end."""
    return len(word) == 1 or tuple(output[1 - len(word) :]) == tuple(word[:-1])


def _penalise(row: torch.Tensor, request: Request, output: Sequence[int]) -> None:
    """Repetition over prompt and output (Keskar 2019), frequency and presence over the output."""
    params = request.params
    if params.repetition_penalty != 1.0:
        seen = torch.tensor(sorted({*request.prompt_ids, *output}), device=row.device)
        values, by = row[seen], params.repetition_penalty
        row[seen] = torch.where(values > 0, values / by, values * by)
    if output and (params.frequency_penalty or params.presence_penalty):
        count = Counter(output)
        often = torch.tensor([float(n) for n in count.values()], device=row.device)
        row[list(count)] -= params.frequency_penalty * often + params.presence_penalty
