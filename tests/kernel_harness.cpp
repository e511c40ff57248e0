// Runs the kernels of guided_bitmask.cuh on the CPU, thread by thread, for tests/kernel_harness.py.
//
// A request on stdin is a Request and then the bytes of its buffers, each of which is allocated for itself, so that the
// sanitizer sees what lies beside it. The answer on stdout is the result, the int32 of its rows, and the
// float32 of all threads' sums.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define __global__ static
#define __device__ static
#define __forceinline__ inline
#define __launch_bounds__(threads)

struct Index {
    unsigned x, y;
};
static Index blockIdx, threadIdx, gridDim;

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static void __stwb(uint4 *place, uint4 value) { *place = value; }
static void atomicOr(int *place, int bits) { *place |= bits; }

#include "guided_bitmask.cuh"

struct Request {
    int64_t dtype;                     // 0: float32, 1: float16, 2: bfloat16
    int64_t rows, vocab, stride;       // the stride in scores
    int64_t score_bytes, first_score;  // of all scores' storage; the first score of row 0
    int64_t masks, own, words, slots, stops;  // how many of each; stops -1: none are given
    int64_t blocks;                    // in y
    int64_t sums;                      // whether log-sum-exps are wanted
};

template <class T>
static std::vector<T> taken(int64_t count) {
    std::vector<T> found(count);
    if (count && fread(found.data(), sizeof(T), found.size(), stdin) != found.size()) {
        fprintf(stderr, "the input ends inside a request\n");
        exit(2);
    }
    return found;
}

template <class Kernel, class... Arguments>
static void launch(int64_t rows, int64_t blocks, Kernel kernel, Arguments... arguments) {
    gridDim = {static_cast<unsigned>(rows), static_cast<unsigned>(blocks)};
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
        for (blockIdx.y = gridDim.y; blockIdx.y-- > 0;) {  // the last block first: no order may matter
            for (threadIdx.x = 0; threadIdx.x < GB_THREADS; ++threadIdx.x) kernel(arguments...);
        }
    }
}

template <class Format>
static void run(const Request &request) {
    using Bits = typename Format::Bits;
    const auto scores = taken<Bits>(request.score_bytes / sizeof(Bits));
    const auto masks = taken<int>(request.masks * request.words), own = taken<int>(request.own * request.words);
    const auto slots = taken<int>(request.slots);
    const auto stops = taken<long long>(request.stops > 0 ? request.stops : 0);
    const int64_t rows = request.rows;
    const int vocab = static_cast<int>(request.vocab), words = static_cast<int>(request.words);
    std::vector<Bits> out(rows * vocab);
    std::vector<int> alive(rows);
    std::vector<float> sums(request.sums ? rows * request.blocks * GB_THREADS * 2 : 0, 7.0f);
    launch(rows, request.blocks, gb_mask<Format>, out.data(), alive.data(), scores.data() + request.first_score,
           request.stride, vocab, masks.data(), own.data(), words, slots.data(), request.sums ? sums.data() : nullptr);
    if (request.stops >= 0) {
        launch(rows, request.blocks, gb_end<Format>, out.data(), vocab, alive.data(), stops.data(),
               static_cast<int>(stops.size()));
    }
    if (out.size()) fwrite(out.data(), sizeof(Bits), out.size(), stdout);
    if (rows) fwrite(alive.data(), sizeof(int), alive.size(), stdout);
    if (sums.size()) fwrite(sums.data(), sizeof(float), sums.size(), stdout);
    fflush(stdout);
}

int main() {
    Request request;
    while (fread(&request, sizeof(request), 1, stdin) == 1) {
        if (request.dtype == 0) run<GbF32>(request);
        if (request.dtype == 1) run<GbF16>(request);
        if (request.dtype == 2) run<GbBf16>(request);
    }
    return 0;
}
