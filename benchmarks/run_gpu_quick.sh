#!/bin/bash
# Every row that needs an NVIDIA GPU, and the tests that need one, in four commands of less than ten minutes each.
#
#   benchmarks/run_gpu.sh tests      the tests, and a few of them under compute-sanitizer
#   benchmarks/run_gpu.sh rows       apply; decoding, eager and captured
#   benchmarks/run_gpu.sh compiled   decoding, compiled
#   benchmarks/run_gpu.sh continuous  continuous batching
#
#   OUT                              the folder of rows and logs (default benchmarks/results)
#   PYTHON                           the interpreter (default python)
#
# Each part has a time limit that a cold machine meets, and files of its own, written as it goes. A part that has
# succeeded leaves a file in $OUT/gpu_done, and is not run again: a command that was stopped is started again, and
# continues. A part that fails does not stop the others; the exit status is that of the first one that failed, or 0.
set -u
cd "$(dirname "$0")/.."
out=${OUT:-benchmarks/results}
python=${PYTHON:-python}
command=${1:-}
report=$out/gpu_report.md
finished=$out/gpu_done
status=0
mkdir -p "$finished"
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false

# part NAME SECONDS COMMAND...: its output goes to the report
part() {
    local name=$1 seconds=$2 start=$SECONDS found
    shift 2
    [ ! -e "$finished/$name" ] || return 0
    printf '\n## %s\n\n' "$name" | tee -a "$report"
    timeout --kill-after=5 "$seconds" "$@" 2>&1 | tee -a "$report"
    found=${PIPESTATUS[0]}
    printf '\n%s: exit status %s after %s s (limit %s s)\n' "$name" "$found" $((SECONDS - start)) "$seconds" | tee -a "$report"
    [ "$found" -ne 0 ] || touch "$finished/$name"
    [ "$status" -ne 0 ] || status=$found
}

# sanitized TOOL SECONDS: a few tests of the kernels under compute-sanitizer
sanitized() {
    # Without torch's own allocator a tensor is an allocation of its own, and its end is seen.
    part "$1" "$2" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 \
        compute-sanitizer --tool "$1" --error-exitcode 9 --log-file "$out/gpu_$1.txt" \
        "$python" -m pytest -q -m gpu -p no:cacheprovider tests/gpu/test_kernels.py -k \
        'found and (batches or (vocabularies and 4097))'
}

# The kernel project is compiled with nvcc, beside nothing else: its limit would not hold otherwise.
run_tests() {
    part environment 60 "$python" -m hf_guided doctor
    part tests 240 "$python" -m pytest -q -m gpu -p no:cacheprovider --junit-xml="$out/gpu_tests.xml" tests/gpu \
        --ignore tests/gpu/test_kernel_project.py
    part project 150 "$python" -m pytest -q -m gpu -p no:cacheprovider tests/gpu/test_kernel_project.py
    if command -v compute-sanitizer >/dev/null; then
        sanitized memcheck 70
        sanitized initcheck 70
    else
        printf '\nno compute-sanitizer here: memcheck and initcheck are owed\n' | tee -a "$report"
    fi
}

run_rows() {
    part apply 240 "$python" -m benchmarks.bench_apply --csv "$out/gpu_apply.csv"
    part eager 170 "$python" -m benchmarks.bench_device --form eager --csv "$out/gpu_eager.csv"
    part captured 170 "$python" -m benchmarks.bench_device --form captured --csv "$out/gpu_captured.csv"
}

run_compiled() {
    part compiled 580 "$python" -m benchmarks.bench_device --form compiled --csv "$out/gpu_compiled.csv"
}

run_continuous() {
    part continuous 580 "$python" -m benchmarks.bench_continuous --csv "$out/gpu_continuous.csv"
}

case $command in
tests | rows | compiled | continuous) ;;
*)
    echo "usage: $0 tests | rows | compiled | continuous" >&2
    exit 2
    ;;
esac
printf '# Rows of a GPU: %s, %s\n' "$command" "$(date -u +%Y-%m-%dT%H:%MZ)" >>"$report"
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo 'torch sees no NVIDIA GPU: nothing was measured' | tee -a "$report" >&2
    exit 2
fi
"run_$command"
exit "$status"
