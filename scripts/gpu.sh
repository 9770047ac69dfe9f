#!/usr/bin/env bash
# All that needs a GPU, in stages, on a machine that may have no network:
#
#   scripts/gpu.sh                           everything, within 25 minutes
#   scripts/gpu.sh probe suite               some stages: probe, suite, sanitizer, benchmarks
#   scripts/gpu.sh benchmarks -- mlp-64      what follows is for the last of them
#
# Where a command may take ten minutes and no longer, three do it: `probe suite`, `sanitizer`, `benchmarks`; and what did
# not fit into the last of them: `benchmarks -- vit-64 unet-16 lstm-32`.
#
# Results go to $OUT, or to benchmarks/results/gpu, as they come. Wheels in .whl/ are used without being installed for
# good; what `scripts/prebuild.py` left in .prebuilt/ is compiled already. Each stage has a time limit, and none hides
# those behind it: the last line says what became of each. Where there is no GPU: the reason, and success.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$(command -v python || command -v python3)}
out=${OUT:-benchmarks/results/gpu}
declare -A limits=([probe]=${PROBE_SECONDS:-100} [suite]=${SUITE_SECONDS:-420} [sanitizer]=${SANITIZER_SECONDS:-380}
    [benchmarks]=${BENCHMARKS_SECONDS:-570})
stages=()
while (($#)) && [[ $1 != -- ]]; do
    if [[ $1 == all ]]; then
        stages+=(probe suite sanitizer benchmarks)
    elif [[ -n ${limits[$1]:-} ]]; then
        stages+=("$1")
    else
        echo "gpu.sh: there is no stage $1: there are probe, suite, sanitizer, benchmarks, all" >&2
        exit 2
    fi
    shift
done
(($#)) && shift
((${#stages[@]})) || stages=(probe suite sanitizer benchmarks)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
compgen -G ".whl/*.whl" >/dev/null &&
    "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$scratch/site" .whl/*.whl &&
    export PYTHONPATH="$PYTHONPATH:$scratch/site"
[[ -d .prebuilt ]] && export PUREGRAPH_CACHE=${PUREGRAPH_CACHE:-$PWD/.prebuilt}

verdicts=() failed=0
verdict() { # what became of a stage
    verdicts+=("$1 $2")
    echo "== $1: $2"
}
limited() { # seconds, a file that is added to, and a command
    local seconds=$1 file=$2
    shift 2
    timeout -s INT -k 15 "$seconds" "$@" 2>&1 | tee -a "$file"
    return "${PIPESTATUS[0]}"
}
judged() { # a stage, its exit code, when it began, a word on what was found
    local took="in $((SECONDS - $3)) s${4:+, $4}"
    case $2 in
    0) verdict "$1" "passed $took" ;;
    124 | 137) failed=1 && verdict "$1" "CUT OFF $took" ;;
    *) failed=1 && verdict "$1" "FAILED $took" ;;
    esac
}

why=$(PUREGRAPH_DEVICE=auto "$python" -c "from puregraph import device; print(device.reason())" 2>&1 | tail -n 1)
echo "$why"
if [[ $why != cuda* ]]; then
    for stage in "${stages[@]}"; do verdict "$stage" "skipped: $why"; done
    exit 0
fi
if ! "$python" -c "import puregraph.models" 2>/dev/null; then
    "$python" -m pip install -q --no-deps --no-build-isolation -e . || ln -sfn ../models puregraph/models
fi
mkdir -p "$out"
export PUREGRAPH_DEVICE=cuda
doctor=$("$python" -m puregraph doctor 2>&1)
echo "$doctor"
lacking=$(grep 'own kernels, slower$' <<<"$doctor" | cut -d ' ' -f 1 | paste -sd ' ')
[[ -n $lacking ]] && echo "gpu.sh: WITHOUT $lacking: times below are not what they could be"
threads=${PUREGRAPH_THREADS:-2} # of each worker, as there is one for each core
workers=() && "$python" -c "import xdist" 2>/dev/null && workers=(-n auto)
short=(-q --tb=short -p no:cacheprovider -p no:benchmark)
kernels=() # tests of kernels that no GPU has to fear
for file in tests/cuda/test_cuda_*.py; do [[ $file == *_broken.py || $file == *_dependent.py || $file == *_emulator.py ]] || kernels+=("$file"); done

probe() {
    local begun=$SECONDS
    limited "${limits[probe]}" /dev/null "$python" scripts/probe.py --out "$out"
    judged probe $? "$begun" "$(tail -n 1 "$out/probe.txt" 2>/dev/null)"
}

suite() { # first what runs on the GPU, then the rest
    local begun=$SECONDS file=$out/suite.txt first second
    : >"$file"
    limited $((limits[suite] / 2)) "$file" env PUREGRAPH_THREADS="$threads" "$python" -m pytest \
        "${short[@]}" "${workers[@]}" -m "gpu and not slow" "$@"
    first=$?
    limited $((limits[suite] - SECONDS + begun)) "$file" env PUREGRAPH_THREADS="$threads" "$python" -m pytest \
        "${short[@]}" "${workers[@]}" -m "not gpu and not slow" "$@"
    second=$?
    ((first == 5)) && first=0 # nothing was chosen
    ((second == 5)) && second=0
    judged suite $((first ? first : second)) "$begun" "$(grep -E '^[0-9]+ (passed|failed)' "$file" | paste -sd ';')"
}

sanitizer() { # wrong accesses, then races
    local begun=$SECONDS file=$out/sanitizer.txt half=$((limits[sanitizer] / 2)) tool code=0 found
    local folders=("$scratch"/site/nvidia/*/bin "${CUDA_HOME:-/usr/local/cuda}/bin" /usr/local/cuda*/bin)
    folders+=("$("$python" -c "import sysconfig; print(sysconfig.get_path('purelib'))")"/nvidia/*/bin)
    tool=$(PATH="$PATH:$(IFS=: && echo "${folders[*]}")" command -v compute-sanitizer)
    if [[ -z $tool ]]; then
        verdict sanitizer "skipped: there is no compute-sanitizer (pip install nvidia-cuda-sanitizer-api brings it)"
        return
    fi
    : >"$file"
    if ! limited 60 "$file" "$tool" --error-exitcode 9 "$python" -c "import cupy; print((cupy.ones(3) + 1).sum())"; then
        verdict sanitizer "skipped: compute-sanitizer does not work here: $(grep -m 1 '^=========.*[Ee]rror' "$file")"
        return
    fi
    for check in memcheck racecheck; do
        echo "== $check" | tee -a "$file"
        PUREGRAPH_EXACT=1 limited "$half" "$file" "$tool" --tool "$check" --target-processes all --error-exitcode 9 \
            --print-limit 20 "$python" -m pytest "${short[@]}" "${workers[@]}" -m "emulator and not slow" "$@" "${kernels[@]}"
        found=$?
        code=$((code ? code : found))
        half=$((limits[sanitizer] - SECONDS + begun))
    done
    found=$(grep -cE '^========= (Invalid|Error: Race|Warning: Race|Program hit)' "$file")
    ((found && !code)) && code=9
    judged sanitizer "$code" "$begun" "$found reports"
}

benchmarks() {
    local begun=$SECONDS minutes
    minutes=$("$python" -c "print((${limits[benchmarks]} - 30) / 60)")
    limited "${limits[benchmarks]}" /dev/null "$python" benchmarks/gpu.py --minutes "$minutes" --out "$out" "$@"
    judged benchmarks $? "$begun" "$(grep -c '^puregraph  ' "$out/benchmarks.txt" 2>/dev/null) cases measured"
}

for i in "${!stages[@]}"; do
    echo "== ${stages[i]}, at most ${limits[${stages[i]}]} s"
    if ((i == ${#stages[@]} - 1)); then "${stages[i]}" "$@"; else "${stages[i]}"; fi
done
[[ -n $lacking ]] && verdicts+=("WITHOUT $lacking")
printf -v line '%s; ' "${verdicts[@]}"
echo "gpu.sh: ${line%; }" | tee "$out/verdict.txt"
exit "$failed"
