// The kernels of apply_masks: a copy of the scores with -inf for every token that a row's mask forbids, and the rows
// that can only end. What the arguments are is said in torch-ext/guided_bitmask/__init__.py.
//
// No includes, no shared memory and no barriers: kernel-builder compiles this file as part of guided_bitmask.cu, and
// hf-guided's tests compile it with NVRTC, and as plain C++ in which they call a kernel for each thread in turn.
//
// Scores are handled as bits, so that every number, NaN too, is copied as it is.

#define GB_THREADS 256
#define GB_BATCH 4       // units of one thread: it loads all of them before it stores one, so that the loads overlap
#define GB_FREE (-1)     // the slot of a row that is not masked

template <class T, unsigned NegInf, unsigned Inf, unsigned Fallback>
struct GbFormat {
    typedef T Bits;
    static const unsigned NEG_INF = NegInf, INF = Inf, FALLBACK = Fallback;  // the fallback is -1e4, rounded
    static const int UNIT = 16 / sizeof(T);                                  // scores that are stored together
};

typedef GbFormat<unsigned, 0xff800000u, 0x7f800000u, 0xc61c4000u> GbF32;
typedef GbFormat<unsigned short, 0xfc00u, 0x7c00u, 0xf0e2u> GbF16;
typedef GbFormat<unsigned short, 0xff80u, 0x7f80u, 0xc61cu> GbBf16;


template <class Format>
union GbUnit {
    typename Format::Bits score[Format::UNIT];
    uint4 quad;
};

// Whether a number is above -inf; NaN is not.
template <class Format>
__device__ __forceinline__ bool gb_alive(unsigned bits) {
    return bits != Format::NEG_INF && (bits & ~(Format::NEG_INF ^ Format::INF)) <= Format::INF;
}

// The number that the bits of a score stand for.
template <class Format>
__device__ __forceinline__ float gb_number(unsigned bits) {
    union {
        unsigned bits;
        float value;
    } number;
    if (Format::INF == 0x7c00u) {  // float16: the exponent has another size and another zero
        number.bits = (bits & 0x7fffu) << 13;
        number.value *= 0x1p112f;
        if ((bits & Format::INF) == Format::INF) number.bits |= 0x7f800000u;
        number.bits |= (bits & 0x8000u) << 16;
    } else {
        number.bits = bits << (32 - 8 * (int)sizeof(typename Format::Bits));
    }
    return number.value;
}

// A sum of exponentials: exp(most) * sum.
struct GbExpSum {
    float most, sum;
};

__device__ __forceinline__ void gb_add(GbExpSum& to, float number) {
    if (number < -3.4028235e38f) return;  // -inf
    if (number > to.most) {
        to.sum = to.sum * expf(to.most - number) + 1.0f;
        to.most = number;
    } else {
        to.sum += number == to.most ? 1.0f : expf(number - to.most);  // the difference of two infinities would be NaN
    }
}

// A mask's bits of 32 tokens, the first of them lowest; tokens beyond its end are forbidden.
__device__ __forceinline__ unsigned gb_bits(const int* mask, int words, int token) {
    const int word = token / 32;
    unsigned long long bits = word < words ? (unsigned)mask[word] : 0u;
    if (token % 32 && word + 1 < words) bits |= (unsigned long long)(unsigned)mask[word + 1] << 32;
    return (unsigned)(bits >> token % 32);
}

// Copies and masks all rows; a row has at most 2^30 scores.
//
// A unit is 16 bytes of the result at a 16-byte boundary. It is loaded at once where its scores lie at such a boundary
// too, else one by one, and not at all if all of it is forbidden and no sums are wanted. The first and the last unit may
// reach beyond the row.
//
// Grid: (rows, any).
template <class Format>
__global__ void __launch_bounds__(GB_THREADS) gb_mask(
    typename Format::Bits* __restrict__ out,  // (rows, vocab), written
    int* alive,                               // (rows,), zero before; set to 1 for free rows and those with a score
    const typename Format::Bits* __restrict__ scores, long long stride, int vocab,  // (rows, vocab); from row to row
    const int* __restrict__ masks, const int* __restrict__ own, int words,          // (any, words) each
    const int* __restrict__ slots,                                                  // (rows,)
    float* __restrict__ sums  // (rows, threads in y, 2), written: log-sum-exp of a thread's scores, and of the allowed
) {
    const int unit = Format::UNIT;
    const unsigned all = (1u << unit) - 1u;
    const long long row = blockIdx.x;
    const int slot = slots[row];
    const int* const mask = slot < GB_FREE ? own + (-2 - (long long)slot) * words
                                           : masks + (slot == GB_FREE ? 0 : (long long)slot) * words;
    const typename Format::Bits* const from = scores + row * stride;
    typename Format::Bits* const to = out + row * vocab;
    const int shift = (int)((unsigned long long)to % 16) / (int)sizeof(*to);  // the row begins so far into a unit
    const bool together = (unsigned long long)from % 16 == (unsigned long long)to % 16;
    const int units = (shift + vocab + unit - 1) / unit, step = (int)gridDim.y * GB_THREADS;
    bool found = slot == GB_FREE && !blockIdx.y && !threadIdx.x;
    const float lowest = gb_number<GbF32>(GbF32::NEG_INF);
    GbExpSum before = {lowest, 0.0f}, after = {lowest, 0.0f};
    for (int first = (int)(blockIdx.y * GB_THREADS + threadIdx.x); first < units; first += GB_BATCH * step) {
        GbUnit<Format> held[GB_BATCH];
        unsigned inside[GB_BATCH], allowed[GB_BATCH];
#pragma unroll
        for (int i = 0; i < GB_BATCH; ++i) {
            const int token = (first + i * step) * unit - shift;
            inside[i] = token >= vocab ? 0u : all;
            if (token < 0) inside[i] = all << shift & all;
            if (inside[i] && token + unit > vocab) inside[i] &= all >> (token + unit - vocab);
            allowed[i] = inside[i];
            if (slot != GB_FREE && inside[i]) {
                allowed[i] &= token < 0 ? gb_bits(mask, words, 0) << shift : gb_bits(mask, words, token);
            }
            const unsigned loaded = sums ? inside[i] : allowed[i];
            if (loaded && together && inside[i] == all) {
                held[i].quad = *(const uint4*)(from + token);
            } else {
#pragma unroll
                for (int j = 0; j < unit; ++j) {
                    if (loaded >> j & 1u) held[i].score[j] = from[token + j];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < GB_BATCH; ++i) {
            const int token = (first + i * step) * unit - shift;
#pragma unroll
            for (int j = 0; j < unit; ++j) {
                if (sums && inside[i] >> j & 1u) {
                    const float number = gb_number<Format>(held[i].score[j]);
                    gb_add(before, number);
                    if (allowed[i] >> j & 1u) gb_add(after, number);
                }
                if (!(allowed[i] >> j & 1u)) held[i].score[j] = (typename Format::Bits)Format::NEG_INF;
                found |= gb_alive<Format>(held[i].score[j]);
            }
            if (inside[i] == all) {
                // nvcc would make a plain assignment single stores.
                __stwb((uint4*)(to + token), held[i].quad);
            } else {
#pragma unroll
                for (int j = 0; j < unit; ++j) {
                    if (inside[i] >> j & 1u) to[token + j] = held[i].score[j];
                }
            }
        }
    }
    if (found && !alive[row]) atomicOr(alive + row, 1);  // another block may set it meanwhile: then it is set twice
    if (sums) {
        float* const own_sums = sums + ((row * gridDim.y + blockIdx.y) * GB_THREADS + threadIdx.x) * 2;
        own_sums[0] = before.most + logf(before.sum);
        own_sums[1] = after.most + logf(after.sum);
    }
}

// Lets rows without an allowed score above -inf only end. Grid: (rows, any).
template <class Format>
__global__ void __launch_bounds__(GB_THREADS) gb_end(
    typename Format::Bits* __restrict__ out, int vocab,  // (rows, vocab)
    const int* __restrict__ alive,                       // (rows,)
    const long long* __restrict__ stops, int count       // (count,)
) {
    const long long row = blockIdx.x;
    if (alive[row]) return;
    const int step = (int)gridDim.y * GB_THREADS;
    for (int token = (int)(blockIdx.y * GB_THREADS + threadIdx.x); token < vocab; token += step) {
        unsigned bits = Format::NEG_INF;
        for (int i = 0; i < count; ++i) {
            if (stops[i] == token) bits = Format::FALLBACK;
        }
        out[row * vocab + token] = (typename Format::Bits)bits;
    }
}
