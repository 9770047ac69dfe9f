"""Names of Hugging Face's transformers: GPT-2, BERT, ViT, Llama and T5, for the networks of `puregraph.models`.

The prefix of names ("transformer.", "bert.", ...) is optional, because files of a network without its head lack it.
MiniLM and other encoders of sentence-transformers have BERT's names.

Source    the reference of transformers: names in the state dicts of GPT2LMHeadModel, BertModel,
          ViTForImageClassification, LlamaForCausalLM and T5ForConditionalGeneration
"""

from __future__ import annotations

from puregraph.core.errors import ArgumentError
from puregraph.graph import Graph
from puregraph.serialize.weights.namemap import NameMap
from puregraph.serialize.weights.transforms import same, squeeze

GPT2 = NameMap(
    [  # its linear layers are stored as (in, out)
        ("transformer.wte", "words"),
        ("transformer.wpe", "places"),
        ("transformer.h.{i}.ln_{k}", "block{i+1}.norm{k}"),
        ("transformer.h.{i}.attn.c_attn", "block{i+1}.attn.qkv", same),
        ("transformer.h.{i}.attn.c_proj", "block{i+1}.attn.out", same),
        ("transformer.h.{i}.mlp.c_fc", "block{i+1}.mlp.fc1", same),
        ("transformer.h.{i}.mlp.c_proj", "block{i+1}.mlp.fc2", same),
        ("transformer.ln_f", "norm"),
        ("lm_head", "scores"),
    ],
    optional="transformer.",
    ignored=("*.attn.bias", "*.attn.masked_bias"),  # causal masks
)

LAYER = "bert.encoder.layer.{i}"
BERT = NameMap(
    [
        ("bert.embeddings.word_embeddings", "words"),
        ("bert.embeddings.position_embeddings", "positions"),
        ("bert.embeddings.token_type_embeddings", "sides"),
        ("bert.embeddings.LayerNorm", "norm"),
        (tuple(f"{LAYER}.attention.self.{part}" for part in ("query", "key", "value")), "block{i+1}.attn.qkv"),
        (f"{LAYER}.attention.output.dense", "block{i+1}.attn.out"),
        (f"{LAYER}.attention.output.LayerNorm", "block{i+1}.norm1"),
        (f"{LAYER}.intermediate.dense", "block{i+1}.mlp.fc1"),
        (f"{LAYER}.output.dense", "block{i+1}.mlp.fc2"),
        (f"{LAYER}.output.LayerNorm", "block{i+1}.norm2"),
        ("bert.pooler.dense", "pooler"),
    ],
    optional="bert.",
    ignored=("*.position_ids",),
)

OLD, NEW = "vit.encoder.layer.{i}", "vit.layers.{i}"  # in files, and in memory with transformers 5
VIT = NameMap(
    [
        ("vit.embeddings.cls_token", "token.W", squeeze(0)),
        ("vit.embeddings.position_embeddings", "where.W", squeeze(0)),
        ("vit.embeddings.patch_embeddings.projection", "patches"),
        (tuple(f"{OLD}.attention.attention.{part}" for part in ("query", "key", "value")), "block{i+1}.attn.qkv"),
        (f"{OLD}.attention.output.dense", "block{i+1}.attn.out"),
        (f"{OLD}.layernorm_before", "block{i+1}.norm1"),
        (f"{OLD}.layernorm_after", "block{i+1}.norm2"),
        (f"{OLD}.intermediate.dense", "block{i+1}.mlp.fc1"),
        (f"{OLD}.output.dense", "block{i+1}.mlp.fc2"),
        (tuple(f"{NEW}.attention.{part}_proj" for part in "qkv"), "block{i+1}.attn.qkv"),
        (f"{NEW}.attention.o_proj", "block{i+1}.attn.out"),
        (f"{NEW}.layernorm_before", "block{i+1}.norm1"),
        (f"{NEW}.layernorm_after", "block{i+1}.norm2"),
        (f"{NEW}.mlp.fc{{k}}", "block{i+1}.mlp.fc{k}"),
        ("vit.layernorm", "norm"),
        ("classifier", "head"),
    ],
    optional="vit.",
)

LLAMA = NameMap(
    [
        ("model.embed_tokens", "words"),
        ("model.layers.{i}.self_attn.{part}_proj", "block{i+1}.{part}"),
        ("model.layers.{i}.self_attn.o_proj", "block{i+1}.out"),
        ("model.layers.{i}.mlp.{part}_proj", "block{i+1}.{part}"),
        ("model.layers.{i}.input_layernorm", "block{i+1}.norm1"),
        ("model.layers.{i}.post_attention_layernorm", "block{i+1}.norm2"),
        ("model.norm", "norm"),
        ("lm_head", "scores"),
    ],
    optional="model.",
    ignored=("*.rotary_emb.inv_freq",),
)


def t5Rows() -> list[tuple[str, str]]:
    """The rows of T5: its decoder has one more layer in each block."""
    rows = [("shared", "words"), ("lm_head", "scores")]
    for side in ("encoder", "decoder"):
        block, ours, last = f"{side}.block.{{i}}.layer", f"{side}{{i+1}}", 2 if side == "decoder" else 1
        rows += [(f"{block}.{n}.layer_norm", f"{ours}.norm{3 if n == last else n + 1}") for n in range(last + 1)]
        rows += [(f"{block}.0.SelfAttention.o", f"{ours}.attn.out")]
        rows += [(f"{block}.0.SelfAttention.{{part}}", f"{ours}.attn.{{part}}")]
        rows += [(f"{block}.{last}.DenseReluDense.{theirs}", f"{ours}.{name}") for theirs, name in NETWORK]
        rows += [(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias", f"{side}bias")]
        rows += [(f"{side}.final_layer_norm", f"{side}norm")]
    return [
        *rows,
        ("decoder.block.{i}.layer.1.EncDecAttention.o", "decoder{i+1}.cross.out"),
        ("decoder.block.{i}.layer.1.EncDecAttention.{part}", "decoder{i+1}.cross.{part}"),
    ]


NETWORK = (("wi", "up"), ("wi_0", "gate"), ("wi_1", "up"), ("wo", "down"))
T5 = NameMap(
    t5Rows(),
    ignored=("*.embed_tokens.weight", "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),
)

FAMILIES = {  # a path that only this family has
    "sides.W": BERT,
    "patches.W": VIT,
    "encoderbias.W": T5,
    "block1.gate.W": LLAMA,
    "words.W": GPT2,
}


def mapFor(graph: Graph) -> NameMap:
    """The map of the family that a graph belongs to.

    Raises    ArgumentError for a graph of no such family
    """
    paths = graph.params
    for path, names in FAMILIES.items():
        if path in paths:
            return names
    raise ArgumentError(
        "names='huggingface' is for gpt, bert, vit, llama and t5 of puregraph.models; this graph has other paths; "
        "a NameMap of its own says which name is which path"
    )
