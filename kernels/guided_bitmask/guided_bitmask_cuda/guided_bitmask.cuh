// Masks of structured generation on the device: apply, the automaton step, masked sampling.
//
// One source for every way of building it, hence no includes, own type names and -inf as a bit pattern:
//   - kernel-builder compiles it ahead of time into a torch extension (guided_bitmask.cu);
//   - NVRTC compiles it at first use, on machines without a CUDA toolkit;
//   - any C++ compiler takes it as plain C++, where a program calls the kernels block by block. Then the program
//     defines gb_block_x, gb_block_y, gb_grid_x and gb_thread_at, and the tests choose any order of blocks and threads.
//
// Every kernel takes pointers and 64-bit integers only, so that a launcher needs no knowledge of types. Blocks have
// GB_THREADS threads. What a launch reads and writes is said at each kernel; nothing here waits for the host.
//
// Words. masks: int32 lines, bit j % 32 of word j / 32, 1 = allowed. slot: a line of masks. row: a line of logits.
// language: one constraint's automaton over bytes. Its state 0 is dead; a row's state may also be GB_STOPPED.
//
// THE AUTOMATON STEP is three launches: advance, build, apply. It cannot be one. The mask of a row is made by many
// blocks, and all of them need the row's state: if each works it out and stores it in place, a block that runs later
// finds it advanced already and advances it twice; if one block works it out and raises a flag, the others may read the
// flag and still see the old state, and waiting for a block that has not been scheduled is a deadlock. The end of a
// launch is the only barrier that all blocks of a grid share. So blocks of one launch never read what another block of
// it writes. The exceptions are atomic, and need no order: one claim per state (who comes first builds its mask, the
// others use it in the launch after that), and the place in the list of what is to be built.
//
// State is a history indexed by length, not a current value. A row rolled back is a row with a smaller length; rows
// that beam search has permuted walk again from where they differ from what they held before, and no row reads
// another's history, which that row's block may be overwriting.
//
// A mask depends on nothing but the state, so masks are kept in a pool. The slot of a state follows from the state
// alone: who loses the claim knows where the mask will be without being told. Nothing is thrown out on the device,
// since no block could know that another does not need it; a state whose slot is taken uses its row's scratch slot.

#define GB_THREADS 256
#define GB_SHARED_WORDS (GB_THREADS / 32)

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define GB_KERNEL extern "C" __global__ void __launch_bounds__(GB_THREADS)
#define GB_DEVICE static __device__ __forceinline__
#define GB_SHARED __shared__
#define GB_BLOCK_X ((gb_i64)blockIdx.x)
#define GB_BLOCK_Y ((gb_i64)blockIdx.y)
#define GB_GRID_X ((gb_i64)gridDim.x)
// What every thread of the block does, and the barrier behind it. No return inside: it would leave others waiting.
#define GB_EACH_THREAD(t) for (int t = (int)threadIdx.x, gb_open = 1; gb_open; gb_open = 0, __syncthreads())
#define GB_CLAIM(place, mine) atomicCAS((place), 0, (mine))
#define GB_TAKE_NUMBER(counter) atomicAdd((counter), 1)
#define GB_KEEP_LEAST(place, value) atomicMin((place), (value))
#define GB_UNROLL _Pragma("unroll")
#define GB_LOG logf
#define GB_LOG1P log1pf
#else
#define GB_KERNEL extern "C" inline void
#define GB_DEVICE static inline
#define GB_SHARED
#define GB_BLOCK_X gb_block_x
#define GB_BLOCK_Y gb_block_y
#define GB_GRID_X gb_grid_x
#define GB_EACH_THREAD(t) \
    for (int gb_i = 0, t = gb_thread_at(0); gb_i < GB_THREADS; ++gb_i, t = gb_i < GB_THREADS ? gb_thread_at(gb_i) : 0)
#define GB_CLAIM(place, mine) gb_claim((place), (mine))
#define GB_TAKE_NUMBER(counter) ((*(counter))++)
#define GB_KEEP_LEAST(place, value) (*(place) = *(place) < (value) ? *(place) : (value))
#define GB_UNROLL
#define GB_LOG __builtin_logf
#define GB_LOG1P __builtin_log1pf
#endif

typedef unsigned char gb_u8;
typedef unsigned short gb_u16;
typedef int gb_i32;
typedef unsigned int gb_u32;
typedef long long gb_i64;
typedef unsigned long long gb_u64;

#define GB_DEAD 0         // state: the row has left its grammar
#define GB_STOPPED (-1)   // state: the row took a stop token where it might
#define GB_LEAVE_ALONE (-1)   // slot: the row is not masked
#define GB_FORBID_ALL (-2)    // slot: nothing is allowed
#define GB_ACCEPTING 1    // flag of a state: the text may stop here
#define GB_CAN_END 2      // flag of a state: the end can be reached with this vocabulary, so tokens may lead here

// One constraint, as its automaton's tables lie on the device. The launcher writes it as fourteen 64-bit words.
//
// States from automaton_states on are those of thinking before the constrained text: matched free ones, in which it may
// go on, as many ending ones, in which it may not, and opening ones, before it has begun. They move by tokens.
struct GbLanguage {
    const void* table;        // (states, classes) of uint16 or uint32: where a class of bytes leads
    const gb_u8* byte_class;  // (256,)
    const gb_u8* flags;       // (states,) GB_ACCEPTING | GB_CAN_END
    const gb_i32* needed;     // (states,) tokens to the end, the stop token counted; null: no budgets
    gb_i64 classes;           // states * classes is below 2^32
    gb_i64 entry_bytes;       // of the table: 2 or 4
    gb_i64 worst;             // the most tokens that any state needs
    gb_i64 pool_first;        // the slots of its states
    gb_i64 pool_slots;        // 0: none is kept
    const gb_i32* free_moves;    // (matched, tokens) where each token leads from a free state, 0 if it is refused
    const gb_i32* forced_moves;  // (matched + opening, 2) the only token of an ending or opening state, and its target
    gb_i64 automaton_states;
    gb_i64 matched;           // 0: no thinking
    gb_i64 forced_within;     // with no more tokens left than these, thinking has to end
};

// A mask that has to be made.
struct GbWork {
    gb_i32 slot;
    gb_i32 language;
    gb_i32 state;
    gb_i32 tokens_left;  // only tokens behind which this suffices, themselves counted; negative: all
};

// The three float formats as bits.
union GbFloat {
    gb_u32 bits;
    float value;
};

struct GbF32 {
    typedef gb_u32 Bits;
    enum : gb_u32 { NEG_INF = 0xff800000u, NEG_INF_WORD = 0xff800000u, INF = 0x7f800000u, MAGNITUDE = 0x7fffffffu };
    GB_DEVICE float value(gb_u32 bits) {
        GbFloat found;
        found.bits = bits;
        return found.value;
    }
};

struct GbBf16 {
    typedef gb_u16 Bits;
    enum : gb_u32 { NEG_INF = 0xff80u, NEG_INF_WORD = 0xff80ff80u, INF = 0x7f80u, MAGNITUDE = 0x7fffu };
    GB_DEVICE float value(gb_u32 bits) { return GbF32::value(bits << 16); }
};

struct GbF16 {
    typedef gb_u16 Bits;
    enum : gb_u32 { NEG_INF = 0xfc00u, NEG_INF_WORD = 0xfc00fc00u, INF = 0x7c00u, MAGNITUDE = 0x7fffu };
    GB_DEVICE float value(gb_u32 bits) {
        const gb_u32 sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u, fraction = bits & 1023u;
        if (exponent == 31u) return GbF32::value(sign | 0x7f800000u | fraction << 13);
        if (exponent) return GbF32::value(sign | (exponent + 112u) << 23 | fraction << 13);
        const float small = (float)fraction * 5.9604644775390625e-8f;  // 2^-24, exact
        return sign ? -small : small;
    }
};

struct alignas(16) GbQuad {
    gb_u32 word[4];
};

#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
GB_DEVICE gb_i32 gb_claim(gb_i32* place, gb_i32 mine) {
    const gb_i32 before = *place;
    if (!before) *place = mine;
    return before;
}
#endif

// Whether a number is above -inf; NaN is not.
template <class Format>
GB_DEVICE bool gb_is_alive(gb_u32 bits) {
    return bits != Format::NEG_INF && (bits & Format::MAGNITUDE) <= Format::INF;
}

// The mask bits of a few tokens (at most 32), the first of them lowest; what the mask does not cover is forbidden.
GB_DEVICE gb_u32 gb_allowed(const gb_i32* __restrict__ mask, gb_u32 mask_words, gb_u32 token, int count) {
    const gb_u32 word = token >> 5, shift = token & 31u;
    gb_u64 bits = word < mask_words ? (gb_u32)mask[word] : 0u;
    if (shift + (gb_u32)count > 32u && word + 1u < mask_words) bits |= (gb_u64)(gb_u32)mask[word + 1u] << 32;
    return (gb_u32)(bits >> shift) & (0xffffffffu >> (32 - count));
}

// ------------------------------------------------------------------------------------------------------------- apply
//
// Writes -inf over what is forbidden, 16 bytes at once: where all of them are forbidden they are written without being
// read, where some are they are loaded, blended and stored, and where none is they are left alone, unless the caller
// wants to know whether one of them is above -inf. The numbers before the first 16-byte boundary of a line, and those
// after its last full 16 bytes, are single.
//
// A thread takes GB_BATCH units at a time, and loads all of them before it stores the first: the loads overlap.
//
// Grid: (any, rows). A line has fewer than 2^31 numbers.

#define GB_BATCH 4

// The bits to keep in a 32-bit word of a unit, which holds one number or two.
template <class Bits>
GB_DEVICE gb_u32 gb_kept(gb_u32 allowed, int word) {
    if (sizeof(Bits) == 4) return 0u - (allowed >> word & 1u);
    const gb_u32 two = allowed >> 2 * word;
    return (two & 1u) * 0xffffu | (two >> 1 & 1u) * 0xffff0000u;
}

template <class Format>
GB_DEVICE bool gb_any_alive(const GbQuad& unit) {
    bool found = false;
    for (int i = 0; i < 4; ++i) {
        if (sizeof(typename Format::Bits) == 4) {
            found |= gb_is_alive<Format>(unit.word[i]);
        } else {
            found |= gb_is_alive<Format>(unit.word[i] & 0xffffu) | gb_is_alive<Format>(unit.word[i] >> 16);
        }
    }
    return found;
}

template <class Format>
GB_DEVICE void gb_apply(
    typename Format::Bits* __restrict__ logits, gb_i64 row_stride, gb_i64 vocab,  // the stride in numbers
    const gb_i32* __restrict__ masks, gb_i64 mask_stride, gb_i64 mask_words,      // the stride in words
    const gb_i32* __restrict__ row_slots,  // (rows,) slot, GB_LEAVE_ALONE or GB_FORBID_ALL; null: one to one
    gb_i32* alive,                         // (rows,) set to 1 where something allowed is above -inf, or null
    gb_i32* work_count                     // zeroed for the next step's advance, or null
) {
    typedef typename Format::Bits Bits;
    const gb_u32 quad = 16 / (gb_u32)sizeof(Bits), all = (1u << quad) - 1u;
    const gb_i64 row = GB_BLOCK_Y;
    const gb_i64 slot = row_slots ? row_slots[row] : row;
    Bits* const line = logits + row * row_stride;
    const gb_i32* const mask = masks + (slot < 0 ? 0 : slot) * mask_stride;
    const gb_u32 covered = slot < 0 ? 0u : (gb_u32)mask_words;
    const gb_u32 numbers = slot == GB_LEAVE_ALONE ? 0u : (gb_u32)vocab;
    gb_u32 head = (gb_u32)((0 - (gb_u64)line) & 15) / (gb_u32)sizeof(Bits);  // up to a 16-byte boundary
    if (head > numbers) head = numbers;
    const gb_u32 units = (numbers - head) / quad;
    GbQuad* const quads = (GbQuad*)(line + head);
    GB_EACH_THREAD(t) {
        if (work_count && !row && !GB_BLOCK_X && !t) *work_count = 0;
        if (alive && slot == GB_LEAVE_ALONE && !GB_BLOCK_X && !t) alive[row] = 1;
        // Another block may set it at the same time; whoever sees it late only looks longer.
        bool look = alive && !alive[row];
        const gb_u32 rest = head + units * quad;  // the first of the single numbers after the units
        if (!GB_BLOCK_X && (gb_u32)t < head + (numbers - rest)) {
            const gb_u32 token = (gb_u32)t < head ? (gb_u32)t : rest + ((gb_u32)t - head);
            if (!gb_allowed(mask, covered, token, 1)) {
                line[token] = (Bits)Format::NEG_INF;
            } else if (look && gb_is_alive<Format>(line[token])) {
                alive[row] = 1;
                look = false;
            }
        }
        const gb_u32 step = (gb_u32)GB_GRID_X * GB_THREADS;
        for (gb_u32 first = (gb_u32)GB_BLOCK_X * GB_THREADS + (gb_u32)t; first < units; first += GB_BATCH * step) {
            GbQuad held[GB_BATCH];
            gb_u32 allowed[GB_BATCH];
            GB_UNROLL
            for (int i = 0; i < GB_BATCH; ++i) {
                const gb_u32 unit = first + (gb_u32)i * step;
                allowed[i] = unit < units ? gb_allowed(mask, covered, head + unit * quad, (int)quad) : all;
                if (unit < units && allowed[i] && (look || allowed[i] != all)) held[i] = quads[unit];
            }
            GB_UNROLL
            for (int i = 0; i < GB_BATCH; ++i) {
                const gb_u32 unit = first + (gb_u32)i * step;
                if (unit >= units || (!look && allowed[i] == all)) continue;
                GB_UNROLL
                for (int word = 0; word < 4; ++word) {
                    const gb_u32 kept = gb_kept<Bits>(allowed[i], word);
                    held[i].word[word] = allowed[i] ? (held[i].word[word] & kept) | (Format::NEG_INF_WORD & ~kept)
                                                    : (gb_u32)Format::NEG_INF_WORD;
                }
                if (allowed[i] != all) quads[unit] = held[i];
                if (look && gb_any_alive<Format>(held[i])) {
                    alive[row] = 1;
                    look = false;
                }
            }
        }
    }
}

#define GB_APPLY(name, Format)                                                                                         \
    GB_KERNEL name(Format::Bits* logits, gb_i64 row_stride, gb_i64 vocab, const gb_i32* masks, gb_i64 mask_stride,     \
                   gb_i64 mask_words, const gb_i32* row_slots, gb_i32* alive, gb_i32* work_count) {                    \
        gb_apply<Format>(logits, row_stride, vocab, masks, mask_stride, mask_words, row_slots, alive, work_count);     \
    }
GB_APPLY(gb_apply_f32, GbF32)
GB_APPLY(gb_apply_f16, GbF16)
GB_APPLY(gb_apply_bf16, GbBf16)
#undef GB_APPLY

// ----------------------------------------------------------------------------------------------------- automaton step

template <class Entry>
GB_DEVICE gb_u32 gb_walk(const Entry* __restrict__ table, gb_u32 classes, const gb_u8* byte_class,
                         const gb_u64* __restrict__ bytes, int length, gb_u32 state) {
    gb_u64 eight = 0;
    for (int i = 0; i < length && state; ++i) {
        eight = i & 7 ? eight >> 8 : bytes[i >> 3];
        state = table[state * classes + byte_class[eight & 255]];
    }
    return state;
}

// The state behind a token's bytes; dead where no text of this vocabulary goes on from there, or the token has none.
GB_DEVICE gb_u32 gb_behind(const GbLanguage& language, const gb_u8* byte_class, const gb_u64* bytes, int length,
                           gb_u32 state) {
    if (!length) return GB_DEAD;
    const gb_u32 classes = (gb_u32)language.classes;
    const gb_u32 target = language.entry_bytes == 2
                              ? gb_walk((const gb_u16*)language.table, classes, byte_class, bytes, length, state)
                              : gb_walk((const gb_u32*)language.table, classes, byte_class, bytes, length, state);
    return language.flags[target] & GB_CAN_END ? target : GB_DEAD;
}

// The state behind a token that the vocabulary has.
GB_DEVICE gb_u32 gb_behind_token(const GbLanguage& language, const gb_u8* byte_class, const gb_u64* token_bytes,
                                 const gb_i32* token_start, const gb_i32* token_length, gb_i64 token_count,
                                 gb_i64 token, gb_u32 state) {
    if (state < (gb_u32)language.automaton_states) {
        return gb_behind(language, byte_class, token_bytes + token_start[token], token_length[token], state);
    }
    const gb_i64 place = (gb_i64)state - language.automaton_states;
    if (place < language.matched) return (gb_u32)language.free_moves[place * token_count + token];
    const gb_i32* const forced = language.forced_moves + 2 * (place - language.matched);
    return token == forced[0] ? (gb_u32)forced[1] : GB_DEAD;
}

// The state whose moves hold: a row that has to end its thinking stays in a free state, and takes the ending one's.
GB_DEVICE gb_i32 gb_pressed(const GbLanguage& language, gb_i32 state, bool must_end) {
    const gb_i64 place = state - language.automaton_states;
    return must_end && place >= 0 && place < language.matched ? state + (gb_i32)language.matched : state;
}

// The first launch: where each row is now, and which masks have to be made.
//
// One block per row. Grid: (1, rows). tokens and length are the caller's and only read; shadow, history and known
// belong to the row's block. known[row] = 0 makes a row begin anew (another constraint, another prompt).
GB_KERNEL gb_advance(
    const gb_i64* __restrict__ tokens, gb_i64 token_stride,  // (rows, capacity) what each row has generated
    const gb_i32* __restrict__ length,                       // (rows,) how many of them count
    gb_i64 capacity,
    gb_i32* shadow,   // (rows, capacity) the tokens that the history belongs to
    gb_i32* history,  // (rows, capacity) the state behind each
    gb_i32* known,    // (rows,) how many of both are valid
    const gb_i32* __restrict__ language_of,  // (rows,) -1: a free row
    const gb_i32* __restrict__ start,        // (rows,) the state in front of the first token
    const gb_i32* __restrict__ limit,        // (rows,) tokens in which the text has to close; negative: no budget
    const gb_i32* __restrict__ think_until,  // (rows,) tokens after which thinking has to end; negative: no limit
    const GbLanguage* __restrict__ languages,
    const gb_u64* __restrict__ token_bytes,   // 8 to a word, the first lowest; each token begins a word
    const gb_i32* __restrict__ token_start,   // (tokens,) its first word
    const gb_i32* __restrict__ token_length,  // (tokens,) in bytes; 0: special, a stop token, or without bytes
    gb_i64 token_count,
    const gb_i32* __restrict__ stops, gb_i64 stop_count,
    gb_i32* claims,           // (pool slots,) the state whose mask the slot holds, or 0
    gb_i64 scratch_first,     // slot of row 0's scratch
    gb_i32* state_of,         // (rows,) written: the state now
    gb_i32* slot_of,          // (rows,) written: where the row's mask is, or will be after the next launch
    GbWork* work,             // (rows,) written: what is to be built
    gb_i32* work_count        // 0 before this launch
) {
    const gb_i64 row = GB_BLOCK_Y;
    const gb_i64 which = language_of[row];
    const gb_i32 now = length[row];
    if (which < 0 || now < 0 || now > capacity) {
        // A length that does not fit is the caller's mistake. It must not become a row without a mask.
        GB_EACH_THREAD(t) {
            if (!t) {
                state_of[row] = GB_DEAD;
                slot_of[row] = which < 0 ? GB_LEAVE_ALONE : GB_FORBID_ALL;
            }
        }
        return;
    }
    const GbLanguage& language = languages[which];
    const gb_i64* const mine = tokens + row * token_stride;
    gb_i32* const shadow_line = shadow + row * capacity;
    gb_i32* const history_line = history + row * capacity;
    GB_SHARED gb_i32 common;
    const gb_i32 compared = now < known[row] ? now : known[row];
    GB_EACH_THREAD(t) {
        if (!t) common = compared;
    }
    GB_EACH_THREAD(t) {
        for (gb_i32 i = t; i < compared; i += GB_THREADS) {
            const gb_i64 token = mine[i];
            // An id that no int32 holds is -1 in the shadow: a token like any other that cannot be.
            if (shadow_line[i] != (token == (gb_i32)token ? (gb_i32)token : -1)) {
                GB_KEEP_LEAST(&common, i);
                break;
            }
        }
    }
    GB_EACH_THREAD(t) {
        if (!t) {
            gb_i32 state = common ? history_line[common - 1] : start[row];
            const gb_i32 until = think_until[row];
            for (gb_i32 i = common; i < now; ++i) {
                const gb_i64 token = mine[i];
                state = gb_pressed(language, state, until >= 0 && i >= until);
                if (state > 0) {
                    bool stops_here = false;
                    for (gb_i64 j = 0; j < stop_count; ++j) stops_here |= token == stops[j];
                    if (stops_here) {
                        state = language.flags[state] & GB_ACCEPTING ? GB_STOPPED : GB_DEAD;
                    } else if (token < 0 || token >= token_count) {
                        state = GB_DEAD;
                    } else {
                        state = (gb_i32)gb_behind_token(language, language.byte_class, token_bytes, token_start,
                                                        token_length, token_count, token, (gb_u32)state);
                    }
                }
                shadow_line[i] = token == (gb_i32)token ? (gb_i32)token : -1;
                history_line[i] = state;
            }
            if (common < now) known[row] = now;  // otherwise what lies behind is still right: tokens may come back
            gb_i32 slot = GB_LEAVE_ALONE;        // rows that have stopped or left their grammar are not masked
            if (state > 0) {
                const gb_i32 left = limit[row] < 0 ? -1 : limit[row] - now;
                // Where more is left than any state needs, every allowed token is behind which the text can be closed;
                // where less is left than this state needs, none is, and the row goes on as if there were no budget.
                const bool binds =
                    language.needed && left >= 0 && left <= language.worst && left >= language.needed[state];
                const bool must_end = (until >= 0 && now >= until) || (binds && left <= language.forced_within);
                const gb_i32 masked = gb_pressed(language, state, must_end);
                bool missing = true;
                slot = (gb_i32)(scratch_first + row);
                if (!binds && language.pool_slots) {
                    const gb_i64 place = language.pool_first + (gb_u32)masked % (gb_u32)language.pool_slots;
                    const gb_i32 holder = GB_CLAIM(&claims[place], masked);
                    if (!holder || holder == masked) {
                        slot = (gb_i32)place;
                        missing = !holder;
                    }
                }
                if (missing) {
                    const GbWork todo = {slot, (gb_i32)which, masked, binds ? left : -1};
                    work[GB_TAKE_NUMBER(work_count)] = todo;
                }
            }
            state_of[row] = state;
            slot_of[row] = slot;
        }
    }
}

// The second launch: the masks on the list, one token per thread.
//
// Grid: (any, 1); blocks take what is to be done in turns, and are done at once if that is nothing.
GB_KERNEL gb_build(
    const GbWork* __restrict__ work, const gb_i32* __restrict__ work_count,
    const GbLanguage* __restrict__ languages,
    const gb_u64* __restrict__ token_bytes, const gb_i32* __restrict__ token_start,
    const gb_i32* __restrict__ token_length, gb_i64 token_count,
    const gb_i32* __restrict__ stops, gb_i64 stop_count,
    gb_i32* masks, gb_i64 mask_stride, gb_i64 mask_words  // written: all words of the slots on the list
) {
    // 32 bits are enough, and divide without a call: 2^32 chunks would be a terabyte of masks in one step.
    const gb_u32 chunks = (gb_u32)(mask_words + GB_SHARED_WORDS - 1) / GB_SHARED_WORDS;
    const gb_u32 all = (gb_u32)*work_count * chunks;
    GB_SHARED gb_u8 classes[256];
    GB_SHARED gb_u8 allowed[GB_THREADS];
    for (gb_u32 unit = (gb_u32)GB_BLOCK_X; unit < all; unit += (gb_u32)GB_GRID_X) {
        const GbWork item = work[unit / chunks];
        const gb_i64 first_word = (gb_i64)(unit % chunks) * GB_SHARED_WORDS;
        const GbLanguage& language = languages[item.language];
        GB_EACH_THREAD(t) {
            for (int byte = t; byte < 256; byte += GB_THREADS) classes[byte] = language.byte_class[byte];
        }
        GB_EACH_THREAD(t) {
            const gb_i64 token = first_word * 32 + t;
            gb_u32 target = GB_DEAD;
            if (token < token_count) {
                target = gb_behind_token(language, classes, token_bytes, token_start, token_length, token_count, token,
                                         (gb_u32)item.state);
            }
            allowed[t] = target && (item.tokens_left < 0 || language.needed[target] < item.tokens_left);
        }
        GB_EACH_THREAD(t) {
            if (t < GB_SHARED_WORDS && first_word + t < mask_words) {
                gb_u32 word = 0;
                for (int i = 0; i < 32; ++i) word |= (gb_u32)allowed[t * 32 + i] << i;
                if (language.flags[item.state] & GB_ACCEPTING) {
                    for (gb_i64 j = 0; j < stop_count; ++j) {
                        if (stops[j] >> 5 == first_word + t) word |= 1u << (stops[j] & 31);
                    }
                }
                masks[item.slot * mask_stride + first_word + t] = (gb_i32)word;
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------------ masked sample
//
// Greedy, or a sample of softmax(logits / temperature) over what is allowed: the greatest of logit / temperature +
// Gumbel noise. The noise of a token depends on the row's seed, its position and the token alone, so a row draws the
// same in any batch and beside any mask.

struct GbRandom {
    gb_u32 word[4];
};

// Philox4x32 with 10 rounds, of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
GB_DEVICE GbRandom gb_philox(gb_u32 c0, gb_u32 c1, gb_u32 c2, gb_u32 c3, gb_u32 k0, gb_u32 k1) {
    for (int i = 0; i < 10; ++i) {
        const gb_u64 one = (gb_u64)0xD2511F53u * c0, other = (gb_u64)0xCD9E8D57u * c2;
        c0 = (gb_u32)(other >> 32) ^ c1 ^ k0;
        c1 = (gb_u32)other;
        c2 = (gb_u32)(one >> 32) ^ c3 ^ k1;
        c3 = (gb_u32)one;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const GbRandom found = {{c0, c1, c2, c3}};
    return found;
}

// A number of the exponential distribution with mean 1 from 64 random bits: -log(1 - u), u = (bits + 1/2) / 2^64.
//
// Never 0 and never infinite. One float of u would be exactly 1 for the 128 greatest of 2^32, and Gumbel noise from
// that infinite: among 131,072 tokens one draw in 250 would be such a token whatever its logit. So u is only used where
// it is below one half, and 1 - u, which is as easily had, elsewhere. The small exponentials are the great Gumbels,
// which decide: there u has all of its 64 bits, as far as a float holds them.
GB_DEVICE float gb_exponential(gb_u32 high, gb_u32 low) {
    const float unit = 2.3283064365386962890625e-10f;  // 2^-32
    if (high < 0x80000000u) return -GB_LOG1P(-((float)high + ((float)low + 0.5f) * unit) * unit);
    return -GB_LOG(((float)~high + 0.5f) * unit);
}

// The order of the keys is that of the scores; of equal scores the lower token is first. 0 stands below all.
GB_DEVICE gb_u64 gb_key(float score, gb_i64 token) {
    GbFloat number;
    number.value = score == 0.0f ? 0.0f : score;  // -0 equals 0
    const gb_u32 ordered = number.bits & 0x80000000u ? ~number.bits : number.bits | 0x80000000u;
    return (gb_u64)ordered << 32 | (gb_u32)(0xffffffffu - (gb_u32)token);
}

// The best token of every part of a row. Grid: (parts, rows).
template <class Format>
GB_DEVICE void gb_sample(
    const typename Format::Bits* __restrict__ logits, gb_i64 row_stride, gb_i64 vocab, const gb_i32* __restrict__ masks,
    gb_i64 mask_stride, gb_i64 mask_words, const gb_i32* __restrict__ row_slots,
    const float* __restrict__ temperature,  // (rows,) 0: greedy
    const gb_i64* __restrict__ seed,        // (rows,)
    const gb_i32* __restrict__ position,    // (rows,)
    gb_u64* best                            // (rows, parts) written: key of the best token, 0 if there is none
) {
    const gb_i64 row = GB_BLOCK_Y;
    const gb_i64 slot = row_slots ? row_slots[row] : row;
    const typename Format::Bits* const line = logits + row * row_stride;
    const gb_i32* const mask = masks + (slot < 0 ? 0 : slot) * mask_stride;
    const gb_u32 covered = slot < 0 ? 0u : (gb_u32)mask_words;
    const float heat = temperature[row];
    const gb_u64 key = (gb_u64)seed[row];
    const gb_u32 place = (gb_u32)position[row];
    GB_SHARED gb_u64 keys[GB_THREADS];
    GB_EACH_THREAD(t) {
        gb_u64 mine = 0;
        for (gb_i64 token = GB_BLOCK_X * GB_THREADS + t; token < vocab; token += GB_GRID_X * GB_THREADS) {
            if (slot != GB_LEAVE_ALONE && !gb_allowed(mask, covered, (gb_u32)token, 1)) continue;
            const gb_u32 bits = line[token];
            if (!gb_is_alive<Format>(bits)) continue;
            float score = Format::value(bits);
            if (heat > 0.0f) {
                const GbRandom drawn = gb_philox((gb_u32)token, place, 0u, 0u, (gb_u32)key, (gb_u32)(key >> 32));
                score = score / heat - GB_LOG(gb_exponential(drawn.word[0], drawn.word[1]));
            }
            const gb_u64 found = gb_key(score, token);
            if (found > mine) mine = found;
        }
        keys[t] = mine;
    }
    for (int half = GB_THREADS / 2; half; half /= 2) {
        GB_EACH_THREAD(t) {
            if (t < half && keys[t + half] > keys[t]) keys[t] = keys[t + half];
        }
    }
    GB_EACH_THREAD(t) {
        if (!t) best[row * GB_GRID_X + GB_BLOCK_X] = keys[0];
    }
}

#define GB_SAMPLE(name, Format)                                                                                        \
    GB_KERNEL name(const Format::Bits* logits, gb_i64 row_stride, gb_i64 vocab, const gb_i32* masks,                   \
                   gb_i64 mask_stride, gb_i64 mask_words, const gb_i32* row_slots, const float* temperature,           \
                   const gb_i64* seed, const gb_i32* position, gb_u64* best) {                                         \
        gb_sample<Format>(logits, row_stride, vocab, masks, mask_stride, mask_words, row_slots, temperature, seed,     \
                          position, best);                                                                             \
    }
GB_SAMPLE(gb_sample_f32, GbF32)
GB_SAMPLE(gb_sample_f16, GbF16)
GB_SAMPLE(gb_sample_bf16, GbBf16)
#undef GB_SAMPLE

// The best of the parts, and where a lane's rows are given, their next token. A launch of its own, for the reason at the
// top: no block of gb_sample may read another's best.
//
// A row that has ended takes padding, one that can choose nothing takes its fallback. Grid: (1, rows).
GB_KERNEL gb_pick(
    gb_i64* chosen,                                 // (rows,) written; -1 where nothing allowed is above -inf
    const gb_u64* __restrict__ best, gb_i64 parts,  // (rows, parts)
    gb_i64* tokens, gb_i64 token_stride,            // (rows, capacity) written at each row's length, or null
    gb_i32* length, gb_i64 capacity,                // (rows,) one more afterwards
    gb_u8* ended,                                   // (rows,) set to 1 by tokens that end a row
    gb_i64* last,                                   // (rows,) written: the token that the row took
    const gb_i64* __restrict__ fallbacks,           // (rows,)
    gb_i64 padding,
    const gb_i64* __restrict__ ends, gb_i64 end_count  // (end_count,) the tokens that end a row
) {
    const gb_i64 row = GB_BLOCK_Y;
    GB_SHARED gb_u64 keys[GB_THREADS];
    GB_EACH_THREAD(t) {
        gb_u64 mine = 0;
        for (gb_i64 i = t; i < parts; i += GB_THREADS) {
            if (best[row * parts + i] > mine) mine = best[row * parts + i];
        }
        keys[t] = mine;
    }
    for (int half = GB_THREADS / 2; half; half /= 2) {
        GB_EACH_THREAD(t) {
            if (t < half && keys[t + half] > keys[t]) keys[t] = keys[t + half];
        }
    }
    GB_EACH_THREAD(t) {
        if (!t) {
            const gb_i64 found = keys[0] ? (gb_i64)(0xffffffffu - (gb_u32)keys[0]) : -1;
            chosen[row] = found;
            if (tokens) {
                const gb_i64 token = ended[row] ? padding : found < 0 ? fallbacks[row] : found;
                const gb_i32 at = length[row];
                if (at >= 0 && at < capacity) tokens[row * token_stride + at] = token;
                length[row] = at + 1;
                last[row] = token;
                for (gb_i64 i = 0; i < end_count; ++i) {
                    if (token == ends[i]) ended[row] = 1;
                }
            }
        }
    }
}
