#!/bin/bash
# Every row that needs an NVIDIA GPU, in one call of less than eight minutes; also the tests that need one.
#
#   benchmarks/run_gpu.sh          rows and logs to $OUT if that is set, else to benchmarks/results
#   PYTHON                         the interpreter (default python)
#
# Each part has a time limit and files of its own, written as it goes, so whatever stops it, what was measured is there.
# A part that fails does not stop the others; the exit status is that of the first one that failed, or 0.
set -u
cd "$(dirname "$0")/.."
out=${OUT:-benchmarks/results}
python=${PYTHON:-python}
report=$out/gpu_report.md
status=0
mkdir -p "$out"
export PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false

# part NAME SECONDS COMMAND...: its output goes to the report
part() {
    local name=$1 seconds=$2 start=$SECONDS found
    shift 2
    printf '\n## %s\n\n' "$name" | tee -a "$report"
    timeout --kill-after=5 "$seconds" "$@" 2>&1 | tee -a "$report"
    found=${PIPESTATUS[0]}
    printf '\n%s: exit status %s after %s s (limit %s s)\n' "$name" "$found" $((SECONDS - start)) "$seconds" | tee -a "$report"
    [ "$status" -ne 0 ] || status=$found
}

# sanitized TOOL SECONDS: a few tests of the kernels under compute-sanitizer
sanitized() {
    # Without torch's own allocator a tensor is an allocation of its own, and its end is seen.
    part "compute-sanitizer $1" "$2" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 \
        compute-sanitizer --tool "$1" --error-exitcode 9 --log-file "$out/gpu_$1.txt" \
        "$python" -m pytest -q -m gpu -p no:cacheprovider tests/gpu/test_shapes_cuda.py -k \
        'found and (every_alignment or (steps_at_many_batches and not 25) or (greatest_score and 1003))'
}

printf '# Rows of a GPU, %s\n' "$(date -u +%Y-%m-%dT%H:%MZ)" >"$report"
if ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo 'torch sees no NVIDIA GPU: nothing was measured' | tee -a "$report" >&2
    exit 2
fi

part environment 15 "$python" -m hf_guided doctor
# What is compiled with nvcc is compiled beside the tests, which do not mind who else is busy.
timeout --kill-after=5 85 "$python" -c 'import xgrammar.kernels.apply_token_bitmask_inplace_cuda' >/dev/null 2>&1 &
timeout --kill-after=5 85 "$python" -m pytest -q -m gpu -p no:cacheprovider tests/gpu/test_kernel_project.py \
    >"$out/gpu_project.txt" 2>&1 &
project=$!
part tests 85 "$python" -m pytest -q -m gpu -p no:cacheprovider --junit-xml="$out/gpu_tests.xml" tests/gpu \
    --ignore tests/gpu/test_kernel_project.py
wait "$project"
found=$?
printf '\nthe kernel project built ahead of time: exit status %s\n' "$found" | cat - "$out/gpu_project.txt" | tee -a "$report"
[ "$status" -ne 0 ] || status=$found
wait
part apply 115 "$python" -m benchmarks.bench_apply --csv "$out/gpu_apply.csv"
part decoding 180 "$python" -m benchmarks.bench_device --csv "$out/gpu_device.csv"
if command -v compute-sanitizer >/dev/null; then
    sanitized memcheck 35
    sanitized initcheck 35
else
    printf '\nno compute-sanitizer here: memcheck and initcheck are owed\n' | tee -a "$report"
fi
exit "$status"
