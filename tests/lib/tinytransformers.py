"""Tiny random networks of the transformers package, each with what it is fed, exported by PyTorch."""

import io
import warnings

import onnx
import torch
import transformers as hf

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
IMAGE = {"image_size": 16, "patch_size": 8, "num_channels": 3}


class Net(torch.nn.Module):
    """A network that is given its inputs by position, and gives one array."""

    def __init__(self, net, names, output):
        super().__init__()
        self.net, self.names, self.output = net, names, output

    def forward(self, *inputs):
        return getattr(self.net(**dict(zip(self.names, inputs)), return_dict=True), self.output)


def text(kind, length=7, output="last_hidden_state", mask=True, **options):
    """A network of words: embeddings and a mask, so that there is a gradient of its input."""
    config = getattr(hf, f"{kind}Config")(vocab_size=30, attn_implementation="eager", **options)
    inputs = {"inputs_embeds": torch.randn(2, length, 16)}
    if mask:
        inputs["attention_mask"] = torch.tensor([[1] * length, [1] * (length - 2) + [0] * 2])
    return Net(getattr(hf, f"{kind}Model")(config), list(inputs), output), list(inputs.values())


def picture(kind, size=16, output="last_hidden_state", ending="Model", **options):
    """A network of pictures."""
    net = getattr(hf, f"{kind}{ending}")(getattr(hf, f"{kind}Config")(**options))
    return Net(net, ["pixel_values"], output), [torch.randn(2, 3, size, size)]


def bert():
    return text("Bert", **SMALL, max_position_embeddings=16)


def distilBert():
    return text("DistilBert", dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=16)


def deberta():
    options = {"max_position_embeddings": 16, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
    config = hf.DebertaV2Config(vocab_size=30, **SMALL, **options, max_relative_positions=8, position_buckets=4)
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    return Net(hf.DebertaV2Model(config), ["inputs_embeds", "attention_mask"], "last_hidden_state"), [
        torch.randn(2, 7, 16),
        mask,
    ]


def t5():
    config = hf.T5Config(vocab_size=30, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, use_cache=False)
    inputs = {"inputs_embeds": torch.randn(2, 7, 16), "decoder_inputs_embeds": torch.randn(2, 5, 16)}
    return Net(hf.T5Model(config), list(inputs), "last_hidden_state"), list(inputs.values())


def vit():
    return picture("ViT", **SMALL, **IMAGE, attn_implementation="eager")


def yolos():
    options = {"image_size": [16, 24], "patch_size": 8, "num_detection_tokens": 3, "use_mid_position_embeddings": False}
    config = hf.YolosConfig(**SMALL, **options, attn_implementation="eager")
    return Net(hf.YolosForObjectDetection(config), ["pixel_values"], "logits"), [torch.randn(2, 3, 16, 24)]


def segformer():
    options = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_encoder_blocks": 2, "num_attention_heads": [1, 2]}
    options |= {
        "sr_ratios": [2, 1],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "mlp_ratios": [2, 2],
        "decoder_hidden_size": 8,
    }
    return picture("Segformer", 32, "logits", "ForSemanticSegmentation", **options, num_labels=4)


def clip():
    config = hf.CLIPVisionConfig(**SMALL, **IMAGE, projection_dim=8, attn_implementation="eager")
    return Net(hf.CLIPVisionModel(config), ["pixel_values"], "pooler_output"), [torch.randn(2, 3, 16, 16)]


def clipText():
    config = hf.CLIPTextConfig(
        vocab_size=30, **SMALL, max_position_embeddings=16, eos_token_id=2, attn_implementation="eager"
    )
    ids = torch.tensor([[0, 5, 6, 7, 2], [0, 8, 2, 1, 1]])
    return Net(hf.CLIPTextModel(config), ["input_ids"], "last_hidden_state"), [ids]


def wav2vec2():
    options = {"conv_dim": [8, 8], "conv_stride": [4, 2], "conv_kernel": [8, 4], "num_feat_extract_layers": 2}
    options |= {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False}
    config = hf.Wav2Vec2Config(**SMALL, **options, attn_implementation="eager")
    return Net(hf.Wav2Vec2Model(config), ["input_values"], "last_hidden_state"), [torch.randn(2, 128)]


def mamba():
    config = hf.MambaConfig(vocab_size=30, hidden_size=16, state_size=4, num_hidden_layers=2, use_cache=False)
    return Net(hf.MambaModel(config), ["inputs_embeds"], "last_hidden_state"), [torch.randn(2, 6, 16)]


NETS = {f.__name__: f for f in (bert, distilBert, deberta, t5, vit, yolos, segformer, clip, clipText, wav2vec2, mamba)}


def exported(name):
    """(network, inputs, exported model)."""
    torch.manual_seed(1)
    net, inputs = NETS[name]()
    net.eval()
    with torch.no_grad():
        for parameter in net.parameters():  # none is 0, or equal to another
            parameter += 0.05 * torch.randn(parameter.shape)
    file = io.BytesIO()
    names = [f"input{i}" for i in range(len(inputs))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, tuple(inputs), file, dynamo=False, opset_version=17, input_names=names, do_constant_folding=False
        )
    return net, inputs, onnx.load_from_string(file.getvalue())
