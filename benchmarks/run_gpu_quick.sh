#!/bin/bash
# What a GPU says about the mask kernel, the decode loops and continuous batching, in two commands; no network is needed there.
#
#   benchmarks/run_gpu_quick.sh carry     where there is a network: wheels and record12.json into .whl; with the tree below 64 MiB
#   benchmarks/run_gpu_quick.sh first     on the GPU's machine, at most 330 s: setup, doctor, smoke, tests, apply
#   benchmarks/run_gpu_quick.sh second    there, at most 590 s: decoding, profile, compiled, continuous batching, memcheck
#   DRY=1 benchmarks/run_gpu_quick.sh first | second    the same commands on a CPU, with tiny shapes and no time limits
#
#   LIMIT    seconds of the whole command, if there are fewer (325, 580)
#   OUT      folder of the results (/tmp/gpu_quick): at most 8 files a command, written as they come
#   SITE     where the wheels of .whl are installed (/tmp/site)
#   PYTHON   the interpreter (python3): 3.12, with torch for CUDA, triton, pytest, hypothesis, psutil
#
# Each part has a time limit of its own, or what is left of LIMIT; with less than 15 s it is skipped. A part that fails does not
# stop the others. The exit status is 1 if one has failed.
#
# Seconds expected on an H100:
#   first   setup 30, doctor 30, smoke 30, tests 90, apply 60              (240)
#   second  device 120, record 80, compiled 90, profile 40, continuous 100, batching 50, memcheck 50   (530)
set -u
cd "$(dirname "$0")/.."
self=$PWD/benchmarks/run_gpu_quick.sh
python=${PYTHON:-python3}
out=${OUT:-/tmp/gpu_quick}
site=${SITE:-/tmp/site}
dry=${DRY:-}
report=$out/report.md
most=$((64 * 1024 * 1024))
status=0

say() { printf '%s\n' "$@" | tee -a "$report"; }

# part NAME SECONDS COMMAND...: its output goes to the report, and the end of it to the terminal
part() {
    local name=$1 seconds=$2 start=$SECONDS left=$((limit - SECONDS - 5)) found
    shift 2
    [ -z "$dry" ] || seconds=$left
    [ "$seconds" -le "$left" ] || seconds=$left
    say "" "## $name"
    if [ "$seconds" -lt 15 ]; then
        say "$name: skipped, $left s are left"
        return
    fi
    timeout --kill-after=5 "$seconds" "$@" 2>&1 | tee -a "$report" | tail -n 40
    found=${PIPESTATUS[0]}
    say "" "$name: exit status $found after $((SECONDS - start)) s (limit $seconds s, $SECONDS s in all)"
    [ "$found" -eq 0 ] || status=1
}

has() { "$python" -c "import $1" 2>/dev/null; }

# tests FILE ARGUMENTS...: pytest, with its output in a file; failures and the last line are printed
tests() {
    local file=$out/$1 options=() found
    shift
    ! has pytest_timeout || options+=(--timeout=90)
    ! has jaxtyping || options+=(-p no:jaxtyping)
    "$python" -m pytest -p no:cacheprovider -v -rfE --tb=short "${options[@]}" "${of_tests[@]}" "$@" >"$file" 2>&1
    found=$?
    grep -aE '^(FAILED|ERROR) ' "$file" | cut -c1-300 | head -n 60
    grep -aE '^E  ' "$file" | sort | uniq -c | sort -rn | cut -c1-200 | head -n 12
    grep -aE '(passed|failed|error|skipped)' "$file" | tail -n 1
    return "$found"
}

# Packages that the machine lacks, and the compiled core.
setup() {
    if [ -z "$dry" ] && ls .whl/*.whl >/dev/null 2>&1 && [ ! -d "$site/transformers" ]; then
        "$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$site" .whl/*.whl || return 1
    fi
    "${CC:-cc}" -O2 -fPIC -shared -fvisibility=hidden hf_guided/automaton/c/*.c -o hf_guided/automaton/libcore.so.new &&
        mv hf_guided/automaton/libcore.so.new hf_guided/automaton/libcore.so
}

carry() { # pycountry: without it mistral-common does not import
    local needed platforms=() n size
    needed="transformers==5.23.0 xgrammar==0.2.8 apache-tvm-ffi==0.1.15.post2 llguidance==1.9.1 outlines-core==0.2.14
        lark==1.3.1 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 referencing==0.37.0 rpds-py==2026.9.1
        pydantic==2.14.3 pydantic-core==2.50.4 annotated-types==0.8.0 typing-inspection==0.4.5
        mistral-common==1.13.1 pydantic-extra-types==2.11.1 pycountry==26.2.16
        fqdn==1.6.0 isoduration==20.11.0 jsonpointer==3.12 rfc3339-validator==0.1.4 rfc3986-validator==0.1.1
        rfc3987-syntax==1.1.0 uri-template==1.3.0 webcolors==25.10.0 arrow==1.4.0 tzdata==2026.6"
    for n in 39 35 34 31 28 27 24 17; do platforms+=(--platform "manylinux_2_${n}_x86_64"); done
    rm -rf .whl && mkdir .whl || return 1
    "$python" -c 'from benchmarks.common import data_folder; print(data_folder() / "record12.json")' | xargs -I{} cp {} .whl/ || return 1
    # shellcheck disable=SC2086
    "$python" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp "${platforms[@]}" \
        --platform manylinux2014_x86_64 --platform manylinux1_x86_64 -d .whl $needed || return 1
    size=$( { git ls-files -z --cached --others --exclude-standard; find .whl -type f -print0; } |
        xargs -0 du -cb 2>/dev/null | tail -n 1 | cut -f1)
    echo "tree and .whl: $size of $most bytes"
    [ "$size" -lt "$most" ]
}

run_first() {
    part setup 75 "$self" setup_only
    part doctor 60 "$python" -m hf_guided doctor
    part smoke 75 "$python" -m benchmarks.gpu_smoke --device "$device"
    part tests 130 "$self" tests_only tests.txt -n "$processes" tests/gpu --ignore tests/gpu/test_kernel_project.py \
        --ignore tests/gpu/test_continuous_batching.py
    part apply 90 "$python" -m benchmarks.bench_apply --device "$device" "${of_apply[@]}" --csv "$out/apply.csv"
}

run_second() {
    part setup 75 "$self" setup_only # nothing to do where the machine is still that of "first"
    part device 170 "$python" -m benchmarks.bench_device --device "$device" "${of_device[@]}" --form eager \
        --constraint lines --csv "$out/device.csv"
    part record 110 "$python" -m benchmarks.bench_device --device "$device" "${of_record[@]}" --form eager --more \
        --constraint record12 --csv "$out/record.csv"
    part compiled 130 "$python" -m benchmarks.bench_device --device "$device" "${of_record[@]}" --form compiled \
        --constraint lines --side 'processor, companion' 'fast loop' --csv "$out/compiled.csv"
    part profile 60 "$python" -m benchmarks.gpu_profile --device "$device" "${of_profile[@]}" --trace "$out/trace.json.gz"
    part continuous 120 "$python" -m benchmarks.bench_continuous --device "$device" "${of_continuous[@]}" \
        --csv "$out/continuous.csv"
    part batching 70 "$self" tests_only batching.txt tests/gpu/test_continuous_batching.py
    if command -v compute-sanitizer >/dev/null; then
        # Without torch's own allocator a tensor is an allocation of its own, and its end is seen.
        part memcheck 80 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 \
            compute-sanitizer --tool memcheck --error-exitcode 9 --log-file "$out/memcheck.txt" \
            "$python" -m pytest -m gpu -p no:cacheprovider tests/gpu/test_kernels.py -k 'found and vocabularies and (4097 or 32003)'
    fi
}

device=cuda processes=6
of_tests=(-m gpu)
of_apply=(--vocab 131072 --batch 1 8 64 256 --peers 'xgrammar triton')
of_device=(--shape 1b --batch 1 8 64 --tokens 32 --rounds 5)
of_record=(--shape 1b --batch 8 --tokens 32 --rounds 5)
of_profile=(--shape 1b --batch 8 --tokens 32)
of_continuous=(--shape 1b --requests 64 --tokens 32 --rounds 2)
if [ -n "$dry" ]; then
    device=cpu processes=1
    of_tests=(-m 'not slow')
    of_apply=(--quick --vocab 700 --batch 2 --peers 'xgrammar CPU')
    of_device=(--shape tiny --batch 2 --tokens 4 --rounds 1)
    of_record=("${of_device[@]}")
    of_profile=(--shape tiny --batch 2 --tokens 4)
    of_continuous=(--shape tiny --requests 2 --tokens 16 --rounds 1)
fi

case ${1:-} in
carry)
    carry
    exit
    ;;
setup_only) # a command, because ``timeout`` runs programs, not functions of a shell
    setup
    exit
    ;;
tests_only)
    shift
    tests "$@"
    exit
    ;;
first) limit=${LIMIT:-325} ;;
second) limit=${LIMIT:-580} ;;
*)
    echo "usage: $0 carry | first | second" >&2
    exit 2
    ;;
esac
[ -z "$dry" ] || limit=${LIMIT:-3600}
mkdir -p "$out"
[ ! -e .whl/record12.json ] || export HF_GUIDED_DATA=$PWD/.whl
export PYTHONPATH=$site:$PWD PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
export OUT=$out SITE=$site PYTHON=$python
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader 2>/dev/null | head -n 1)
say "# $1: $(date -u +%Y-%m-%dT%H:%MZ), ${gpu:-no GPU}"
"run_$1"
rm -f "$out"/*.part
say "" "all: $SECONDS s, status $status"
exit "$status"
