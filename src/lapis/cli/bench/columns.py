"""The columns of the tables that `lapis bench` prints: one per field of a row that is shown."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A title, the format of numbers (empty for text), and the meaning of the column, which is printed below."""

    title: str
    form: str
    meaning: str


# By the field of the row; a field means the same in every benchmark.
COLUMNS = {
    "contender": Column("contender", "", "what does the task, our kernels first"),
    "engine": Column(
        "engine", "", "what runs the network; in a busy one many neurons fire, in a sparse one as few as in the paper"
    ),
    "work": Column("work", "", "a pass of attention through one layer"),
    "microseconds": Column("us", ",.0f", "microseconds, calculated"),
    "bound_by": Column("bound by", "", "what the calculated time is spent on"),
    "gpu": Column("GPU", "", "the card that is calculated"),
    "gpus": Column("GPUs", "d", "how many share the batch"),
    "hours": Column("hours", ",.0f", "of training, calculated; reading images is taken to be faster"),
    "gb": Column("GB", ".1f", "memory of one GPU, calculated"),
    "recompute_hours": Column("hours, recompute", ",.0f", "the same with optim.recompute=true"),
    "recompute_gb": Column("GB, recompute", ".1f", "the same with optim.recompute=true"),
    "stage": Column("stage", "", "a part of the network, summed over its blocks"),
    "layer": Column("layer", "", "a linear layer of one block, on the tokens of one image"),
    "activity": Column("activity", ".2f", "share of the layer's inputs that spiked"),
    "dense_ms": Column("dense ms", ".4f", "milliseconds with every input, median over rounds"),
    "events_ms": Column("events ms", ".4f", "milliseconds with the inputs that spiked, median over rounds"),
    "dense_times_events": Column("dense / events", ".2f", "how many times longer dense takes, median over rounds"),
    "form": Column("form", "", "how the engine keeps the weights"),
    "weights_mb": Column("weights MB", ".2f", "weights and tables in memory"),
    "working_mb": Column("working MB", ".2f", "working memory of 1 thread"),
    "times_file": Column("times file", ".2f", "weights MB as a multiple of the file"),
    "times_usual": Column("times usual", ".2f", "how many times longer than the usual form, median over rounds"),
    "times_events": Column("times events", ".2f", "how many times longer than the same network by events"),
    "median_ms": Column("ms", ".3f", "milliseconds of one call, median over rounds"),
    "spread": Column("spread", ".0%", "distance of the quartiles of ms, as a share of the median"),
    "ms_per_image": Column("ms per image", ".3f", "milliseconds, median over rounds"),
    "cpu_ms_per_image": Column("CPU ms", ".3f", "milliseconds per image of all threads together, median over rounds"),
    "batch_gain": Column("batch gain", ".2f", "times the images per second of batch 1, median over rounds"),
    "times_ours": Column("times ours", ".2f", "how many times longer than lapis, median over rounds"),
    "times_ours_low": Column("low", ".2f", "lower quartile of times ours"),
    "times_ours_high": Column("high", ".2f", "upper quartile of times ours"),
    "target": Column("target", ".2f", "the least that times ours should be"),
    "peak_mb": Column("peak MB", ".1f", "most memory that the whole process held"),
    "load_s": Column("load s", ".2f", "seconds from the file to a network that can run"),
    "gmac_per_s": Column("GMAC per s", ".1f", "billions of multiply-accumulates per second in a linear layer"),
    "share_of_limit": Column("of limit", ".0%", "GMAC per s as a share of what the multiply instruction reaches"),
    "tokens": Column("tokens", "d", "patches of one image, and the class token"),
    "ms_per_block": Column("ms per block", ".3f", "one image on 1 thread, median over rounds"),
    "attention_ms_per_block": Column("attention", ".3f", "the part of ms per block that attention takes, in one run"),
    "predictions": Column("predictions", ",", "images that were classified"),
    "wrong": Column("wrong", ",", "answers that differ from the first of their image"),
    "growth_kb": Column("growth KB", ",", "how far the peak memory of the process rose"),
    "allowed_kb": Column("allowed KB", ",", "what the interpreter itself may need"),
    "batch": Column("images", "d", "images of one call"),
    "heads": Column("heads", "d", "attention heads"),
    "channels": Column("channels", "d", "channels of one head"),
    "way": Column(
        "way", "", "broadcast holds a difference for each pair and channel, eager is plain torch, fused is our kernel"
    ),
    "extra_mb": Column("MB", ".2f", "peak memory beyond inputs and result"),
    "simulator": Column("simulator", "", "what runs the network as spikes; numpy defines the answer"),
    "spikes": Column("spikes", ",", "spikes of one image"),
    "operations": Column("operations", ",", "synapses that those spikes crossed"),
    "threads": Column("threads", "d", "threads of the engine"),
    "one_thread_times": Column("1 thread takes", ".2f", "how many times longer with 1 thread, median over rounds"),
    "joules_per_image": Column("J per image", ".6f", "energy of the whole processor, median over rounds"),
}
