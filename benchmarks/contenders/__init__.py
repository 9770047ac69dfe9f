"""The contenders: the name of each, the file that runs it, and that file's options."""

CONTENDERS = {
    "puregraph": ("puregraph", {"compiled": True}),
    "puregraph-eager": ("puregraph", {"compiled": False}),
    "torch": ("torch", {}),
    "torch-cl": ("torch", {"channelsLast": True}),
    "torch-compile": ("torch", {"compiled": True}),
    "torch-compile-cl": ("torch", {"compiled": True, "channelsLast": True}),
    "jax": ("jax", {}),
    "onnxruntime": ("onnxruntime", {}),
}
ONGPU = {  # on a GPU; images have channels last
    "puregraph": ("puregraph", {"compiled": True}),
    "torch": ("torch", {}),
    "torch-compile": ("torch", {"compiled": "default"}),
    "torch-reduce-overhead": ("torch", {"compiled": "reduce-overhead"}),
    "jax": ("jax", {}),
    "torch-max-autotune": ("torch", {"compiled": "max-autotune"}),  # it may take all the time that is left
}
EAGER = "torch"  # the one that ratios are also given against


class AbsentError(Exception):
    """A contender that cannot take part here: the reason."""


def isPeer(name):
    """Whether this is another framework."""
    return not name.startswith("puregraph")


def fits(name, mode, images):
    """Whether this contender has a part in a comparison: channels-last is for images, onnxruntime for inference."""
    if name.endswith("-cl") and not images:
        return False
    if mode == "kernel":
        return name in ("puregraph", "puregraph-eager", "torch", "torch-cl")
    return mode == "infer" or name != "onnxruntime"
