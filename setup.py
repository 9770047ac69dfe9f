"""How puregraph is built and installed; `models/` beside the package is installed as `puregraph.models`."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'^__version__ = "(.+)"$', (HERE / "puregraph/core/version.py").read_text(), re.M)[1]

EXTRAS = {
    "fast": ["llvmlite>=0.44,<0.51"],  # its private functions are used: a newer one has to be tried first
    "cuda12": [
        "cupy-cuda12x>=14,<14.3",  # up to versions that were tried, as all of these
        "nvidia-cublas-cu12>=12.4,<13",
        "nvidia-cuda-nvrtc-cu12>=12.4,<13",
        "nvidia-cuda-runtime-cu12>=12.4,<13",  # the headers that CuPy's own kernels include
        "nvidia-cudnn-cu12>=9.19,<9.20",
        "nvidia-nccl-cu12>=2.18.1,<3; sys_platform == 'linux'",  # what CuPy 14 asks for
        "nvidia-cudnn-frontend==1.32.0",
    ],
    "cuda13": [
        "cupy-cuda13x>=14,<14.3",
        "nvidia-cublas>=13,<13.2",
        "nvidia-cuda-nvrtc>=13,<13.1",
        "nvidia-cuda-runtime>=13,<13.1",
        "nvidia-cudnn-cu13>=9.19,<9.20",
        "nvidia-nccl-cu13>=2.27.7,<3; sys_platform == 'linux'",
        "nvidia-cudnn-frontend==1.32.0",
    ],
    "bfloat16": ["ml_dtypes>=0.5"],
    "mpi": ["mpi4py>=4.1"],
    "mpich": ["mpi4py>=4.1", "mpich>=5; sys_platform != 'win32'", "impi-rt>=2021.15; sys_platform == 'win32'"],
    "ray": ["ray[train]>=2.60"],
    "networkx": ["networkx>=3"],
    "draw": ["graphlay>=0.3,<0.4", "resvg-py>=0.5"],
    "onnx": ["onnx>=1.16"],
    "docs": ["furo>=2025", "myst-parser>=4", "onnx>=1.16", "sphinx>=8"],
    "notebook": ["ipykernel>=6", "nbclient>=0.10"],
    "examples": ["scikit-learn>=1.4"],
    "cupy": ["cupy-cuda13x==14.2.0"],  # to try what is done with it where there is no driver
    "nvrtc": ["nvidia-cuda-nvrtc==13.0.88"],  # with g++, all that proving kernels without a GPU takes
    "images": ["pillow>=10"],
    "tokenizers": ["tokenizers>=0.20"],  # of its own dependencies, files on disk need none
    "plot": ["matplotlib>=3.8"],
    "tensorboard": ["tensorboardX>=2.6.2"],
    "test": [
        "graphlay>=0.3,<0.4",
        "hypothesis>=6.100",
        "ml_dtypes>=0.5",
        "networkx>=3",
        "onnx>=1.16",
        "pillow>=10",
        "pytest>=8.2",
        "pytest-timeout>=2.3",
        "pytest-xdist>=3.6",
        "resvg-py>=0.5",
        "scikit-learn>=1.4",
    ],
    "peers": [
        "keras==3.15.1",
        "networkx>=3",
        "nnsmith==0.1.0",
        "onnxruntime",
        "pandas>=2",
        "safetensors>=0.4",
        "torch==2.13.0",
        "expecttest",  # which the list of optimizers in torch.testing imports
        "transformers>=5",
    ],
    "lint": ["mypy==2.4.1", "ruff==0.17.5"],
    "bench": ["jax", "onnx>=1.16", "onnxruntime", "torch==2.13.0"],
}

setup(
    name="puregraph",
    version=VERSION,
    description="Networks as graphs that are checked, measured and compiled before the first batch",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=[*find_packages(include=["puregraph", "puregraph.*"]), "puregraph.models"],
    package_dir={"puregraph.models": "models"},
    package_data={
        "puregraph": ["py.typed"],
        "puregraph.draw": ["page.css", "page.js"],
        "puregraph.ops.cuda": ["headers/*.h", "libraries/*.json"],
        "puregraph.testing.emulator": ["*.h", "*.cpp"],
    },
    install_requires=["h5py>=3.10", "numpy>=2", "rich>=13"],
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["puregraph=puregraph.cli:runProcess"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    zip_safe=False,
)
