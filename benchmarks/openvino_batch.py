"""One closed batch on OpenVINO GenAI: `PYTHON openvino_batch.py MODEL_FOLDER WORKLOAD.json`.

benchmarks.peers runs it with the Python of an environment that has openvino-genai; nothing of
EveWatch is imported. The workload is that of `evewatch bench --workload`. The last line of standard
output is JSON: tokens that came, and seconds.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import openvino
import openvino_genai as genai

WARM_UP = 2
"""Requests before the clock starts."""


def pipeline(folder):
    """With room for every request at once, as EveWatch has; activations stay float32."""
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_seqs, scheduler.max_num_batched_tokens = 48, 512
    scheduler.cache_size, scheduler.enable_prefix_caching = 2, False
    scheduler.dynamic_split_fuse = True
    hints = {"KV_CACHE_PRECISION": "u8", "INFERENCE_PRECISION_HINT": "f32"}
    return genai.ContinuousBatchingPipeline(folder, scheduler, "CPU", hints)


def request(item):
    """Prompt tensor, and a greedy generation of exactly so many tokens."""
    wanted = genai.GenerationConfig()
    wanted.max_new_tokens, wanted.ignore_eos, wanted.do_sample = item["out"], True, False
    return openvino.Tensor(np.array([item["prompt"]], dtype=np.int64)), wanted


def main():
    folder, workload = sys.argv[1:]
    work = [request(item) for item in json.loads(Path(workload).read_text("utf-8"))]
    running = pipeline(folder)
    running.generate(*map(list, zip(*work[:WARM_UP], strict=True)))
    start = time.perf_counter()
    done = running.generate(*map(list, zip(*work, strict=True)))
    seconds = time.perf_counter() - start
    tokens = sum(len(answer.m_generation_ids[0]) for answer in done)
    print(json.dumps({"tokens": tokens, "seconds": seconds, "version": genai.__version__}))


if __name__ == "__main__":
    main()
