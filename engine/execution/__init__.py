"""From a Plan to tokens: loading, KV cache, forward pass, sampler. The loop comes in."""
